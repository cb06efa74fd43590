package drivertest

import (
	"errors"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var waitingRules = []Rule{
	{
		Name:     "a release is told",
		Sentence: "A waiting place is told Changed when the name gets free, and then gets in.",
		each:     single,
		needs:    notifies,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.ask(d2, waits)
			b.mustNotGet()
			c.pause()
			b.forget()
			a.release()
			b.mustHear(driver.Changed)
			b.mustGet()
		},
	},
	{
		Name:     "a poller is told when to look",
		Sentence: "Where the store cannot notify, HeldError.Again sends a waiting place back within the Slack.",
		each:     single,
		needs:    polls,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			held := c.ask(d2, waits).mustNotGet()
			if held.Again <= 0 || held.Again > c.soon() {
				c.failf("HeldError.Again is %v, more than 0 and at most %v would be right", held.Again, c.soon())
			}
			a.release()
		},
	},
	{
		Name:     "no change falls between the look and the wait",
		Sentence: "A driver subscribes before it reads: a release right behind the refusal is told too.",
		each:     single,
		needs:    notifies,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			for i := range 30 {
				a := c.ask(d1).mustGet()
				b := c.ask(d2, waits)
				var wg sync.WaitGroup
				var err error
				if i%2 == 0 { // at the same time, or right after
					wg.Go(func() { err = d1.Release(c.ctx, a.r.Hold, driver.End{}) })
				}
				refused := b.try(1)
				if i%2 == 1 {
					err = d1.Release(c.ctx, a.r.Hold, driver.End{})
				}
				wg.Wait()
				a.granted, a.left = false, true
				if err != nil {
					c.failf("Release by the holder: %s", say(err))
				}
				if refused != nil {
					b.mustHear(driver.Changed)
					b.mustGet()
				}
				b.release()
			}
		},
	},
	{
		Name:     "every change is told",
		Sentence: "A place that was passed by a newcomer is told again when that one releases.",
		each:     single,
		needs:    notifies,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.ask(d2, waits)
			for range 3 {
				b.mustNotGet()
				c.pause()
				b.forget()
				a.release()
				b.mustHear(driver.Changed)
				newcomer := c.ask(d1)
				if newcomer.try(1) != nil {
					break // this kind lets nobody pass
				}
				a = newcomer
			}
			if a.granted {
				b.mustNotGet()
				b.forget()
				a.release()
				b.mustHear(driver.Changed)
			}
			b.mustGetWithin(c.soon())
		},
	},
	{
		Name:     "a dead holder's name is taken",
		Sentence: "A waiting place gets the name of a holder that died, within its TTL and the Slack.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			d := c.driver()
			a := c.die()
			b := c.ask(d, waits).mustGetWithin(a.grant.TTL + c.soon())
			b.mustHold()
		},
	},
	{
		Name:     "a long wait does not wear out",
		Sentence: "A place that looks again when HeldError.Again says so may wait for longer than its TTL, and is told, gets in and holds as any other.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1).mustGet()
				b := c.ask(d2, lasting(c.short()), waits)
				defer c.giveBack(a)
				defer b.leaveOrRelease()
				if !b.keepsTrying(5 * c.short() / 2) {
					return false
				}
				b.forget()
				looked := driver.Now()
				a.release()
				told := c.h.Polls || b.hear(driver.Changed, c.soon())
				if driver.Now().Sub(looked) >= c.short() {
					return false
				}
				if !told {
					c.failf("a place that waited for longer than its TTL was not told of the release")
				}
				b.mustGetWithin(c.soon() + c.turn())
				err := c.ask(d1).try(1)
				if !b.alive() {
					return false
				}
				if err == nil {
					c.failf("the hold of a place that had waited for longer than its TTL did not last")
				}
				return true
			})
		},
	},
	{
		Name:     "who does not wait is not in line",
		Sentence: "A place without Wait never queues, subscribes or disturbs others.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, waits).mustGet()
			b := c.ask(d2)
			b.mustNotGet()
			c.pause()
			if i, ok := d1.(driver.Inspector); ok {
				if n := c.inspect(i, c.name).Waiters; n > 0 {
					c.failf("%d waiters are shown, but nobody waits", n)
				}
			}
			if n := a.count(driver.Wanted); n > 0 {
				c.failf("the holder was told Wanted by somebody who does not wait")
			}
			a.release()
			c.ask(d1).mustGet().release()
			c.pause()
			if n := b.count(driver.Changed); n > 0 {
				c.failf("a place that does not wait was told Changed %d times", n)
			}
			b.mustGet()
		},
	},
	{
		Name:     "who left is not in line",
		Sentence: "Leave takes the place out of the line: it holds up nobody and is not shown.",
		each:     single,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.ask(d2, waits)
			b.mustNotGet()
			b.leave()
			if i, ok := d1.(driver.Inspector); ok {
				if n := c.inspect(i, c.name).Waiters; n > 0 {
					c.failf("%d waiters are shown after the only one left", n)
				}
			}
			a.release()
			c.ask(d1).mustGet()
		},
	},
	{
		Name:     "who leaves passes the turn on",
		Sentence: "A place that was told to come and leaves instead does not use up the turn of the next.",
		each:     single,
		check: func(c *run) {
			d1, d2 := c.pair()
			d3 := c.driver()
			a := c.ask(d1).mustGet()
			b, next := c.ask(d2, waits), c.ask(d3, waits)
			b.mustNotGet()
			next.mustNotGet()
			a.release()
			if c.h.powers()&notifies != 0 {
				b.mustHear(driver.Changed)
			}
			b.leave()
			next.mustBeCalled()
			next.mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "silence after leaving",
		Sentence: "Notify is not called after Leave has returned.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.ask(d2, waits)
			b.mustNotGet()
			b.leave()
			b.stopEars()
			a.release()
			for range 3 {
				c.ask(d1).mustGet().release()
			}
			c.pause()
			if n := b.lateSignals(); n > 0 {
				c.failf("Notify was called %d times after Leave", n)
			}
		},
	},
	{
		Name:     "a waiter is Wanted to the holder",
		Sentence: "The holder of several tokens is told Wanted when somebody waits for the name, or waited when it was granted.",
		with:     exclusiveOnly,
		needs:    tellsWanted,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGetSpan(2)
			b := c.ask(d2, waits)
			b.mustNotGet()
			a.mustHear(driver.Wanted)
			b2 := c.ask(d1, waits)
			b2.mustNotGet()
			a.release()
			for end := time.Now().Add(c.soon()); b.try(2) != nil; {
				if time.Now().After(end) {
					c.failf("the first in line does not get the free name")
				}
				b.waitRing(10 * time.Millisecond)
			}
			b.mustHear(driver.Wanted)
			b2.leave()
		},
	},
	{
		Name:     "how long to the end",
		Sentence: "A store that knows how long a hold lives says so in each refusal up to its end: a Remaining of 0 is not known, and a waiter would sleep.",
		each:     single,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			for range 2 {
				c.name = c.freshName()
				a := c.ask(d1, lasting(c.short())).mustGet()
				refusal := func() *driver.HeldError {
					b := c.newAsker(d2)
					p, err := d2.Enter(c.ctx, b.r)
					if err != nil {
						c.failf("Enter: %s", say(err))
					}
					b.place = p
					if err = b.try(1); err == nil {
						b.release()
						return nil
					}
					held, ok := errors.AsType[*driver.HeldError](err)
					if !ok {
						c.failf("a request for a name that is taken: %s", say(err))
					}
					return held
				}
				if held := refusal(); held != nil && held.Remaining == 0 {
					return // it never knows
				}
				time.Sleep(a.at.Add(a.grant.TTL - 20*time.Millisecond).Until())
				for end := time.Now().Add(c.soon() + a.grant.TTL); ; {
					held := refusal()
					if held == nil {
						break
					}
					if held.Remaining == 0 && held.Again == 0 && held.By.ID == a.r.ID {
						c.failf("a refusal near the end does not say how long the hold has left")
					}
					if time.Now().After(end) {
						c.failf("a hold that nobody renewed does not end")
					}
					time.Sleep(100 * time.Microsecond)
				}
				a.granted, a.left = false, true
			}
		},
	},
	{
		Name:     "a stolen hold is Lost",
		Sentence: "The holder is told Lost when another process ends its hold.",
		each:     everyKind,
		needs:    tellsLost | inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			c.steal(d2, a)
			a.mustHear(driver.Lost)
		},
	},
	{
		Name:     "an expired hold is Lost",
		Sentence: "The holder is told Lost when its hold expires in the store, and not before.",
		each:     everyKind,
		needs:    tellsLost | attaches,
		slow:     true,
		check: func(c *run) {
			a := c.ask(c.driver(), lasting(c.short())).mustGet()
			if !a.hear(driver.Lost, a.grant.TTL+c.soon()) {
				c.failf("no Lost was heard")
			}
			if early := a.trust().Sub(driver.Now()); early > c.tick() {
				c.failf("Lost was told %v before the TTL was over", early)
			}
			a.granted = false
		},
	},
}

// turn is how long a next in line may have to wait for one who does not come.
func (c *run) turn() time.Duration { return time.Second }

// called reports whether the place was told, or is to look again by itself.
func (a *asker) called() bool {
	return a.again > 0 && a.again <= a.c.soon()+a.c.turn() || a.hear(driver.Changed, a.c.soon()+a.c.turn())
}

func (a *asker) mustBeCalled() {
	a.c.tb.Helper()
	if !a.called() {
		a.c.failf("%s was not told Changed within %v", a.what(), a.c.soon()+a.c.turn())
	}
}

// keepsTrying looks for d when HeldError.Again says so, and only then. It answers false when it came too late itself.
func (a *asker) keepsTrying(d time.Duration) bool {
	a.c.tb.Helper()
	for end := time.Now().Add(d); ; {
		looked := driver.Now()
		again := a.mustNotGet().Again
		left := time.Until(end)
		if left <= 0 {
			return true
		}
		if again <= 0 || again > left {
			again = left
		}
		time.Sleep(again)
		if again < a.r.TTL && driver.Now().Sub(looked) >= a.r.TTL {
			return false
		}
	}
}

// leaveOrRelease ends whatever there is.
func (a *asker) leaveOrRelease() {
	if a.granted {
		a.c.giveBack(a)
	} else if !a.left {
		a.left = true
		a.place.Leave(a.c.ctx)
	}
}

// mustHear wants a signal at once.
func (a *asker) mustHear(s driver.Signal) {
	a.c.tb.Helper()
	names := map[driver.Signal]string{driver.Changed: "Changed", driver.Lost: "Lost", driver.Wanted: "Wanted"}
	if !a.hear(s, a.c.soon()) {
		a.c.failf("%s was not told %s within %v", a.what(), names[s], a.c.soon())
	}
}
