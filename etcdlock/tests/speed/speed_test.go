// Package speed measures pawl on etcd beside etcd's own concurrency.Mutex, in one run on one server:
//
//	go test -run '^$' -bench . -benchtime 3000x -count 3 ./tests/speed
package speed

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
)

// A cycler takes a name and gives it back, once.
type cycler func(name string) error

// pawlClient is one process's pawl.
func pawlClient(b *testing.B, cli *clientv3.Client) *pawl.Client {
	d := etcdlock.New(cli, nil)
	locks := pawl.New(d)
	b.Cleanup(func() { locks.Close(); d.Close() })
	return locks
}

func pawlCycle(locks *pawl.Client) cycler {
	return func(name string) error {
		l, err := locks.Mutex(name).Lock(context.Background())
		if err != nil {
			return err
		}
		return l.Unlock()
	}
}

// mutexCycle uses concurrency.Mutex with a session of its own: contenders that share one do not exclude one another.
func mutexCycle(b *testing.B, cli *clientv3.Client) cycler {
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(30))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return func(name string) error {
		m := concurrency.NewMutex(s, name)
		if err := m.Lock(context.Background()); err != nil {
			return err
		}
		return m.Unlock(context.Background())
	}
}

// turn is how many cycles each goroutine of BenchmarkUncontended makes before all change over.
const turn = 20

// BenchmarkUncontended takes free names, each goroutine its own. All goroutines use the one, then all the other, again and
// again, so that both meet the same machine. The ratios are those of two neighbouring turns; reported is the median.
func BenchmarkUncontended(b *testing.B) {
	c := etcdtest.Start(b, etcdtest.Options{Durable: true})
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cli := c.Client()
			kinds := []string{"mutex", "pawl"}
			cs := map[string][]cycler{}
			one := pawlCycle(pawlClient(b, cli))
			for range n {
				cs["mutex"] = append(cs["mutex"], mutexCycle(b, cli))
				cs["pawl"] = append(cs["pawl"], one)
			}
			took, p50, p99, ratio := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}, []float64(nil)
			for range max(b.N/(n*turn), 2) {
				slices.Reverse(kinds) // none is always first
				for _, what := range kinds {
					all := make([][]time.Duration, n)
					var wg sync.WaitGroup
					begun := time.Now()
					for i, f := range cs[what] {
						wg.Go(func() {
							for range turn {
								t := time.Now()
								if err := f(fmt.Sprintf("free-%d-%d", n, i)); err != nil {
									b.Error(err)
									return
								}
								all[i] = append(all[i], time.Since(t))
							}
						})
					}
					wg.Wait()
					took[what] = append(took[what], time.Since(begun).Seconds())
					flat := slices.Concat(all...)
					slices.Sort(flat)
					if len(flat) == 0 {
						return
					}
					p50[what] = append(p50[what], float64(flat[len(flat)/2].Microseconds()))
					p99[what] = append(p99[what], float64(flat[len(flat)*99/100].Microseconds()))
				}
				last := len(ratio)
				ratio = append(ratio, took["mutex"][last]/took["pawl"][last])
			}
			for _, what := range kinds {
				b.ReportMetric(float64(n*turn)/median(took[what]), what+"-cycles/s")
				b.ReportMetric(median(p50[what]), what+"-p50-µs")
				b.ReportMetric(median(p99[what]), what+"-p99-µs")
			}
			b.ReportMetric(median(ratio), "pawl/mutex-cycles/s")
		})
	}
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// BenchmarkHot takes one name with 1,000 goroutines of one process.
func BenchmarkHot(b *testing.B) {
	c := etcdtest.Start(b, etcdtest.Options{Durable: true})
	for _, what := range []string{"mutex", "pawl"} {
		b.Run(what, func(b *testing.B) {
			cli := c.Client()
			cs := make([]cycler, 1000)
			if what == "pawl" {
				one := pawlCycle(pawlClient(b, cli))
				for i := range cs {
					cs[i] = one
				}
			} else {
				var wg sync.WaitGroup
				for i := range cs {
					wg.Go(func() { cs[i] = mutexCycle(b, cli) })
				}
				wg.Wait()
			}
			run(b, c, cs, func(int) string { return "hot-" + what })
		})
	}
}

// run shares b.N cycles among the cyclers, who go on until all are done.
func run(b *testing.B, cluster *etcdtest.Cluster, cs []cycler, name func(int) string) {
	took := make([][]time.Duration, len(cs))
	var left atomic.Int64
	left.Store(int64(b.N))
	for i, c := range cs[:min(len(cs), 16)] { // connections and sessions
		if err := c(name(i)); err != nil {
			b.Fatal(err)
		}
	}
	server, self := cpu(b, cluster.Members[0].PID()), cpu(b, os.Getpid())
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				t := time.Now()
				if err := c(name(i)); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(t))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, slices.Concat(took...))
	b.ReportMetric((cpu(b, cluster.Members[0].PID())-server)*1e6/float64(b.N), "server-cpu-µs/op")
	b.ReportMetric((cpu(b, os.Getpid())-self)*1e6/float64(b.N), "client-cpu-µs/op")
}

// cpu is the processor time of a process so far, in seconds. On a busy machine it says more than the clock.
func cpu(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0 // not Linux
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

func report(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkHandOver measures the time from the start of a release in one process to the grant in another that waits.
func BenchmarkHandOver(b *testing.B) {
	c := etcdtest.Start(b, etcdtest.Options{Durable: true})
	trip := roundTrip(b, c)
	for _, what := range []string{"mutex", "pawl"} {
		for _, busy := range []bool{false, true} { // others write to the store meanwhile
			b.Run(fmt.Sprintf("%s/busy=%v", what, busy), func(b *testing.B) {
				if busy {
					defer traffic(b, c)()
				}
				name := fmt.Sprintf("over-%s-%v", what, busy)
				type locker struct {
					lock   func() error
					unlock func() error
				}
				var two [2]locker
				for i := range two {
					cli := c.Client()
					if what == "pawl" {
						m := pawlClient(b, cli).Mutex(name)
						var l *pawl.Lease
						two[i] = locker{func() (err error) { l, err = m.Lock(context.Background()); return err }, func() error { return l.Unlock() }}
					} else {
						s, err := concurrency.NewSession(cli, concurrency.WithTTL(30))
						if err != nil {
							b.Fatal(err)
						}
						b.Cleanup(func() { s.Close() })
						m := concurrency.NewMutex(s, name)
						two[i] = locker{func() error { return m.Lock(context.Background()) }, func() error { return m.Unlock(context.Background()) }}
					}
				}
				var all []time.Duration
				if err := two[0].lock(); err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				for i := range b.N {
					here, there := two[i%2], two[1-i%2]
					got := make(chan time.Time, 1)
					go func() {
						if err := there.lock(); err != nil {
							b.Error(err)
						}
						got <- time.Now()
					}()
					time.Sleep(15 * time.Millisecond) // until it waits
					begun := time.Now()
					if err := here.unlock(); err != nil {
						b.Fatal(err)
					}
					all = append(all, (<-got).Sub(begun))
				}
				b.StopTimer()
				slices.Sort(all)
				p50 := all[len(all)/2]
				b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
				b.ReportMetric(float64(p50)/float64(trip), "round-trips")
				two[b.N%2].unlock()
			})
		}
	}
}

// roundTrip is what one committed write takes: the unit of the store.
func roundTrip(b *testing.B, c *etcdtest.Cluster) time.Duration {
	cli := c.Client()
	var all []time.Duration
	for range 100 {
		time.Sleep(15 * time.Millisecond) // as in the benchmark: an idle machine is slower to wake
		t := time.Now()
		if _, err := cli.Put(b.Context(), "round-trip", ""); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(t))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// traffic writes to the store until the answer is called.
func traffic(b *testing.B, c *etcdtest.Cluster) func() {
	cli := c.Client()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			cli.Put(ctx, "traffic", "")
			time.Sleep(time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}
