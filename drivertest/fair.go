package drivertest

import (
	"github.com/pawl-lock/pawl/driver"
)

var lined = []driver.Kind{driver.Fair, driver.Leader}

var fairRules = []Rule{
	{
		Name:     "first come first served",
		Sentence: "Waiting places get in by the order of their first Try, across processes.",
		each:     lined,
		check: func(c *run) {
			drivers := []driver.Driver{c.driver(), c.driver(), c.driver()}
			holder := c.ask(drivers[0]).mustGet()
			var line []*asker
			for i := range 6 {
				w := c.ask(drivers[i%3], waits)
				w.mustNotGet()
				line = append(line, w)
			}
			for i, w := range line {
				holder.release()
				for j := len(line) - 1; j > i; j-- {
					if line[j].try(1) == nil {
						c.failf("number %d of the line got in before number %d", j, i)
					}
				}
				holder = w.mustGetWithin(c.soon() + c.turn())
			}
		},
	},
	{
		Name:     "a newcomer does not pass",
		Sentence: "While a place waits, a request that came later is refused, also when the name is free and it would not wait itself.",
		each:     lined,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.ask(d2, waits)
			b.mustNotGet()
			a.release()
			c.ask(d1).mustNotGet()
			c.ask(d2).mustNotGet()
			late := c.ask(d1, waits)
			late.mustNotGet()
			b.mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "who leaves does not block",
		Sentence: "A place that leaves, at the head or in the middle, gives its turn to the next.",
		each:     lined,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			var line []*asker
			for i := range 4 {
				w := c.ask([]driver.Driver{d1, d2}[i%2], waits)
				w.mustNotGet()
				line = append(line, w)
			}
			line[0].leave()
			line[2].leave()
			a.release()
			if line[3].try(1) == nil {
				c.failf("number 3 of the line got in before number 1")
			}
			line[1].mustGetWithin(c.soon() + c.turn()).release()
			line[3].mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "a dead head blocks for its TTL at most",
		Sentence: "A place whose process died holds up the line no longer than its TTL and the Slack.",
		each:     lined,
		slow:     true,
		check: func(c *run) {
			d := c.driver()
			a := c.ask(d).mustGet()
			dead := c.ask(c.driver(), lasting(c.short()), waits)
			dead.mustNotGet()
			dead.vanish()
			b := c.ask(d, waits)
			b.mustNotGet()
			a.release()
			b.mustGetWithin(c.short() + c.soon() + c.turn())
		},
	},
	{
		Name:     "who keeps trying keeps the place",
		Sentence: "A place that tries again when HeldError.Again says so keeps its turn for longer than its TTL.",
		each:     lined,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.inTime(func() bool {
				a := c.ask(d1).mustGet()
				b := c.ask(d2, lasting(c.short()), waits)
				b.mustNotGet()
				late := c.ask(d1, waits)
				late.mustNotGet()
				defer c.giveBack(a)
				defer late.leaveOrRelease()
				defer b.leaveOrRelease()
				if !b.keepsTrying(5 * c.short() / 2) {
					return false
				}
				looked := driver.Now()
				c.giveBack(a)
				err := late.try(1)
				if driver.Now().Sub(looked) >= c.short() {
					return false
				}
				if err == nil {
					c.failf("a later place got in before one that kept trying")
				}
				b.mustGetWithin(c.soon() + c.turn())
				return true
			})
		},
	},
	{
		Name:     "the position is right or left out",
		Sentence: "HeldError.Ahead is the number of waiters in front of the place, or -1.",
		each:     lined,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			var line []*asker
			for i := range 4 {
				w := c.ask([]driver.Driver{d1, d2}[i%2], waits)
				w.mustNotGet()
				line = append(line, w)
			}
			want := func(i, ahead int) {
				if held := line[i].mustNotGet(); held.Ahead != ahead && held.Ahead != -1 {
					c.failf("HeldError.Ahead of number %d of the line is %d, but %d are in front of it", i, held.Ahead, ahead)
				}
			}
			for i := range line {
				want(i, i)
			}
			line[1].leave()
			want(0, 0)
			want(2, 1)
			want(3, 2)
			a.release()
		},
	},
}
