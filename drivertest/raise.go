package drivertest

import (
	"github.com/pawl-lock/pawl/driver"
)

var raiseRules = []Rule{
	{
		Name:     "later tokens are larger",
		Sentence: "After Raise every later grant of the name has a larger token than the one given.",
		each:     alone,
		needs:    raises,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			high := a.grant.Token + wide
			c.mustRaise(d1, a, high)
			a.mustHold()
			a.release()
			b := c.ask(d2).mustGet()
			c.mustRise(high, b)
			b.release()
			c.mustRise(b.grant.Token, c.ask(d1).mustGet())
		},
	},
	{
		Name:     "never lower",
		Sentence: "Raise to a token that is not larger than the present one changes nothing.",
		each:     alone,
		needs:    raises,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			high := a.grant.Token + wide
			for _, token := range []int64{high, high - 1, a.grant.Token, 1} {
				c.mustRaise(d1, a, token)
			}
			a.release()
			c.mustRise(high, c.ask(d2).mustGet())
		},
	},
	{
		Name:     "only by the holder",
		Sentence: "Raise for a hold that is over, or never was, is ErrNotHeld and changes nothing.",
		each:     alone,
		needs:    raises,
		check: func(c *run) {
			d1, d2 := c.pair()
			over := c.ask(d1).mustGet()
			over.release()
			a := c.ask(d1).mustGet()
			never := a.r.Hold
			never.ID = c.newID()
			high := a.grant.Token + 1000*wide
			for _, h := range []driver.Hold{over.r.Hold, never} {
				if err := d1.(driver.Raiser).Raise(c.ctx, h, high); !isNotHeld(err) {
					c.failf("Raise for a hold that is not there should be ErrNotHeld, got: %s", say(err))
				}
			}
			a.release()
			if b := c.ask(d2).mustGet(); b.grant.Token >= high {
				c.failf("the token is %d after a Raise to %d by a stranger", b.grant.Token, high)
			}
		},
	},
}

func (c *run) mustRaise(d driver.Driver, a *asker, token int64) {
	c.tb.Helper()
	if err := d.(driver.Raiser).Raise(c.ctx, a.r.Hold, token); err != nil {
		c.failf("Raise by the holder: %s", say(err))
	}
}
