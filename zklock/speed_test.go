package zklock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// BenchmarkCycle measures acquire + release, uncontended, beside the Lock of the client library, in turns on one server
// that writes through to the disk.
func BenchmarkCycle(b *testing.B) {
	s := zktest.Start(b, zktest.Config{Sync: true})
	locks := pawl.New(open(b, "zookeeper://"+s.Addr+"/bench", &zklock.Options{SessionTimeout: 20 * time.Second}))
	defer locks.Close()
	conn := connect(b, s.Addr, 20*time.Second)
	kinds := map[string]func(name string) error{
		"pawl": func(name string) error {
			lease, err := locks.Mutex(name).Lock(context.Background())
			if err == nil {
				err = lease.Unlock()
			}
			return err
		},
		"go-zk": func(name string) error {
			l := zk.NewLock(conn, "/bench/go-"+name, zk.WorldACL(zk.PermAll))
			err := l.Lock()
			if err == nil {
				err = l.Unlock()
			}
			return err
		},
	}
	for _, g := range []int{1, 16, 256} {
		for _, what := range []string{"pawl", "go-zk"} {
			b.Run(fmt.Sprintf("%s/%d", what, g), func(b *testing.B) {
				took := make([][]time.Duration, g)
				var wg sync.WaitGroup
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				for i := range g {
					wg.Go(func() {
						name := fmt.Sprintf("n%d", i)
						for left.Add(-1) >= 0 {
							t := time.Now()
							if err := kinds[what](name); err != nil {
								b.Error(err)
								return
							}
							took[i] = append(took[i], time.Since(t))
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				all := slices.Concat(took...)
				slices.Sort(all)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// TestHotKey lets a thousand goroutines of one process want one key, with pawl and with the Lock of the client library, on a server that writes through to the disk. pawl asks the ensemble once for many of them.
func TestHotKey(t *testing.T) {
	s := zktest.Start(t, zktest.Config{Sync: true})
	locks := pawl.New(open(t, "zookeeper://"+s.Addr+"/bench", &zklock.Options{SessionTimeout: 40 * time.Second}))
	defer locks.Close()
	conn := connect(t, s.Addr, 40*time.Second)
	theirs := hot(t, time.Second, func() (func() error, error) {
		l := zk.NewLock(conn, "/bench/go-hot", zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	})
	ours := hot(t, time.Second, func() (func() error, error) {
		lease, err := locks.Mutex("hot").Lock(context.Background())
		return lease.Unlock, err
	})
	t.Logf("a thousand goroutines, one key: pawl %.0f cycles/s, go-zk %.0f, ratio %.0f", ours, theirs, ours/theirs)
	if ours < 50*theirs {
		t.Errorf("pawl's %.0f cycles/s are not 50 times go-zk's %.0f", ours, theirs)
	}
}

// hot is how many times a second a thousand goroutines get through.
func hot(t testing.TB, span time.Duration, lock func() (func() error, error)) float64 {
	t.Helper()
	const goroutines = 1000
	var n atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(span)
	begin := time.Now()
	var last atomic.Int64
	for range goroutines {
		wg.Go(func() {
			for time.Now().Before(end) {
				unlock, err := lock()
				if err == nil {
					err = unlock()
				}
				if err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
				last.Store(int64(time.Since(begin)))
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Duration(last.Load()).Seconds()
}

// BenchmarkHandOver measures how long after one process's Unlock another one's Lock returns, beside the client library's.
func BenchmarkHandOver(b *testing.B) {
	s := zktest.Start(b, zktest.Config{Sync: true})
	var locks [2]*pawl.Client
	var conns [2]*zk.Conn
	for i := range 2 {
		locks[i] = pawl.New(open(b, "zookeeper://"+s.Addr+"/bench", &zklock.Options{SessionTimeout: 40 * time.Second}))
		defer locks[i].Close()
		conns[i] = connect(b, s.Addr, 40*time.Second)
	}
	for what, lock := range map[string]func(i int) func() error{
		"pawl": func(i int) func() error {
			lease, err := locks[i].Mutex("over").Lock(context.Background())
			if err != nil {
				b.Error(err)
			}
			return lease.Unlock
		},
		"go-zk": func(i int) func() error {
			l := zk.NewLock(conns[i], "/bench/go-over", zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				b.Error(err)
			}
			return l.Unlock
		},
	} {
		b.Run(what, func(b *testing.B) {
			took := make([]time.Duration, 0, b.N)
			unlock := lock(0)
			for i := range b.N {
				next := make(chan func() error, 1)
				at := make(chan time.Time, 1)
				go func() {
					u := lock((i + 1) % 2)
					at <- time.Now()
					next <- u
				}()
				time.Sleep(10 * time.Millisecond) // it is in line by then
				begin := time.Now()
				if err := unlock(); err != nil {
					b.Fatal(err)
				}
				took = append(took, (<-at).Sub(begin))
				unlock = <-next
			}
			unlock()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "p90-µs")
		})
	}
}
