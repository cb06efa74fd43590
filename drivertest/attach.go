package drivertest

import (
	"github.com/pawl-lock/pawl/driver"
)

var attachRules = []Rule{
	{
		Name:     "confirms a hold",
		Sentence: "Attach answers the hold's own token, renews it, and its new process can renew and release it.",
		each:     everyKind,
		needs:    attaches,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.mustAttach(d2, a)
			if b.grant.Token != a.grant.Token {
				c.failf("attached is token %d, granted was %d", b.grant.Token, a.grant.Token)
			}
			if b.grant.Sent == 0 || b.grant.Sent > b.at || b.grant.TTL <= 0 || b.grant.Span < 1 {
				c.failf("Attach answers %+v at %d", b.grant, b.at)
			}
			c.rival(d1).mustNotGet()
			b.mustHold()
			b.release()
			c.rival(d1).mustGet()
			c.mustBeOver(d1, a.r.Hold)
		},
	},
	{
		Name:     "a hold outlives its process",
		Sentence: "A hold that another process attached and renews lives on when the first process has ended.",
		each:     single,
		needs:    attaches,
		slow:     true,
		check: func(c *run) {
			d := c.driver()
			c.inTime(func() bool {
				a := c.ask(c.driver(), lasting(c.short())).mustGet()
				r := c.newAsker(d, lasting(c.short())).r
				r.Hold = a.r.Hold
				g, err := d.(driver.Attacher).Attach(c.ctx, r)
				if !a.alive() {
					return false
				}
				if err != nil {
					c.failf("Attach: %s", say(err))
				}
				a.vanish()
				b := &asker{c: c, d: d, r: r}
				b.took(g)
				defer c.giveBack(b)
				if !b.renewFor(2 * g.TTL) {
					return false
				}
				err = c.rival(d).try(1)
				if !b.alive() {
					return false
				}
				if err == nil {
					c.failf("another got the name that is renewed")
				}
				return true
			})
		},
	},
	{
		Name:     "renews the hold",
		Sentence: "An attached hold lives for the request's TTL from then on.",
		each:     single,
		needs:    attaches,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1, lasting(c.short())).mustGet()
				r := c.newAsker(d2).r
				ttl := r.TTL
				r.Hold = a.r.Hold
				r.TTL = ttl
				_, err := d2.(driver.Attacher).Attach(c.ctx, r)
				if !a.alive() {
					return false
				}
				if err != nil {
					c.failf("Attach: %s", say(err))
				}
				c.sleepOver(a)
				if c.rival(d2).try(1) == nil {
					c.failf("the hold ended with its first TTL")
				}
				return true
			})
		},
	},
	{
		Name:     "what has ended cannot be attached",
		Sentence: "Attach of a hold that is over, or never was, is ErrNotHeld and changes nothing.",
		each:     everyKind,
		needs:    attaches,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			for _, change := range []func(*driver.Request){
				func(r *driver.Request) { r.ID, r.Token = c.newID(), 0 },
				func(r *driver.Request) { r.Name = c.freshName() },
			} {
				r := c.newAsker(d2).r
				r.Hold = a.r.Hold
				change(&r)
				if _, err := d2.(driver.Attacher).Attach(c.ctx, r); !isNotHeld(err) {
					c.failf("Attach of a hold that never was should be ErrNotHeld, got: %s", say(err))
				}
			}
			a.mustHold()
			r := a.r
			a.release()
			if _, err := d2.(driver.Attacher).Attach(c.ctx, r); !isNotHeld(err) {
				c.failf("Attach of a released hold should be ErrNotHeld, got: %s", say(err))
			}
			c.rival(d1).mustGet()
		},
	},
	{
		Name:     "Lost is told to the new process",
		Sentence: "When an attached hold is ended by another process, Lost is told to the Notify of Attach.",
		each:     single,
		needs:    attaches | tellsLost | inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			d3 := c.driver()
			b := c.mustAttach(d2, c.ask(d1).mustGet())
			c.steal(d3, b)
			b.mustHear(driver.Lost)
		},
	},
}

// mustAttach takes a's hold over through d.
func (c *run) mustAttach(d driver.Driver, a *asker) *asker {
	c.tb.Helper()
	b := c.request(d)
	b.r.Hold = a.r.Hold
	g, err := d.(driver.Attacher).Attach(c.ctx, b.r)
	if err != nil {
		c.failf("Attach: %s", say(err))
	}
	a.granted, a.left = false, true
	b.took(g)
	return b
}
