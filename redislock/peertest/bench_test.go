package peertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/redlock"
)

// cycle is one acquisition and its release.
type cycle func(key string) error

func pawlCycle(d driver.Driver) cycle {
	locks := pawl.New(d)
	return func(key string) error {
		l, err := locks.Mutex(key).Lock(context.Background())
		if err != nil {
			return err
		}
		return l.Unlock()
	}
}

func peerCycle(p peer) cycle {
	return func(key string) error {
		l, err := p.take(key, 30*time.Second)
		if err != nil {
			return err
		}
		return l.release()
	}
}

// measure runs cycles of every kind by so many goroutines, each on keys of its own.
func measure(b *testing.B, kinds map[string]cycle) {
	for _, g := range []int{1, 64} {
		for name, c := range kinds {
			b.Run(fmt.Sprintf("%s/%d", name, g), func(b *testing.B) {
				var left atomic.Int64
				left.Store(int64(b.N))
				took := make([][]time.Duration, g)
				var wg sync.WaitGroup
				for i := range g {
					wg.Go(func() {
						for n := 0; left.Add(-1) >= 0; n++ {
							began := time.Now()
							// Not the same key at once again: pawl would keep it.
							if err := c(fmt.Sprintf("%s %d %d", name, i, n%64)); err != nil {
								b.Error(err)
								return
							}
							took[i] = append(took[i], time.Since(began))
						}
					})
				}
				wg.Wait()
				all := slices.Sorted(slices.Values(slices.Concat(took...)))
				b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "cycles/s")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

func BenchmarkOne(b *testing.B) {
	s := redistest.Start(b)
	measure(b, map[string]cycle{
		"pawl":        pawlCycle(open(b, s, nil)),
		"pawl fenced": pawlCycle(open(b, s, &redislock.PlainOptions{Fenced: true})),
		"redsync":     peerCycle(newRedsync(b, s)),
		"bsm":         peerCycle(newBsm(b, s)),
	})
}

func BenchmarkFive(b *testing.B) {
	var servers []*redistest.Server
	for range 5 {
		servers = append(servers, redistest.Start(b))
	}
	quorum := func(fenced bool) driver.Driver {
		var members []driver.Driver
		for _, s := range servers {
			p, err := redislock.OpenPlain(b.Context(), s.URL, &redislock.PlainOptions{Fenced: fenced})
			if err != nil {
				b.Fatal(err)
			}
			members = append(members, p)
		}
		q := redlock.New(members, &redlock.Options{Durable: true, WithoutToken: !fenced}) // or nobody votes for 30 s
		b.Cleanup(func() { q.Close() })
		return q
	}
	measure(b, map[string]cycle{
		"pawl":        pawlCycle(quorum(false)),
		"pawl fenced": pawlCycle(quorum(true)),
		"redsync":     peerCycle(newRedsync(b, servers...)),
	})
}
