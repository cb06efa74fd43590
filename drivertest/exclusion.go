package drivertest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var exclusionRules = []Rule{
	{
		Name:     "one holder at a time",
		Sentence: "While a hold lives, no other request for its name is granted, by its own process or by another.",
		each:     single,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			c.ask(d1).mustNotGet()
			c.ask(d2).mustNotGet()
			c.ask(d2, waits).mustNotGet()
			a.mustHold()
		},
	},
	{
		Name:     "grabbers never overlap",
		Sentence: "However many contenders of several processes try at once, at most one of them holds the name.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			const goroutines, rounds = 8, 5
			drivers := []driver.Driver{c.driver(), c.driver(), c.driver()}
			var inside atomic.Int32
			var wg sync.WaitGroup
			for i := range goroutines {
				wg.Go(func() {
					for range rounds {
						if !c.grab(drivers[i%len(drivers)], &inside, 1) {
							return
						}
					}
				})
			}
			wg.Wait()
		},
	},
	{
		Name:     "fair excludes exclusive",
		Sentence: "Fair and Exclusive are one family: a hold of the one excludes the other.",
		with:     []driver.Kind{driver.Exclusive, driver.Fair},
		check: func(c *run) {
			d1, d2 := c.pair()
			for _, k := range [][2]driver.Kind{{driver.Fair, driver.Exclusive}, {driver.Exclusive, driver.Fair}} {
				a := c.ask(d1, as(k[0])).mustGet()
				c.ask(d2, as(k[1])).mustNotGet()
				a.release()
				c.ask(d2, as(k[1])).mustGet().release()
			}
		},
	},
	{
		Name:     "a refusal tells the truth",
		Sentence: "What a HeldError says of the holder, its remaining time and the line is right, or left out.",
		each:     single,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			held := c.ask(d2).mustNotGet()
			if id := held.By.ID; id != "" && id != a.r.ID {
				c.failf("HeldError.By.ID is %q, but %q holds the name", id, a.r.ID)
			}
			if held.Remaining < 0 || held.Remaining > a.grant.TTL+time.Second {
				c.failf("HeldError.Remaining is %v for a hold of %v", held.Remaining, a.grant.TTL)
			}
			if held.Ahead > 0 {
				c.failf("HeldError.Ahead is %d, but nobody waits", held.Ahead)
			}
			if held.Again < 0 {
				c.failf("HeldError.Again is %v", held.Again)
			}
		},
	},
	{
		Name:     "a grant tells the truth",
		Sentence: "A Grant has been sent before it is answered, has a TTL, and at least 1 and at most as many tokens as were asked for.",
		each:     everyKind,
		check: func(c *run) {
			d := c.driver()
			for _, span := range []int{1, 10} {
				a := c.ask(d).mustGetSpan(span)
				g := a.grant
				if g.Sent == 0 || g.Sent > a.at {
					c.failf("Grant.Sent is %d, but the answer came at %d", g.Sent, a.at)
				}
				if g.TTL <= 0 {
					c.failf("Grant.TTL is %v", g.TTL)
				}
				if g.Span < 1 || g.Span > span {
					c.failf("Grant.Span is %d, asked for were %d", g.Span, span)
				}
				if g.Token < 0 {
					c.failf("Grant.Token is %d", g.Token)
				}
				a.release()
			}
		},
	},
	{
		Name:     "trust ends first",
		Sentence: "No request is granted before Sent + TTL of the hold before it, unless that hold was released.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			// Half a second more, to find out a store that cuts a TTL to whole seconds.
			a := c.ask(c.driver(), lasting(c.short()+500*time.Millisecond)).mustGet()
			a.vanish()
			b := c.ask(c.driver(), waits).mustGetWithin(a.grant.TTL + c.soon())
			if early := a.trust().Sub(b.at); early > c.tick() {
				c.failf("the next holder got the name %v before the trust in the dead one ended", early)
			}
		},
	},
	{
		Name:     "a late answer is no longer trust",
		Sentence: "Trust counts from before the request was sent, not from its answer, however late that comes.",
		each:     everyKind,
		needs:    stalls,
		check: func(c *run) {
			d := c.driver()
			c.ask(d, named(c.freshName())).mustGet().release() // so that there is a connection
			silence := 200 * time.Millisecond
			for range 5 { // a busy machine may send late too
				a := c.ask(d)
				resume := c.h.Stall(c.tb)
				back := make(chan driver.Instant, 1)
				time.AfterFunc(silence, func() {
					at := driver.Now()
					resume()
					back <- at
				})
				err := a.try(1)
				if at := <-back; err != nil || a.grant.Sent < at {
					return // without an answer there is no trust either
				}
				a.release()
				silence *= 2
			}
			c.failf("Grant.Sent is after the silence in which the request was sent")
		},
	},
}

// grab takes the name, waiting like a client, checks that no more than limit are inside, and gives it back.
func (c *run) grab(d driver.Driver, inside *atomic.Int32, limit int32, changes ...func(*driver.Request)) bool {
	a := c.newAsker(d, append(changes, waits)...)
	var err error
	if a.place, err = d.Enter(c.ctx, a.r); err != nil {
		c.errorf("Enter: %s", say(err))
		return false
	}
	if err := a.getWithin(c.h.Slack + 30*time.Second); err != nil {
		c.errorf("a grabber got no turn: %s", say(err))
		a.place.Leave(c.ctx)
		return false
	}
	n := int32(a.r.Permits)
	if in := inside.Add(n); in > limit {
		c.errorf("%d inside at once, at most %d may be", in, limit)
	}
	time.Sleep(time.Millisecond)
	inside.Add(-n)
	if err := d.Release(c.ctx, a.r.Hold, driver.End{}); err != nil {
		c.errorf("Release by the holder: %s", say(err))
		return false
	}
	return true
}
