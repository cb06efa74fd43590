package drivertest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/pawl-lock/pawl/driver"
)

var sema = []driver.Kind{driver.Permits}

var semaphoreRules = []Rule{
	{
		Name:     "never more than the limit",
		Sentence: "At most Limit permits are out, whoever asks for them.",
		with:     sema,
		check: func(c *run) {
			d1, d2 := c.pair()
			for i := range 3 {
				c.ask([]driver.Driver{d1, d2}[i%2], permits(1, 3)).mustGet()
			}
			c.ask(d1, permits(1, 3)).mustNotGet()
			c.ask(d2, permits(1, 3), waits).mustNotGet()
		},
	},
	{
		Name:     "grabbers never exceed the limit",
		Sentence: "However many contenders of several processes try at once, the permits that are out never exceed the limit.",
		with:     sema,
		check: func(c *run) {
			const limit = 5
			drivers := []driver.Driver{c.driver(), c.driver(), c.driver()}
			var inside atomic.Int32
			var wg sync.WaitGroup
			for i := range 9 {
				wg.Go(func() {
					for range 4 {
						if !c.grab(drivers[i%3], &inside, limit, permits(1+i%3, limit)) {
							return
						}
					}
				})
			}
			wg.Wait()
		},
	},
	{
		Name:     "all or none",
		Sentence: "A request gets all the permits that it asked for, or none.",
		with:     sema,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.ask(d1, permits(3, 5)).mustGet()
			c.ask(d2, permits(3, 5)).mustNotGet()
			c.ask(d2, permits(2, 5)).mustGet()
			c.ask(d1, permits(1, 5)).mustNotGet()
		},
	},
	{
		Name:     "a release returns all",
		Sentence: "Release returns all permits of its hold, and no others.",
		with:     sema,
		check: func(c *run) {
			d1, d2 := c.pair()
			a, b := c.ask(d1, permits(3, 5)).mustGet(), c.ask(d2, permits(2, 5)).mustGet()
			a.release()
			c.ask(d2, permits(4, 5)).mustNotGet()
			c.ask(d2, permits(3, 5)).mustGet()
			b.mustHold()
			b.release()
			c.ask(d1, permits(3, 5)).mustNotGet()
			c.ask(d1, permits(2, 5)).mustGet()
		},
	},
	{
		Name:     "dead permits come back",
		Sentence: "Permits of a hold that expired can be had again, all of them, while other holds go on.",
		with:     sema,
		slow:     true,
		check: func(c *run) {
			d := c.driver()
			live := c.ask(d, permits(1, 4)).mustGet()
			dead := c.ask(c.driver(), permits(3, 4), lasting(c.short())).mustGet()
			dead.vanish()
			c.ask(d, permits(3, 4), waits).mustGetWithin(dead.grant.TTL + c.soon())
			live.mustHold()
			c.ask(d, permits(1, 4)).mustNotGet()
		},
	},
	{
		Name:     "a waiter is told when there is enough",
		Sentence: "A place that waits for several permits gets in once that many are free.",
		with:     sema,
		check: func(c *run) {
			d1, d2 := c.pair()
			var ones []*asker
			for range 4 {
				ones = append(ones, c.ask(d1, permits(1, 4)).mustGet())
			}
			w := c.ask(d2, permits(3, 4), waits)
			w.mustNotGet()
			ones[0].release()
			w.mustNotGet()
			ones[1].release()
			w.mustNotGet()
			w.forget()
			ones[2].release()
			if c.h.powers()&notifies != 0 {
				w.mustHear(driver.Changed)
			}
			w.mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "limits must agree",
		Sentence: "A semaphore in use with another limit is a *MismatchError that shows both limits, and the request changes nothing.",
		with:     sema,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1, permits(1, 3)).mustGet()
			for _, limit := range []int{2, 4} {
				err := c.ask(d2, permits(1, limit)).try(1)
				var m *driver.MismatchError
				if !errors.As(err, &m) || !errors.Is(err, driver.ErrMismatch) {
					c.failf("limit %d for a semaphore of 3 should be a *MismatchError, got: %s", limit, say(err))
				}
				if m.HaveLimit != 3 || m.WantLimit != limit {
					c.failf("the MismatchError says %d and %d, right would be 3 and %d", m.HaveLimit, m.WantLimit, limit)
				}
			}
			c.ask(d2, permits(2, 3)).mustGet()
			c.ask(d2, permits(1, 3)).mustNotGet()
			a.mustHold()
		},
	},
	{
		Name:     "tokens of one permit rise",
		Sentence: "The tokens of a semaphore of one permit rise: its holds conflict.",
		with:     sema,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGetSpan(wide)
			for i := range 5 {
				last := a.lastReserved()
				a.releaseWith(driver.End{Last: last})
				a = c.ask([]driver.Driver{d1, d2}[i%2]).mustGetSpan(1)
				c.mustRise(last, a)
			}
		},
	},
}
