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
		each:     alone,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			c.ask(d1).mustNotGet()
			c.ask(d2).mustNotGet()
			c.ask(d2, waits).mustNotGet()
			if err := a.renew(); err != nil {
				c.failf("the holder was disturbed: Renew: %s", say(err))
			}
		},
	},
	{
		Name:     "grabbers never overlap",
		Sentence: "However many contenders of several processes try at once, at most one of them holds the name.",
		each:     alone,
		check: func(c *run) {
			const goroutines, rounds = 8, 5
			drivers := []driver.Driver{c.driver(), c.driver(), c.driver()}
			var inside atomic.Int32
			var wg sync.WaitGroup
			for i := range goroutines {
				wg.Go(func() {
					for range rounds {
						if !c.grab(drivers[i%len(drivers)], &inside) {
							return
						}
					}
				})
			}
			wg.Wait()
		},
	},
}

// grab takes the name, waiting like a client, checks that nobody else is inside, and gives it back.
func (c *run) grab(d driver.Driver, inside *atomic.Int32) bool {
	a := c.silentAsk(d, waits)
	if a == nil {
		return false
	}
	if err := a.getWithin(c.h.Slack + 20*time.Second); err != nil {
		c.errorf("a grabber got no turn: %s", say(err))
		a.place.Leave(c.ctx)
		return false
	}
	if n := inside.Add(1); n != 1 {
		c.errorf("%d holders at once", n)
	}
	time.Sleep(time.Millisecond)
	inside.Add(-1)
	if err := d.Release(c.ctx, a.r.Hold, driver.End{}); err != nil {
		c.errorf("Release by the holder: %s", say(err))
		return false
	}
	return true
}

// silentAsk is ask for goroutines: it does not end the case, and whoever asked gives it back.
func (c *run) silentAsk(d driver.Driver, changes ...func(*driver.Request)) *asker {
	a := c.newAsker(d, changes...)
	p, err := d.Enter(c.ctx, a.r)
	if err != nil {
		c.errorf("Enter: %s", say(err))
		return nil
	}
	a.place = p
	return a
}
