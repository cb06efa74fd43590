package clienttest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var scheduleCases = []Case{
	{
		Name:     "one run for each tick",
		Sentence: "No tick is run to its end twice, runs do not overlap, and the tick of a client that dies in it is taken over by another.",
		with:     []driver.Kind{driver.Exclusive, driver.Once},
		check:    func(c *run) { c.inTime(c.ticks) },
	},
	{
		Name:     "an error counts as a run",
		Sentence: "A tick whose function answered an error is not run again.",
		with:     []driver.Kind{driver.Exclusive, driver.Once},
		check: func(c *run) {
			ctx, stop := context.WithCancel(c.ctx)
			defer stop()
			var mu sync.Mutex
			ran := map[time.Time]int{}
			var wg sync.WaitGroup
			for _, n := range c.several(2, pawl.Options{}) {
				wg.Go(func() {
					n.Schedule(c.name, time.Second).Run(ctx, func(ctx context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						ran[pawl.Tick(ctx)]++
						return errors.New("no luck")
					})
				})
			}
			c.within(5*time.Second, "three ticks are run", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(ran) >= 3
			})
			stop()
			wg.Wait()
			for tick, n := range ran {
				if n != 1 {
					c.failf("the tick %v was run %d times", tick, n)
				}
			}
		},
	},
}

// jobRun is one run of the job.
type jobRun struct {
	tick  time.Time
	by    int
	lease *pawl.Lease // of the schedule's name
	ended bool        // and was held until then
}

// ticks lets three clients run a job each second; the one that runs the second tick dies in it. It answers false when
// another one was too slow to keep its lease.
func (c *run) ticks() bool {
	const period = time.Second
	nodes := c.several(3, pawl.Options{TTL: c.short()})
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	var mu sync.Mutex
	var runs []*jobRun
	victim := -1
	var killed time.Time
	var wg sync.WaitGroup
	for k, n := range nodes {
		wg.Go(func() {
			err := n.Schedule(c.name, period).Run(ctx, func(ctx context.Context) error {
				r := &jobRun{tick: pawl.Tick(ctx), by: k, lease: pawl.FromContext(ctx, c.name)}
				mu.Lock()
				if len(runs) > 0 {
					if last := runs[len(runs)-1]; last.lease.Err() == nil {
						c.errorf("a run begins while another is under way")
					}
				}
				first := !slices.ContainsFunc(runs, func(o *jobRun) bool { return !o.tick.Equal(r.tick) })
				runs = append(runs, r)
				dies := victim < 0 && !first
				if dies {
					victim, killed = k, r.tick
				}
				mu.Unlock()
				if dies {
					n.crash()
					<-ctx.Done()
					return ctx.Err()
				}
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				r.ended = r.lease.Err() == nil
				return nil
			})
			c.endsWith("Run", err, context.Canceled)
		})
	}
	lostOne := func() bool {
		for k, n := range nodes {
			if k != victim && n.lost.Load() > 0 {
				return true
			}
		}
		return false
	}
	c.within(2*c.short()+6*period, "the tick of the dead one and two more are run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		taken, later := false, map[time.Time]bool{}
		for _, r := range runs {
			taken = taken || r.ended && !killed.IsZero() && r.tick.Equal(killed)
			if r.ended && r.tick.After(killed) && !killed.IsZero() {
				later[r.tick] = true
			}
		}
		return taken && len(later) >= 2 || lostOne()
	})
	stop()
	wg.Wait()
	ended := map[time.Time]int{}
	for _, r := range runs {
		if r.ended {
			ended[r.tick]++
		}
	}
	for tick, n := range ended {
		if n > 1 && !lostOne() {
			c.failf("the tick %v was run %d times", tick, n)
		}
	}
	return !lostOne()
}
