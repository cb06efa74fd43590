package redislock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// BenchmarkCycle measures acquire + release, each goroutine on a name of its own, beside the same with the bare commands
// (SET NX PX and a script that checks the owner and deletes) on a client of its own.
func BenchmarkCycle(b *testing.B) {
	s := redistest.Start(b)
	d := open(b, s.URL, nil)
	raw := connect(b, s)
	var n atomic.Int64
	pawl := func(name string) {
		id := fmt.Sprintf("11111111-2222-4333-8444-555555555555:%d", n.Add(1))
		r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: id, Permits: 1, TTL: 30 * time.Second}, Notify: func(driver.Signal) {}}
		p, err := d.Enter(context.Background(), r)
		if err == nil {
			var g driver.Grant
			if g, err = p.Try(context.Background(), 1); err == nil {
				r.Hold.Token = g.Token
				err = d.Release(context.Background(), r.Hold, driver.End{Last: g.Token})
			}
		}
		if err != nil {
			b.Error(err)
		}
	}
	release := rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	bare := func(name string) {
		ctx := context.Background()
		if err := raw.Do(ctx, raw.B().Set().Key(name).Value("owner").Nx().PxMilliseconds(30000).Build()).Error(); err != nil {
			b.Error(err)
		}
		if err := release.Exec(ctx, raw, []string{name}, []string{"owner"}).Error(); err != nil {
			b.Error(err)
		}
	}
	for _, g := range []int{1, 16, 256, 1000} {
		for what, f := range map[string]func(string){"pawl": pawl, "bare": bare} {
			b.Run(fmt.Sprintf("%s/%d", what, g), func(b *testing.B) {
				took := make([][]time.Duration, g)
				var wg sync.WaitGroup
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				for i := range g {
					wg.Go(func() {
						name := fmt.Sprintf("bench-%s-%d", what, i)
						for left.Add(-1) >= 0 {
							t := time.Now()
							f(name)
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
