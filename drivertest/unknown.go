package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var unknownRules = []Rule{
	{
		Name:     "a request sent twice is one hold",
		Sentence: "A request that arrives again before the release is the same hold with the same token, and one release ends it.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			again := c.newAsker(d1)
			again.r = a.r
			p, err := d1.Enter(c.ctx, again.r)
			if err != nil {
				c.failf("Enter again: %s", say(err))
			}
			g, err := p.Try(c.ctx, 1)
			if err != nil {
				c.failf("the same request again should be granted, got: %s", say(err))
			}
			if g.Token != a.grant.Token {
				c.failf("the same request got token %d, then %d", a.grant.Token, g.Token)
			}
			if now := driver.Now(); g.Sent == 0 || g.Sent > now {
				c.failf("Grant.Sent is %d, but the answer came at %d", g.Sent, now)
			}
			if i, ok := d2.(driver.Inspector); ok {
				if n := len(c.inspect(i, c.name).Holds); n != 1 {
					c.failf("%d holds are shown for one request", n)
				}
			}
			a.release()
			c.rival(d2).mustGet()
			c.mustNotRelease(d1, a.r.Hold)
		},
	},
	{
		Name:     "leave undoes an unheard grant",
		Sentence: "Leave ends the hold that a Try won whose answer nobody heard.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			for _, wait := range []bool{false, true} {
				a := c.ask(d1, func(r *driver.Request) { r.Wait = wait })
				if _, err := a.place.Try(c.ctx, 3); err != nil {
					c.failf("Try for a free name: %s", say(err))
				}
				a.leave()
				c.rival(d2).mustGet().release()
				c.mustBeOver(d1, a.r.Hold)
			}
		},
	},
	{
		Name:     "release undoes exactly that hold or nothing",
		Sentence: "Release by ID of an acquisition that won nothing is ErrNotHeld and touches nobody.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.rival(d2, waits)
			b.mustNotGet()
			c.mustNotRelease(d2, b.r.Hold)
			a.mustHold()
			c.rival(d2).mustNotGet()
			b.leave()
		},
	},
	{
		Name:     "nothing is granted after leaving",
		Sentence: "Once Leave has returned nil, nothing of the request can arrive any more: Try of that place is never granted.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, waits)
			a.leave()
			b := c.rival(d2).mustGet()
			late := c.ask(d1, waits)
			late.mustNotGet()
			late.leave()
			b.release()
			for _, p := range []driver.Place{a.place, late.place} {
				if _, err := p.Try(c.ctx, 1); err == nil {
					c.failf("Try was granted after Leave")
				}
			}
			c.rival(d2).mustGet()
		},
	},
	{
		Name:     "leave may be repeated",
		Sentence: "Leave of a place that has left, or never tried, is harmless.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, waits)
			a.leave()
			a.leave()
			b := c.rival(d2).mustGet()
			a = c.ask(d1, waits)
			a.mustNotGet()
			a.leave()
			a.leave()
			b.mustHold()
			b.release()
			c.rival(d2).mustGet()
		},
	},
	{
		Name:     "a cancelled request leaves nothing",
		Sentence: "Whatever came of a Try that ended with ctx, after Leave nothing of it is in the store and nothing arrives later.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			for i := range 20 {
				ctx, cancel := context.WithTimeout(c.ctx, rand.N(2*time.Millisecond))
				if i%4 == 0 {
					cancel()
				}
				a := c.ask(d1, waits)
				a.place.Try(ctx, 1)
				cancel()
				a.leave()
				c.rival(d2).mustGet().release()
			}
			c.pause()
			c.rival(d2).mustGet()
		},
	},
	{
		Name:     "an unanswered request is undone",
		Sentence: "A request that a silent store took is not called refused or not done, and Leave undoes it once the store answers again.",
		each:     everyKind,
		needs:    stalls,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.ask(d1, named(c.freshName())).mustGet().release() // so that there is a connection
			a := c.ask(d1)
			resume := c.h.Stall(c.tb)
			ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
			_, err := a.place.Try(ctx, 1)
			cancel()
			resume()
			if err == nil {
				c.failf("Try was granted by a store that does not answer")
			}
			for _, certain := range []error{driver.ErrHeld, driver.ErrDone, driver.ErrMismatch, driver.ErrInvalid, errors.ErrUnsupported} {
				if errors.Is(err, certain) {
					c.failf("the request may have arrived, but Try says %q", certain)
				}
			}
			if errors.Is(err, driver.ErrNotDone) { // it was never sent, or so it says
				c.pause()
				c.rival(d2).mustGet().release()
			}
			for end := time.Now().Add(c.soon()); a.place.Leave(c.ctx) != nil; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					c.failf("Leave still fails %v after the store came back", c.soon())
				}
			}
			a.left = true
			b := c.rival(d2).mustGet()
			c.pause()
			b.mustHold()
			b.release()
			c.rival(d2).mustGet()
		},
	},
}
