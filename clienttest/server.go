package clienttest

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl"
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
