package redislock_test

import (
	"context"
	"fmt"
	"net"
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
	cycles(b, redistest.Start(b).Addr, 1, 16, 256, 1000)
}

// BenchmarkFarCycle is BenchmarkCycle with a server that is a millisecond away.
func BenchmarkFarCycle(b *testing.B) {
	cycles(b, distant(b, redistest.Start(b).Addr, time.Millisecond/2), 1, 2, 4, 8, 16, 256)
}

func cycles(b *testing.B, addr string, goroutines ...int) {
	d := open(b, "redis://"+addr, nil)
	raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
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
	for _, g := range goroutines {
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

// distant is a relay that carries each byte on after a delay, either way.
func distant(t testing.TB, target string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	carry := func(to, from net.Conn) {
		chunks := make(chan chunk, 1<<12)
		go func() {
			defer close(chunks)
			for {
				buf := make([]byte, 1<<16)
				n, err := from.Read(buf)
				chunks <- chunk{buf[:n], time.Now().Add(delay)}
				if err != nil {
					return
				}
			}
		}()
		defer from.Close()
		defer to.Close()
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			to.Write(c.bytes) // an error ends the other direction, and that this one
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				c.Close()
				continue
			}
			go carry(s, c)
			go carry(c, s)
		}
	}()
	return l.Addr().String()
}
