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

var exclusionCases = []Case{
	{
		Name:     "one at a time",
		Sentence: "Of all holders in all clients one works at a time, and tokens rise from each to the next.",
		flavours: exclusive,
		check: func(c *run) {
			const goroutines, rounds = 3, 5
			r := &region{c: c}
			nodes := c.several(3, pawl.Options{})
			var wg sync.WaitGroup
			for _, n := range nodes {
				for range goroutines {
					wg.Go(func() {
						for range rounds {
							err := c.lock(n, c.name).Do(c.ctx, func(ctx context.Context) error {
								r.visit(c.ordered(tokenOf(ctx, c.name)))
								return ctx.Err()
							})
							if err != nil {
								c.errorf("Do: %v", err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			r.done(len(nodes) * goroutines * rounds)
		},
	},
	{
		Name:     "try",
		Sentence: "TryLock gets a free name, and answers a *HeldError for one that another client holds, without waiting.",
		flavours: exclusive,
		check: func(c *run) {
			a, b := c.node(pawl.Options{Holder: "a"}), c.node(pawl.Options{})
			for range 3 {
				l, err := c.lock(a, c.name).TryLock(c.ctx)
				if err != nil {
					c.failf("TryLock of a free name: %v", err)
				}
				_, err = c.lock(b, c.name).TryLock(c.ctx)
				held, ok := errors.AsType[*pawl.HeldError](err)
				if !ok || !errors.Is(err, pawl.ErrHeld) {
					c.failf("TryLock of what another client holds: got %v, want a *HeldError", err)
				}
				if held.Here || held.Name != c.name {
					c.failf("the HeldError says %+v", held)
				}
				err = c.lock(b, c.name).TryDo(c.ctx, func(context.Context) error { c.errorf("TryDo ran beside a holder"); return nil })
				c.mustBe("TryDo of what another client holds", err, pawl.ErrHeld)
				c.free(l)
				a, b = b, a
			}
		},
	},
	{
		Name:     "readers together",
		Sentence: "Readers of several clients work together, a writer works alone.",
		with:     []driver.Kind{driver.Read, driver.Write},
		check: func(c *run) {
			nodes := c.several(3, pawl.Options{})
			var readers []*pawl.Lease
			for _, n := range nodes {
				readers = append(readers, c.take(n.RWMutex(c.name).RLocker(), 0)) // each while those before it hold
			}
			c.mustBeHeld(nodes[1].RWMutex(c.name))
			for _, l := range readers {
				c.free(l)
			}
			w := c.take(nodes[1].RWMutex(c.name), 0)
			for _, n := range nodes {
				c.mustBeHeld(n.RWMutex(c.name).RLocker())
			}
			c.free(w)

			const rounds = 5
			var reading atomic.Int64
			r := &region{c: c}
			var wg sync.WaitGroup
			for _, n := range nodes {
				for range 2 {
					wg.Go(func() {
						for range rounds {
							err := n.RWMutex(c.name).RLocker().Do(c.ctx, func(context.Context) error {
								reading.Add(1)
								defer reading.Add(-1)
								if r.in.Load() != 0 {
									c.errorf("a reader beside a writer")
								}
								time.Sleep(time.Millisecond)
								return nil
							})
							if err != nil {
								c.errorf("read: %v", err)
								return
							}
						}
					})
				}
				wg.Go(func() {
					for range rounds {
						err := n.RWMutex(c.name).Do(c.ctx, func(ctx context.Context) error {
							r.visit(tokenOf(ctx, c.name))
							if reading.Load() != 0 {
								c.errorf("a writer beside a reader")
							}
							return nil
						})
						if err != nil {
							c.errorf("write: %v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			r.done(len(nodes) * rounds)
		},
	},
	{
		Name:     "permits",
		Sentence: "A semaphore gives out all of its permits over all clients, and never more.",
		with:     []driver.Kind{driver.Permits},
		check: func(c *run) {
			const limit, rounds = 3, 5
			nodes := c.several(3, pawl.Options{})
			var ls []*pawl.Lease
			for _, n := range nodes {
				ls = append(ls, c.take(n.Semaphore(c.name, limit), 0))
			}
			for _, n := range nodes {
				c.mustBeHeld(n.Semaphore(c.name, limit))
			}
			c.free(ls[0])
			c.mustBeHeld(nodes[1].Semaphore(c.name, limit).Weight(2))
			c.free(ls[1])
			two := c.take(nodes[1].Semaphore(c.name, limit).Weight(2), 0)
			c.mustBeHeld(nodes[0].Semaphore(c.name, limit))
			_, err := nodes[0].Semaphore(c.name, limit+1).TryLock(c.ctx)
			c.mustBe("another limit", err, pawl.ErrMismatch)
			c.free(two)
			c.free(ls[2])

			var in, served atomic.Int64
			var wg sync.WaitGroup
			for k, n := range nodes {
				for g := range 3 {
					wg.Go(func() {
						weight := 1 + (k+g)%2
						for range rounds {
							err := n.Semaphore(c.name, limit).Weight(weight).Do(c.ctx, func(context.Context) error {
								if got := in.Add(int64(weight)); got > limit {
									c.errorf("%d of %d permits are out", got, limit)
								}
								time.Sleep(time.Millisecond)
								in.Add(-int64(weight))
								served.Add(1)
								return nil
							})
							if err != nil {
								c.errorf("Do: %v", err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			if got := served.Load(); got != int64(len(nodes)*3*rounds) {
				c.failf("%d were served", got)
			}
		},
	},
}

// ordered is the token, or 0 where tokens are no order: those of permits.
func (c *run) ordered(token int64) int64 {
	if c.leaf.flavour.name == one.name {
		return 0
	}
	return token
}
