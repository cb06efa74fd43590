package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var cancellationRules = []Rule{
	{
		Name:     "an ended context ends the call",
		Sentence: "A call whose ctx has ended returns at once and leaves nothing behind.",
		each:     single,
		check: func(c *run) {
			d1, d2 := c.pair()
			ended, cancel := context.WithCancel(c.ctx)
			cancel()
			a := c.ask(d1).mustGet()
			for _, wait := range []bool{false, true} {
				b := c.request(d2, func(r *driver.Request) { r.Wait = wait })
				c.promptly("Enter and Try", func() {
					if p, err := d2.Enter(ended, b.r); err == nil {
						b.place = p
						if _, err := p.Try(ended, 1); err == nil {
							c.errorf("Try was granted although the name is taken")
						}
					}
				})
				if b.place != nil {
					b.leave()
				}
			}
			c.promptly("Renew, Release and Leave", func() {
				d1.Renew(ended, []driver.Hold{a.r.Hold})
				b := c.ask(d2, waits)
				b.mustNotGet()
				b.place.Leave(ended)
				b.leave()
			})
			a.release()
			c.ask(d2).mustGet()
		},
	},
	{
		Name:     "a hold outlives the contexts of its calls",
		Sentence: "ctx bounds the call and never a hold or a place.",
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			holder := c.rival(d2).mustGet()
			a := c.request(d1, waits)
			ctx, cancel := context.WithCancel(c.ctx)
			p, err := d1.Enter(ctx, a.r)
			if err != nil {
				c.failf("Enter: %s", say(err))
			}
			a.place = p
			if _, err := p.Try(ctx, 1); !errors.Is(err, driver.ErrHeld) {
				c.failf("Try for a taken name: %s", say(err))
			}
			cancel()
			c.pause()
			a.forget()
			holder.release()
			if c.h.powers()&notifies != 0 {
				a.mustHear(driver.Changed)
			}
			ctx, cancel = context.WithTimeout(c.ctx, 10*time.Second+c.soon())
			g, err := p.Try(ctx, 1)
			cancel()
			if err != nil {
				c.failf("Try for a free name: %s", say(err))
			}
			a.took(g)
			ctx, cancel = context.WithCancel(c.ctx)
			d1.Renew(ctx, []driver.Hold{a.r.Hold})
			cancel()
			c.pause()
			c.rival(d2).mustNotGet()
			a.mustHold()
		},
	},
	{
		Name:     "a cancelled waiter leaves nothing",
		Sentence: "A waiter that gave up, at whatever moment, is neither in line nor a holder after Leave.",
		each:     single,
		check: func(c *run) {
			d1, d2 := c.pair()
			for i := range 20 {
				a := c.ask(d1).mustGet()
				b := c.ask(d2, waits)
				b.mustNotGet()
				ctx, cancel := context.WithTimeout(c.ctx, time.Duration(i)*100*time.Microsecond)
				a.release()
				b.place.Try(ctx, 1)
				cancel()
				b.leave()
				c.ask(d1).mustGet().release()
			}
			if i, ok := d1.(driver.Inspector); ok {
				c.mustBeFree(i, c.name)
			}
		},
	},
	{
		Name:     "a silent store does not stop a context",
		Sentence: "A call returns promptly when ctx ends, whatever the store does.",
		needs:    stalls,
		check: func(c *run) {
			d := c.driver()
			a := c.ask(d).mustGet()
			b := c.ask(d, waits)
			b.mustNotGet()
			fresh := c.ask(d, named(c.freshName()))
			resume := c.h.Stall(c.tb)
			defer resume()
			for what, call := range map[string]func(context.Context){
				"Try":     func(ctx context.Context) { fresh.place.Try(ctx, 1) },
				"Leave":   func(ctx context.Context) { b.place.Leave(ctx) },
				"Renew":   func(ctx context.Context) { d.Renew(ctx, []driver.Hold{a.r.Hold}) },
				"Release": func(ctx context.Context) { d.Release(ctx, a.r.Hold, driver.End{}) },
			} {
				c.promptly(what, func() {
					ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
					defer cancel()
					call(ctx)
				})
			}
			a.granted, a.left = false, true // who knows
		},
	},
	{
		Name:     "a request is given up after its TTL",
		Sentence: "Even when ctx has no end, a request is given up after Hold.TTL.",
		needs:    stalls,
		slow:     true,
		check: func(c *run) {
			a := c.ask(c.driver(), lasting(c.short()))
			resume := c.h.Stall(c.tb)
			defer resume()
			c.within(c.short()+c.soon(), "Try", func() {
				if _, err := a.place.Try(context.Background(), 1); err == nil {
					c.errorf("Try was granted by a store that does not answer")
				}
			})
		},
	},
}

// promptly wants f to return at once.
func (c *run) promptly(what string, f func()) {
	c.tb.Helper()
	c.within(200*time.Millisecond+c.soon(), what, f)
}

// within wants f to return in time, and waits no longer.
func (c *run) within(limit time.Duration, what string, f func()) {
	c.tb.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > limit {
		c.failf("%s took %v, more than %v", what, took, limit)
	}
}
