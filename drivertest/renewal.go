package drivertest

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var renewalRules = []Rule{
	{
		Name:     "keeps a hold",
		Sentence: "A hold that is renewed in time outlives its TTL, again and again.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1, lasting(c.short())).mustGet()
				defer c.giveBack(a)
				if !a.renewFor(5 * a.grant.TTL / 2) {
					return false
				}
				err := c.rival(d2).try(1)
				if !a.alive() {
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
		Name:     "counts from now",
		Sentence: "A renewal extends a hold by the Hold's TTL, counted from the renewal, also when that is longer than before.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1, lasting(c.short())).mustGet()
				defer c.giveBack(a)
				h := a.r.Hold
				h.TTL = c.long()
				err := renewOne(c, d1, h)
				if !a.alive() {
					return false
				}
				if err != nil {
					c.failf("Renew: %s", say(err))
				}
				c.sleepOver(a)
				if c.rival(d2).try(1) == nil {
					c.failf("another got the name after the first TTL, although the hold was renewed for longer")
				}
				return true
			})
		},
	},
	{
		Name:     "never shortens",
		Sentence: "A renewal with a shorter TTL leaves what is left of the hold as it is.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			h := a.r.Hold
			h.TTL = c.short()
			if err := renewOne(c, d1, h); err != nil {
				c.failf("Renew: %s", say(err))
			}
			time.Sleep(c.short() + c.lateness())
			if c.rival(d2).try(1) == nil {
				c.failf("a renewal for %v ended a hold of %v", h.TTL, a.grant.TTL)
			}
			a.mustHold()
		},
	},
	{
		Name:     "does not revive what was released",
		Sentence: "Renew of a hold that was released is ErrNotHeld, and the name stays free.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			h := a.r.Hold
			a.release()
			c.mustBeOver(d1, h)
			b := c.rival(d2).mustGet()
			c.mustBeOver(d1, h)
			b.mustHold()
		},
	},
	{
		Name:     "does not revive what expired",
		Sentence: "Renew of a hold whose TTL is over is ErrNotHeld, whether somebody has taken the name since or not.",
		each:     everyKind,
		needs:    attaches,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, lasting(c.short())).mustGet()
			c.sleepOver(a)
			c.mustBeOver(d1, a.r.Hold)
			b := c.rival(d2).mustGet()
			c.mustBeOver(d1, a.r.Hold)
			b.mustHold()
			a.granted = false
		},
	},
	{
		Name:     "only its own hold",
		Sentence: "Renew of an ID that nobody has is ErrNotHeld and prolongs nobody's hold.",
		each:     single,
		needs:    attaches,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, lasting(c.short())).mustGet()
			h := a.r.Hold
			h.ID, h.Token, h.TTL = c.newID(), 0, c.long()
			c.mustBeOver(d1, h)
			c.mustBeOver(d2, h)
			b := c.ask(d2, waits).mustGetWithin(a.grant.TTL + c.soon())
			a.granted = false
			b.mustHold()
		},
	},
	{
		Name:     "silence is not an end",
		Sentence: "A Renew that got no answer is neither nil nor ErrNotHeld, and the next one may succeed.",
		each:     everyKind,
		needs:    stalls,
		check: func(c *run) {
			d := c.driver()
			a := c.ask(d).mustGet()
			resume := c.h.Stall(c.tb)
			ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
			errs := d.Renew(ctx, []driver.Hold{a.r.Hold})
			cancel()
			resume()
			if len(errs) != 1 || errs[0] == nil || isNotHeld(errs[0]) {
				c.failf("Renew by a store that does not answer says %v", errs)
			}
			for end := time.Now().Add(c.soon()); a.renew() != nil; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					c.failf("Renew still fails %v after the store came back", c.soon())
				}
			}
			a.release()
		},
	},
	{
		Name:     "answers each hold of a batch",
		Sentence: "Renew answers one error for each hold in order, whatever kinds and ends are mixed, and leaves the slice as it is.",
		check: func(c *run) {
			d := c.driver()
			var hs []driver.Hold
			var live []bool
			for _, k := range c.h.Kinds {
				a := c.ask(d, as(k), named(c.freshName())).mustGet()
				over := c.ask(d, as(k), named(c.freshName())).mustGet()
				never := over.r.Hold
				never.Name, never.ID, never.Token = a.r.Name, c.newID(), 0
				hs = append(hs, over.r.Hold, a.r.Hold, never)
				live = append(live, false, true, false)
				over.release()
			}
			given := slices.Clone(hs)
			errs := d.Renew(c.ctx, given)
			if len(errs) != len(hs) {
				c.failf("Renew of %d holds answered %d errors", len(hs), len(errs))
			}
			if !slices.Equal(given, hs) {
				c.failf("Renew changed the slice that it was given")
			}
			for i, err := range errs {
				switch {
				case live[i] && err != nil:
					c.failf("Renew of a live hold (%s, number %d of the batch): %s", hs[i].Kind, i, say(err))
				case !live[i] && !isNotHeld(err):
					c.failf("Renew of an ended hold (%s, number %d of the batch) should be ErrNotHeld, got: %s", hs[i].Kind, i, say(err))
				}
			}
			if errs := d.Renew(c.ctx, nil); len(errs) != 0 {
				c.failf("Renew of nothing answered %v", errs)
			}
		},
	},
}
