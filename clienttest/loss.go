package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var lossCases = []Case{
	{
		Name:     "in time",
		Sentence: "A client that is cut off loses its leases before another can get in, and says so; the other gets in when the TTL is over, with a larger token.",
		flavours: exclusive,
		check: func(c *run) {
			a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
			l := c.take(c.lock(a, c.name), 0)
			ctx := l.Context(c.ctx)
			a.crash()
			next := c.take(c.lock(b, c.name), 2*c.short())
			c.mustBe("a lease when another holds the name", l.Err(), pawl.ErrLost)
			c.mustEnd("the context of a lost lease", ctx.Done(), 0)
			c.mustBe("its cause", context.Cause(ctx), pawl.ErrLost)
			if t := c.ordered(next.Token()); t <= l.Token() && t != 0 {
				c.failf("the token %d is followed by %d", l.Token(), t)
			}
			c.mustBe("Unlock of a lost lease", l.Unlock(), pawl.ErrLost)
			c.free(next)
		},
	},
	{
		Name:     "of a reader",
		Sentence: "A reader that is cut off loses its lease before a writer can get in.",
		with:     []driver.Kind{driver.Read, driver.Write},
		check: func(c *run) {
			a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
			l := c.take(a.RWMutex(c.name).RLocker(), 0)
			a.crash()
			next := c.take(b.RWMutex(c.name), 2*c.short())
			c.mustBe("a read lease when another writes", l.Err(), pawl.ErrLost)
			c.mustBe("Unlock of it", l.Unlock(), pawl.ErrLost)
			c.free(next)
		},
	},
	{
		Name:     "not by a short cut",
		Sentence: "Renewals that fail for less than the TTL are made good, and the lease lives on.",
		flavours: exclusive,
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
				l := c.take(c.lock(a, c.name), 0)
				defer l.Unlock()
				a.cut()
				c.within(c.short(), "a renewal does not pass", func() bool { _, missed := a.renewals(); return missed > 0 })
				a.heal()
				before, _ := a.renewals()
				c.within(c.short(), "two renewals pass, or the lease is lost", func() bool {
					n, _ := a.renewals()
					return n >= before+2 || l.Err() != nil
				})
				if l.Err() != nil {
					return false
				}
				if lease, err := c.lock(b, c.name).TryLock(c.ctx); err == nil {
					if l.Err() == nil {
						c.failf("another got in beside a lease that is held")
					}
					lease.Unlock()
					return false
				}
				return true
			})
		},
	},
	{
		Name:     "told by Do",
		Sentence: "Do returns ErrLost when the lease was lost before fn returned, even if fn answered nil.",
		flavours: exclusive,
		check: func(c *run) {
			c.inTime(func() bool {
				a := c.node(pawl.Options{TTL: c.short(), NoKeepalive: true})
				ran := false
				err := c.lock(a, c.name).Do(c.ctx, func(ctx context.Context) error {
					ran = true
					c.mustEnd("the context of a lease that nobody renews", ctx.Done(), c.short())
					return nil
				})
				if !ran && slow(err) {
					return false
				}
				c.mustBe("Do", err, pawl.ErrLost)
				return true
			})
		},
	},
	{
		Name:     "never while renewed",
		Sentence: "Leases outlive their TTL while their client lives, however many there are.",
		flavours: []flavour{mutex},
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
				var ls []*pawl.Lease
				defer func() {
					for _, l := range ls {
						l.Unlock()
					}
				}()
				for k := range 40 {
					l, err := c.lock(a, fmt.Sprint(c.name, k)).Lock(c.ctx)
					if slow(err) {
						return false
					}
					if err != nil {
						c.failf("Lock: %v", err)
					}
					ls = append(ls, l)
				}
				time.Sleep(3 * c.short() / 2)
				for k, l := range ls {
					stolen, err := c.lock(b, fmt.Sprint(c.name, k)).TryLock(c.ctx)
					if err == nil {
						stolen.Unlock()
					}
					if l.Err() != nil {
						return false
					}
					if err == nil {
						c.failf("another got in beside a lease that is held")
					}
				}
				return true
			})
		},
	},
}

var closeCases = []Case{
	{
		Name:     "waits for Unlock",
		Sentence: "Close ends waits and the contexts of leases, and frees no lock before its holder has unlocked it.",
		flavours: exclusive,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			other := c.name + "-other"
			l := c.take(c.lock(a, c.name), 0)
			ctx := l.Context(c.ctx)
			blocker := c.take(c.lock(b, other), 0)
			waited := make(chan error, 1)
			go func() {
				_, err := c.lock(a, other).Lock(c.ctx)
				waited <- err
			}()
			c.within(0, "the waiter is in line", func() bool { return a.waiting() > 0 })
			closed := make(chan error, 1)
			go func() { closed <- a.Close() }()
			c.mustEnd("the context of a lease of a closed client", ctx.Done(), 0)
			c.mustBe("its cause", context.Cause(ctx), pawl.ErrLost, pawl.ErrClosed)
			c.within(0, "the wait ends", func() bool { return len(waited) > 0 })
			c.mustBe("a wait of a closed client", <-waited, pawl.ErrClosed)
			c.pause()
			if len(closed) > 0 {
				c.failf("Close did not wait for the Unlock: %v", <-closed)
			}
			c.mustBeHeld(c.lock(b, c.name))
			c.mustBe("Unlock", l.Unlock(), pawl.ErrLost)
			c.within(0, "Close returns", func() bool { return len(closed) > 0 })
			if err := <-closed; err != nil {
				c.failf("Close: %v", err)
			}
			c.free(c.take(c.lock(b, c.name), 0))
			c.free(blocker)
			_, err := c.lock(a, c.name).Lock(c.ctx)
			c.mustBe("Lock of a closed client", err, pawl.ErrClosed)
		},
	},
	{
		Name:     "names what is left",
		Sentence: "Close names the leases that nobody unlocked, and they run out by themselves.",
		flavours: exclusive,
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
				l := c.take(c.lock(a, c.name), 0)
				err := a.Close()
				c.mustBe("the lease", l.Err(), pawl.ErrLost)
				if why, ok := errors.AsType[*pawl.LostError](l.Err()); !ok || why.Reason != pawl.Closing {
					return false // lost before
				}
				if err == nil || !strings.Contains(err.Error(), c.name) {
					c.failf("Close with a lease that was not unlocked: got %v, want its name", err)
				}
				c.free(c.take(c.lock(b, c.name), 2*c.short()))
				c.mustBe("a late Unlock", l.Unlock(), pawl.ErrLost)
				return true
			})
		},
	},
}
