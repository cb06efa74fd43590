package drivertest

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var closeRules = []Rule{
	{
		Name:     "twice",
		Sentence: "Close may be called twice.",
		check: func(c *run) {
			d := c.driver()
			c.ask(d).mustGet().release()
			for range 2 {
				if err := d.Close(); err != nil {
					c.failf("Close: %s", say(err))
				}
			}
		},
	},
	{
		Name:     "later calls fail for certain",
		Sentence: "After Close, Enter or Try answers an error that matches ErrClosed and ErrNotDone, and every other call an error that matches ErrClosed.",
		each:     everyKind,
		check: func(c *run) {
			d := c.driver()
			a := c.ask(d).mustGet()
			early := c.ask(d, named(c.freshName()))
			d.Close()
			a.granted, a.left = false, true
			late := c.newAsker(d, named(c.freshName()))
			p, err := d.Enter(c.ctx, late.r)
			if err == nil {
				_, err = p.Try(c.ctx, 1)
			}
			c.mustBeClosed("Enter or Try", err, driver.ErrNotDone)
			_, err = early.place.Try(c.ctx, 1)
			c.mustBeClosed("Try", err, driver.ErrNotDone)
			c.mustBeClosed("Renew", renewOne(c, d, a.r.Hold), driver.ErrClosed)
			c.mustBeClosed("Release", d.Release(c.ctx, a.r.Hold, driver.End{}), driver.ErrClosed)
			if in, ok := d.(driver.Inspector); ok {
				_, err := in.Inspect(c.ctx, c.name)
				c.mustBeClosed("Inspect", err, driver.ErrClosed)
			}
		},
	},
	{
		Name:     "releases no hold",
		Sentence: "Close releases no hold: what nobody released runs out by its TTL.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1, lasting(5*c.short())).mustGet()
				a.vanish()
				err := c.rival(d2).try(1)
				d1 = c.driver()
				if !a.alive() {
					return false
				}
				if !errors.Is(err, driver.ErrHeld) {
					c.failf("a request for the name of a closed driver's hold should be refused, got: %s", say(err))
				}
				return true
			})
		},
	},
	{
		Name:     "only its own driver",
		Sentence: "Close of one driver does not disturb another.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			d3 := c.driver()
			a := c.ask(d2).mustGet()
			b := c.rival(d3, waits)
			b.mustNotGet()
			d1.Close()
			a.mustHold()
			b.forget()
			a.release()
			if c.h.powers()&notifies != 0 {
				b.mustHear(driver.Changed)
			}
			b.mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "calls under way end",
		Sentence: "Calls that are under way when the driver is closed end with an error.",
		needs:    stalls,
		check: func(c *run) {
			d := c.driver()
			a := c.ask(d)
			resume := c.h.Stall(c.tb)
			defer resume()
			ended := make(chan error, 1)
			go func() {
				_, err := a.place.Try(c.ctx, 1)
				ended <- err
			}()
			c.pause()
			d.Close()
			t := time.NewTimer(c.soon() + c.turn())
			defer t.Stop()
			select {
			case err := <-ended:
				if err == nil {
					c.failf("Try was granted by a store that does not answer")
				}
			case <-t.C:
				c.failf("Try is still under way %v after Close", c.soon()+c.turn())
			}
			a.left = true
		},
	},
}

func (c *run) mustBeClosed(what string, err, also error) {
	c.tb.Helper()
	if !errors.Is(err, driver.ErrClosed) || !errors.Is(err, also) {
		c.failf("%s after Close should match %q and %q, got: %s", what, driver.ErrClosed, also, say(err))
	}
}
