package drivertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var releaseRules = []Rule{
	{
		Name:     "frees at once",
		Sentence: "When Release has returned, the name can be taken at once.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			for range 5 {
				c.ask(d1).mustGet().release()
				c.rival(d2).mustGet().release()
			}
		},
	},
	{
		Name:     "twice is harmless",
		Sentence: "Release of a hold that has ended is ErrNotHeld and touches no later hold.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			h := a.r.Hold
			a.release()
			c.mustNotRelease(d1, h)
			b := c.rival(d2).mustGet()
			c.mustNotRelease(d1, h)
			h.Token = 0
			c.mustNotRelease(d1, h)
			b.mustHold()
			c.ask(d1, as(b.r.Kind)).mustNotGet()
		},
	},
	{
		Name:     "needs the ID",
		Sentence: "Release with an ID that nobody has is ErrNotHeld and changes nothing.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			h := a.r.Hold
			h.ID = c.newID()
			c.mustNotRelease(d1, h)
			h.Token = 0
			c.mustNotRelease(d2, h)
			h.Name = c.freshName()
			c.mustNotRelease(d1, h)
			c.rival(d2).mustNotGet()
			a.mustHold()
		},
	},
	{
		Name:     "needs the token",
		Sentence: "Release with a token that is neither the hold's nor 0 is ErrNotHeld and changes nothing.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			if a.grant.Token == 0 {
				return // a store without tokens
			}
			for _, wrong := range []int64{a.grant.Token - 1, a.grant.Token + 1} {
				h := a.r.Hold
				h.Token = wrong
				c.mustNotRelease(d1, h)
			}
			c.rival(d2).mustNotGet()
			a.mustHold()
		},
	},
	{
		Name:     "by ID alone",
		Sentence: "Release with token 0 ends the hold that has the ID.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			a.r.Hold.Token = 0
			a.release()
			c.rival(d2).mustGet()
		},
	},
	{
		Name:     "from another process",
		Sentence: "A Hold is plain data: whoever has it can release it, through any driver of the store.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			if err := d2.Release(c.ctx, a.r.Hold, driver.End{Last: a.lastReserved()}); err != nil {
				c.failf("Release through another driver: %s", say(err))
			}
			a.granted, a.left = false, true
			c.mustBeOver(d1, a.r.Hold)
			c.rival(d1).mustGet()
		},
	},
	{
		Name:     "of an expired hold is harmless",
		Sentence: "Release of a hold whose TTL is over is ErrNotHeld and touches no later hold.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			a := c.die()
			d := c.driver()
			b := c.rival(d, waits).mustGetWithin(a.grant.TTL + c.soon())
			c.mustNotRelease(d, a.r.Hold)
			h := a.r.Hold
			h.Token = 0
			c.mustNotRelease(d, h)
			b.mustHold()
			c.ask(d).mustNotGet()
		},
	},
	{
		Name:     "may keep the name taken",
		Sentence: "After Release with End.Keep the name stays taken that much longer, nobody can renew or release it, and then it is free.",
		each:     slices.DeleteFunc(slices.Clone(alone), func(k driver.Kind) bool { return k == driver.Once }),
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1).mustGet()
				h, sent := a.r.Hold, driver.Now()
				keep := 2 * c.short()
				a.releaseWith(driver.End{Keep: keep})
				errs := []error{c.ask(d2).try(1), renewOne(c, d1, h), d2.Release(c.ctx, h, driver.End{}), c.ask(d1).try(1)}
				if driver.Now().Sub(sent) >= keep {
					return false
				}
				for i, want := range []error{driver.ErrHeld, driver.ErrNotHeld, driver.ErrNotHeld, driver.ErrHeld} {
					if !errors.Is(errs[i], want) {
						c.failf("while the name is kept, step %d should answer %q, got: %s", i, want, say(errs[i]))
					}
				}
				b := c.ask(d2, waits).mustGetWithin(keep + c.soon())
				if early := sent.Add(keep).Sub(b.at); early > c.tick() {
					c.failf("the name was free %v too early", early)
				}
				return true
			})
		},
	},
	{
		Name:     "may be repeated",
		Sentence: "A Release that got no answer is an error but ErrNotHeld, and repeating it frees the name or says ErrNotHeld.",
		each:     everyKind,
		needs:    stalls,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			resume := c.h.Stall(c.tb)
			ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
			err := d1.Release(ctx, a.r.Hold, driver.End{})
			cancel()
			resume()
			if err == nil || isNotHeld(err) {
				c.failf("Release by a store that does not answer says: %s", say(err))
			}
			for end := time.Now().Add(c.soon()); ; time.Sleep(50 * time.Millisecond) {
				err := d1.Release(c.ctx, a.r.Hold, driver.End{})
				if err == nil || isNotHeld(err) {
					break
				}
				if time.Now().After(end) {
					c.failf("Release still fails %v after the store came back: %s", c.soon(), say(err))
				}
			}
			a.granted, a.left = false, true
			b := c.rival(d2).mustGet()
			c.pause()
			b.mustHold()
		},
	},
	{
		Name:     "is told to nobody who released",
		Sentence: "Notify is not called after Release has returned, and a holder's own Release is no loss.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, waits).mustGet()
			b := c.rival(d2, waits)
			b.mustNotGet()
			a.mustHold()
			a.release()
			a.stopEars()
			b.mustGetWithin(c.soon()).release()
			c.rival(d2).mustGet().release()
			c.pause()
			if n := a.lateSignals(); n > 0 {
				c.failf("Notify was called %d times after Release", n)
			}
			if n := a.count(driver.Lost); n > 0 {
				c.failf("the holder was told Lost %d times", n)
			}
		},
	},
}

func isNotHeld(err error) bool { return errors.Is(err, driver.ErrNotHeld) }

// mustNotRelease wants ErrNotHeld.
func (c *run) mustNotRelease(d driver.Driver, h driver.Hold) {
	c.tb.Helper()
	if err := d.Release(c.ctx, h, driver.End{}); !isNotHeld(err) {
		c.failf("Release of a hold that is not there should be ErrNotHeld, got: %s", say(err))
	}
}

// mustBeOver wants ErrNotHeld from Renew.
func (c *run) mustBeOver(d driver.Driver, h driver.Hold) {
	c.tb.Helper()
	if err := renewOne(c, d, h); !isNotHeld(err) {
		c.failf("Renew of a hold that has ended should be ErrNotHeld, got: %s", say(err))
	}
}
