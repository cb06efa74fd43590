package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

func reportQuantiles(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// cycles takes and releases names that nobody else wants, from several goroutines, until stop says so.
func cycles(d driver.Driver, prefix string, goroutines int, stop func(cycles int) bool) ([]time.Duration, error) {
	ctx := context.Background()
	all := make([][]time.Duration, goroutines)
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for !stop(len(all[g])) {
				begun := time.Now()
				a, err := ask(ctx, d, fmt.Sprint(prefix, g), time.Minute, true)
				if err == nil {
					err = a.get(ctx)
				}
				if err == nil {
					err = d.Release(ctx, a.Hold, driver.End{})
				}
				if err != nil {
					errs[g] = err
					return
				}
				all[g] = append(all[g], time.Since(begun))
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...), errors.Join(errs...)
}

// BenchmarkCycle is the uncontended lock, from one goroutine and from many.
func BenchmarkCycle(b *testing.B) {
	for _, goroutines := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			d := open(b, newFile(b))
			each := b.N/goroutines + 1
			b.ResetTimer()
			all, err := cycles(d, "name", goroutines, func(n int) bool { return n >= each })
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "cycles/s")
			reportQuantiles(b, all)
		})
	}
}

// BenchmarkProcesses is the uncontended lock from several processes, which share the write lock of one file.
func BenchmarkProcesses(b *testing.B) {
	for _, processes := range []int{1, 4} {
		b.Run(fmt.Sprint(processes), func(b *testing.B) {
			for b.Loop() {
				file := newFile(b)
				open(b, file)
				var all []*child
				for range processes {
					all = append(all, startChild(b, "cycle", file))
				}
				var sum, least, p99, slowest float64
				for _, c := range all {
					var n, p, m float64
					if _, err := fmt.Sscan(c.line(b), &n, &p, &m); err != nil {
						b.Fatal(err)
					}
					sum, p99, slowest = sum+n, max(p99, p), max(slowest, m)
					if least == 0 || n < least {
						least = n
					}
				}
				b.ReportMetric(sum, "cycles/s")
				b.ReportMetric(least/sum*float64(processes), "least-share")
				b.ReportMetric(p99, "p99-µs")
				b.ReportMetric(slowest, "max-µs")
			}
		})
	}
}

// childCycle locks for a second and says how often it did, the 99th percentile and the slowest, in µs.
func childCycle(args []string) error {
	d, err := sqllock.Open(context.Background(), "sqlite://"+args[0], nil)
	if err != nil {
		return err
	}
	defer d.Close()
	end := time.Now().Add(time.Second)
	all, err := cycles(d, fmt.Sprint("process", os.Getpid(), " "), 8, func(int) bool { return time.Now().After(end) })
	if err != nil {
		return err
	}
	slices.Sort(all)
	fmt.Println(len(all), all[len(all)*99/100].Microseconds(), all[len(all)-1].Microseconds())
	return nil
}

// BenchmarkRenew renews 10,000 holds at once.
func BenchmarkRenew(b *testing.B) {
	d := open(b, newFile(b))
	var holds []driver.Hold
	var wg sync.WaitGroup
	var mu sync.Mutex
	for g := range 100 {
		wg.Go(func() {
			for i := range 100 {
				a := mustGet(b, d, fmt.Sprint(g, " ", i), time.Hour)
				mu.Lock()
				holds = append(holds, a.Hold)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for b.Loop() {
		for _, err := range d.Renew(context.Background(), holds) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
