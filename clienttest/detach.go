package clienttest

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var detachCases = []Case{
	{
		Name:     "to another client",
		Sentence: "A detached lease goes on in the client that attaches it, with the same token, and nobody gets in between.",
		flavours: exclusive,
		needs:    attaches,
		check: func(c *run) {
			c.inTime(func() bool {
				o := pawl.Options{TTL: c.short()}
				a, b, other := c.node(o), c.node(o), c.node(pawl.Options{})
				l := c.take(c.lock(a, c.name), 0)
				token := l.Token()
				ticket, err := l.Detach()
				if errors.Is(err, pawl.ErrLost) {
					return false
				}
				if err != nil {
					c.failf("Detach: %v", err)
				}
				c.mustBe("a detached lease", l.Err(), pawl.ErrNotHeld)
				c.mustBe("Unlock of it", l.Unlock(), pawl.ErrNotHeld)
				_, err = c.lock(other, c.name).TryLock(c.ctx)
				l, aerr := b.Attach(c.ctx, ticket)
				if aerr != nil {
					if errors.Is(aerr, pawl.ErrNotHeld) {
						return false // the TTL was over
					}
					c.failf("Attach: %v", aerr)
				}
				if !errors.Is(err, pawl.ErrHeld) {
					c.failf("while the ticket was under way, another got %v, want ErrHeld", err)
				}
				if l.Token() != token {
					c.failf("the token %d became %d", token, l.Token())
				}
				time.Sleep(3 * c.short() / 2) // renewed by the new holder alone
				_, err = c.lock(other, c.name).TryLock(c.ctx)
				if l.Err() != nil {
					l.Unlock()
					return false
				}
				c.mustBe("TryLock after the TTL", err, pawl.ErrHeld)
				if err := l.Unlock(); slow(err) {
					return false
				} else if err != nil {
					c.failf("Unlock: %v", err)
				}
				next := c.take(c.lock(other, c.name), 0)
				if t := c.ordered(next.Token()); t <= token && t != 0 {
					c.failf("the token %d is followed by %d", token, t)
				}
				c.free(next)
				_, err = b.Attach(c.ctx, ticket)
				c.mustBe("Attach of what is over", err, pawl.ErrNotHeld)
				return true
			})
		},
	},
	{
		Name:     "outlives its client",
		Sentence: "A detached lease is still held after its client was closed, and a later one attaches it.",
		with:     []driver.Kind{driver.Exclusive},
		needs:    attaches,
		check: func(c *run) {
			a := c.node(pawl.Options{})
			ticket, err := c.take(a.Mutex(c.name), 0).Detach()
			if err != nil {
				c.failf("Detach: %v", err)
			}
			if err := a.Close(); err != nil {
				c.failf("Close: %v", err)
			}
			b := c.node(pawl.Options{})
			c.mustBeHeld(b.Mutex(c.name))
			l, err := c.node(pawl.Options{}).Attach(c.ctx, ticket)
			if err != nil {
				c.failf("Attach: %v", err)
			}
			c.mustBeHeld(b.Mutex(c.name))
			c.free(l)
			c.free(c.take(b.Mutex(c.name), 0))
		},
	},
}
