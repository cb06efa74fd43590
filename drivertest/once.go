package drivertest

import (
	"bytes"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var one = []driver.Kind{driver.Once}

var onceRules = []Rule{
	{
		Name:     "a result is remembered",
		Sentence: "After Release with End.Keep every Try is a *DoneError with the value and the time that it stays.",
		with:     one,
		check: func(c *run) {
			d1, d2 := c.pair()
			for _, value := range [][]byte{[]byte("result \x00\xff"), nil} {
				a := c.ask(d1).mustGet()
				a.releaseWith(driver.End{Keep: c.long(), Value: value})
				for _, b := range []*asker{c.ask(d1), c.ask(d2), c.ask(d2, waits)} {
					done := b.mustBeDone()
					if !bytes.Equal(done.Value, value) {
						c.failf("remembered is %q, right would be %q", done.Value, value)
					}
					if done.Remaining <= 0 || done.Remaining > c.long()+time.Second {
						c.failf("DoneError.Remaining is %v of %v", done.Remaining, c.long())
					}
					b.leave()
				}
				c.mustBeOver(d1, a.r.Hold)
				c.mustNotRelease(d2, a.r.Hold)
				c.ask(d2).mustBeDone()
				c.name = c.freshName()
			}
		},
	},
	{
		Name:     "a result is forgotten in time",
		Sentence: "When End.Keep is over, the name is free again, and not before.",
		with:     one,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			sent := driver.Now()
			a.releaseWith(driver.End{Keep: c.short(), Value: []byte("result")})
			for end := time.Now().Add(c.short() + c.soon()); ; time.Sleep(c.short() / 20) {
				b := c.ask(d2)
				err := b.try(1)
				if err == nil {
					if early := sent.Add(c.short()).Sub(b.at); early > c.tick() {
						c.failf("the result was forgotten %v too early", early)
					}
					return
				}
				if !errors.Is(err, driver.ErrDone) {
					c.failf("a Try for a remembered name: %s", say(err))
				}
				b.leave()
				if time.Now().After(end) {
					c.failf("the result is still remembered after %v", c.short()+c.soon())
				}
			}
		},
	},
	{
		Name:     "no result, next run",
		Sentence: "After Release without End.Keep the next Try is granted.",
		with:     one,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.ask(d1).mustGet().releaseWith(driver.End{Value: []byte("not kept")})
			c.ask(d2).mustGet().releaseWith(driver.End{Keep: c.long()})
			c.ask(d1).mustBeDone()
		},
	},
	{
		Name:     "waiters get the result",
		Sentence: "Places that wait are told Changed when a result is remembered, and get it.",
		with:     one,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b1, b2 := c.ask(d2, waits), c.ask(d1, waits)
			b1.mustNotGet()
			b2.mustNotGet()
			a.releaseWith(driver.End{Keep: c.long(), Value: []byte("result")})
			for _, b := range []*asker{b1, b2} {
				if c.h.powers()&notifies != 0 && !b.hear(driver.Changed, c.soon()+c.turn()) {
					c.failf("a waiter was not told of the result")
				}
				if done := b.mustBeDone(); string(done.Value) != "result" {
					c.failf("a waiter got %q", done.Value)
				}
				b.leave()
			}
		},
	},
}

// mustBeDone wants a *DoneError.
func (a *asker) mustBeDone() *driver.DoneError {
	a.c.tb.Helper()
	err := a.try(1)
	var done *driver.DoneError
	if !errors.As(err, &done) || !errors.Is(err, driver.ErrDone) {
		a.c.failf("Try after a result should be a *DoneError, got: %s", say(err))
	}
	return done
}
