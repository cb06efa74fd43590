package torture_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

// TestContention lets goroutines of two processes fight for one name in real time, where the windows between two steps of
// the client are hit that fake time passes over. It found a semaphore's leader that was handed a lease after it had
// looked and before it asked the store: it got a permit twice, and one was never given back.
func TestContention(t *testing.T) {
	const rounds = 4000
	var in, most, writers atomic.Int32
	count := 0 // written under exclusive locks only: the race detector watches
	for name, f := range map[string]func(*testing.T, *pawl.Client, int) (pawl.Locker, func()){
		"mutex": func(t *testing.T, c *pawl.Client, i int) (pawl.Locker, func()) {
			return c.Mutex("x"), func() { count++ }
		},
		"fair": func(t *testing.T, c *pawl.Client, i int) (pawl.Locker, func()) {
			return c.FairMutex("x"), func() { count++ }
		},
		"permit": func(t *testing.T, c *pawl.Client, i int) (pawl.Locker, func()) {
			return c.Semaphore("x", 1), func() { count++ }
		},
		"permits": func(t *testing.T, c *pawl.Client, i int) (pawl.Locker, func()) {
			n := int32(1 + i%2)
			return c.Semaphore("x", 3).Weight(int(n)), func() {
				if m := in.Add(n); m > most.Load() {
					most.Store(m)
				}
				in.Add(-n)
			}
		},
		"readers and writers": func(t *testing.T, c *pawl.Client, i int) (pawl.Locker, func()) {
			if i%4 == 0 {
				return c.RWMutex("x"), func() {
					writers.Add(1)
					count++
					writers.Add(-1)
				}
			}
			return c.RWMutex("x").RLocker(), func() {
				_ = count
				if writers.Load() != 0 {
					t.Error("a writer beside a reader")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memlock.New()
			clients := []*pawl.Client{pawl.New(store.Share()), pawl.New(store.Share())}
			var wg sync.WaitGroup
			for g := range 6 {
				c := clients[g/4] // 4 and 2
				wg.Go(func() {
					for i := range rounds / 6 {
						k, work := f(t, c, g+i)
						ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
						l, err := k.Lock(ctx)
						stop()
						if err != nil {
							t.Errorf("round %d: %v", i, err)
							return
						}
						work()
						if err := l.Unlock(); err != nil {
							t.Errorf("round %d: %v", i, err)
							return
						}
					}
				})
			}
			wg.Wait()
			if most.Load() > 3 {
				t.Errorf("%d of 3 permits at once", most.Load())
			}
			for _, c := range clients {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			r, err := store.Inspect(t.Context(), "x")
			if err != nil || len(r.Holds)+r.Waiters != 0 {
				t.Errorf("left: %+v, %v", r, err)
			}
		})
	}
}
