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
