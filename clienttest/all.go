package clienttest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var allCases = []Case{
	{
		Name:     "money is conserved",
		Sentence: "Transfers between two accounts under All, in both orders and from several clients, neither deadlock nor lose money.",
		flavours: exclusive,
		check: func(c *run) {
			const rounds = 6
			a, b := c.name+"-a", c.name+"-b"
			balance := map[string]*atomic.Int64{a: new(atomic.Int64), b: new(atomic.Int64)}
			nodes := c.several(3, pawl.Options{})
			var in atomic.Int64
			var wg sync.WaitGroup
			for k, n := range nodes {
				for g := range 2 {
					wg.Go(func() {
						from, to := a, b
						if (k+g)%2 == 1 {
							from, to = b, a
						}
						for range rounds {
							leases, err := pawl.All(c.lock(n, from), c.lock(n, to)).Lock(c.ctx)
							if err != nil {
								c.errorf("Lock: %v", err)
								return
							}
							if leases[0].Name() != from || leases[1].Name() != to {
								c.errorf("the leases are in another order than the locks")
							}
							if in.Add(1) != 1 {
								c.errorf("two transfers at once")
							}
							f, t := balance[from].Load(), balance[to].Load()
							time.Sleep(time.Millisecond)
							balance[from].Store(f - 1)
							balance[to].Store(t + 1)
							in.Add(-1)
							if err := leases.Unlock(); err != nil {
								c.errorf("Unlock: %v", err)
							}
						}
					})
				}
			}
			wg.Wait()
			if x, y := balance[a].Load(), balance[b].Load(); x != 0 || y != 0 { // as many there as back
				c.failf("the balances are %d and %d, want 0 and 0", x, y)
			}
		},
	},
	{
		Name:     "a failed try keeps none",
		Sentence: "TryLock of several locks takes all or none.",
		flavours: exclusive,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			x, y, z := c.name+"-x", c.name+"-y", c.name+"-z"
			busy := c.take(c.lock(b, y), 0)
			ls, err := pawl.All(c.lock(a, z), c.lock(a, y), c.lock(a, x)).TryLock(c.ctx)
			if err == nil {
				ls.Unlock()
			}
			c.mustBe("All of three, one of them held", err, pawl.ErrHeld)
			for _, name := range []string{x, z} {
				c.free(c.take(c.lock(b, name), 0))
			}
			c.free(busy)
			ls, err = pawl.All(c.lock(a, z), c.lock(a, y), c.lock(a, x)).TryLock(c.ctx)
			if err != nil {
				c.failf("All of three free ones: %v", err)
			}
			for _, name := range []string{x, y, z} {
				c.mustBeHeld(c.lock(b, name))
			}
			c.free(ls)
			for _, name := range []string{x, y, z} {
				c.free(c.take(c.lock(b, name), 0))
			}
		},
	},
	{
		Name:     "one lost ends the work",
		Sentence: "The context of several leases ends when one of them is lost; the others stay held until Unlock.",
		flavours: exclusive,
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
				brief := &node{Client: a.With(pawl.Options{TTL: c.short(), NoKeepalive: true})}
				x, y := c.name+"-x", c.name+"-y"
				ls, err := pawl.All(c.lock(a, y), c.lock(brief, x)).Lock(c.ctx)
				if slow(err) {
					return false
				}
				if err != nil {
					c.failf("Lock: %v", err)
				}
				ctx := ls.Context(c.ctx)
				c.mustEnd("the context of all when one is lost", ctx.Done(), c.short())
				c.mustBe("its cause", context.Cause(ctx), pawl.ErrLost)
				c.mustBe("Err", ls.Err(), pawl.ErrLost)
				c.mustBeHeld(c.lock(b, y))
				c.free(c.take(c.lock(b, x), 2*c.short()))
				c.mustBe("Unlock", ls.Unlock(), pawl.ErrLost)
				c.free(c.take(c.lock(b, y), 0))
				return true
			})
		},
	},
	{
		Name:     "several kinds",
		Sentence: "Locks of several kinds are taken together, a name that is given twice once and in the stronger mode.",
		with:     []driver.Kind{driver.Exclusive, driver.Read, driver.Write, driver.Permits},
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			m, rw, s := c.name+"-m", c.name+"-rw", c.name+"-s"
			ls, err := pawl.All(a.Semaphore(s, 3), a.RWMutex(rw).RLocker(), a.Mutex(m), a.RWMutex(rw), a.Semaphore(s, 3)).Lock(c.ctx)
			if err != nil {
				c.failf("Lock: %v", err)
			}
			c.mustBeHeld(b.Mutex(m))
			c.mustBeHeld(b.RWMutex(rw).RLocker()) // taken to write
			c.mustBeHeld(b.Semaphore(s, 3).Weight(2))
			c.free(c.take(b.Semaphore(s, 3), 0)) // two of three are taken
			if ls[1] != ls[3] || ls[0] != ls[4] {
				c.failf("a name that was given twice has two leases")
			}
			c.free(ls)
			c.free(c.take(b.RWMutex(rw), 0))
		},
	},
}
