package clienttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var serverCases = []Case{
	{
		Name:     "frozen",
		Sentence: "When the server does not answer, a lock call ends with its context and is not ErrHeld, a lease is lost in time, and when it goes on all is well again.",
		flavours: []flavour{mutex},
		needs:    freezes,
		check: func(c *run) {
			o := pawl.Options{TTL: c.short()}
			a, b := c.node(o), c.node(o)
			l := c.take(c.lock(a, c.name), 0)
			c.free(c.take(c.lock(b, c.name+"-other"), 0)) // it is connected
			resume := c.h.Freeze(c.tb)
			defer resume()
			ctx, stop := context.WithTimeout(c.ctx, 300*time.Millisecond)
			defer stop()
			start := time.Now()
			_, err := c.lock(b, c.name).TryLock(ctx)
			if d := time.Since(start); d > 300*time.Millisecond+c.soon() {
				c.failf("TryLock with 300 ms returned after %v", d)
			}
			if err == nil || errors.Is(err, pawl.ErrHeld) {
				c.failf("TryLock without an answer: got %v", err)
			}
			c.mustEnd("a lease that cannot be renewed", l.Done(), c.short())
			c.mustBe("the lease", l.Err(), pawl.ErrLost)
			resume()
			c.recovers(b, l.Token())
			c.mustBe("Unlock of the lost lease", l.Unlock(), pawl.ErrLost)
		},
	},
	{
		Name:     "killed",
		Sentence: "When the server is down, a lock call answers an error that is not ErrHeld, a lease is lost in time, and when it is back locks work and tokens have not fallen.",
		flavours: []flavour{mutex},
		needs:    kills,
		check: func(c *run) {
			o := pawl.Options{TTL: c.short()}
			a, b := c.node(o), c.node(o)
			l := c.take(c.lock(a, c.name), 0)
			c.free(c.take(c.lock(b, c.name+"-other"), 0))
			restart := c.h.Kill(c.tb)
			defer restart()
			ctx, stop := context.WithTimeout(c.ctx, 300*time.Millisecond)
			defer stop()
			_, err := c.lock(b, c.name).TryLock(ctx)
			if err == nil || errors.Is(err, pawl.ErrHeld) {
				c.failf("TryLock of a dead server: got %v", err)
			}
			c.mustEnd("a lease that cannot be renewed", l.Done(), c.short())
			restart()
			c.recovers(b, l.Token())
			c.mustBe("Unlock of the lost lease", l.Unlock(), pawl.ErrLost)
		},
	},
	{
		Name:     "killed under a leader",
		Sentence: "A leader stops in time when the server is down, and when it is back somebody leads again, with a larger term.",
		with:     []driver.Kind{driver.Leader},
		needs:    kills,
		check: func(c *run) {
			nodes := c.several(2, pawl.Options{TTL: c.short()})
			ctx, stop := context.WithCancel(c.ctx)
			defer stop()
			var starts, stops, term atomic.Int64
			var wg sync.WaitGroup
			for _, n := range nodes {
				wg.Go(func() {
					err := n.Election(c.name).Run(ctx, "v", func(ctx context.Context) error {
						starts.Add(1)
						defer stops.Add(1)
						t := tokenOf(ctx, c.name)
						if before := term.Swap(t); before >= t {
							c.errorf("the term %d is followed by %d", before, t)
						}
						<-ctx.Done()
						return nil
					})
					c.endsWith("Run", err, context.Canceled)
				})
			}
			c.within(0, "somebody leads", func() bool { return starts.Load() == 1 })
			restart := c.h.Kill(c.tb)
			defer restart()
			c.within(c.short(), "the leader has stopped", func() bool { return stops.Load() == 1 })
			restart()
			c.within(4*c.short(), "somebody leads again", func() bool { return starts.Load() > 1 })
			stop()
			wg.Wait()
			if starts.Load() != stops.Load() {
				c.failf("%d starts and %d stops", starts.Load(), stops.Load())
			}
		},
	},
	{
		Name:     "killed under a run",
		Sentence: "When the server was down during a Once, its caller is told whether the result counts, and all later callers get the one that does.",
		with:     []driver.Kind{driver.Once},
		needs:    kills,
		check: func(c *run) {
			o := pawl.Options{TTL: c.short()}
			a, b := c.node(o), c.node(o)
			c.free(c.take(c.leaf.lock(b.Client, c.name+"-other"), 0)) // it is connected
			_, first := pawl.Once(c.ctx, a.Client, c.name, c.long(), func(ctx context.Context) (order, error) {
				restart := c.h.Kill(c.tb)
				defer restart()
				c.mustEnd("the context of a run without a server", ctx.Done(), c.short())
				return order{ID: 1}, nil
			})
			var got order
			c.within(4*c.short(), "the next caller gets a result", func() bool {
				var err error
				got, err = pawl.Once(c.ctx, b.Client, c.name, c.long(), func(context.Context) (order, error) { return order{ID: 2}, nil })
				return err == nil
			})
			if first == nil && got.ID != 1 || errors.Is(first, pawl.ErrLost) && got.ID != 2 {
				c.failf("the first caller was told %v, the next got %+v", first, got)
			}
			later, err := pawl.Once(c.ctx, c.node(o).Client, c.name, c.long(), func(context.Context) (order, error) { return order{ID: 3}, nil })
			if err != nil || later != got {
				c.failf("later: got %+v, %v, want %+v", later, err, got)
			}
		},
	},
	{
		Name:     "killed under a schedule",
		Sentence: "A schedule runs nothing while the server is down, and goes on when it is back.",
		with:     []driver.Kind{driver.Exclusive, driver.Once},
		needs:    kills,
		check: func(c *run) {
			ctx, stop := context.WithCancel(c.ctx)
			defer stop()
			var in, runs atomic.Int64
			var wg sync.WaitGroup
			for _, n := range c.several(2, pawl.Options{TTL: c.short()}) {
				wg.Go(func() {
					err := n.Schedule(c.name, time.Second).Run(ctx, func(ctx context.Context) error {
						if in.Add(1) != 1 {
							c.errorf("two runs at once")
						}
						defer in.Add(-1)
						runs.Add(1)
						return nil
					})
					c.endsWith("Run", err, context.Canceled)
				})
			}
			c.within(2*time.Second, "a tick is run", func() bool { return runs.Load() > 0 })
			restart := c.h.Kill(c.tb)
			defer restart()
			atKill := runs.Load()
			time.Sleep(3 * time.Second)
			before := runs.Load()
			if before > atKill+1 { // one was under way
				c.failf("%d runs while the server was down", before-atKill)
			}
			restart()
			c.within(4*c.short()+2*time.Second, "two more ticks are run", func() bool { return runs.Load() >= before+2 })
			stop()
			wg.Wait()
		},
	},
}

// endsWith is mustBe for goroutines of a case.
func (c *run) endsWith(what string, err, target error) {
	c.tb.Helper()
	if !errors.Is(err, target) {
		c.errorf("%s: got %v, want %v", what, err, target)
	}
}

// recovers wants that n gets the name again after an outage.
func (c *run) recovers(n *node, after int64) {
	c.tb.Helper()
	end := time.Now().Add(4*c.short() + c.soon())
	for {
		ctx, stop := context.WithDeadline(c.ctx, end)
		l, err := c.lock(n, c.name).Lock(ctx)
		stop()
		switch {
		case err == nil:
			if t := l.Token(); t <= after && t != 0 {
				c.failf("the token %d is followed by %d", after, t)
			}
			c.free(l)
			return
		case time.Now().After(end):
			c.failf("the server is back, but the lock answers %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
