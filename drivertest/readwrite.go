package drivertest

import (
	"github.com/pawl-lock/pawl/driver"
)

var rw = []driver.Kind{driver.Read, driver.Write}

var readWriteRules = []Rule{
	{
		Name:     "readers share",
		Sentence: "Several Reads hold a name at once.",
		with:     rw,
		check: func(c *run) {
			d1, d2 := c.pair()
			var readers []*asker
			for i := range 5 {
				readers = append(readers, c.ask([]driver.Driver{d1, d2}[i%2], as(driver.Read)).mustGet())
			}
			for _, r := range readers {
				r.mustHold()
				r.release()
			}
		},
	},
	{
		Name:     "a writer excludes readers and writers",
		Sentence: "While a Write holds a name, no Read and no other Write is granted.",
		with:     rw,
		check: func(c *run) {
			d1, d2 := c.pair()
			w := c.ask(d1, as(driver.Write)).mustGet()
			for _, d := range []driver.Driver{d1, d2} {
				c.ask(d, as(driver.Read)).mustNotGet()
				c.ask(d, as(driver.Write)).mustNotGet()
			}
			w.release()
			c.ask(d2, as(driver.Read)).mustGet()
		},
	},
	{
		Name:     "every reader excludes a writer",
		Sentence: "A Write is granted when the last Read has ended, and not before.",
		with:     rw,
		check: func(c *run) {
			d1, d2 := c.pair()
			r1, r2 := c.ask(d1, as(driver.Read)).mustGet(), c.ask(d2, as(driver.Read)).mustGet()
			c.ask(d2, as(driver.Write)).mustNotGet()
			r1.release()
			c.ask(d1, as(driver.Write)).mustNotGet()
			r2.mustHold()
			w := c.ask(d1, as(driver.Write), waits)
			w.mustNotGet()
			r2.release()
			w.mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "a writer lets all readers in",
		Sentence: "When a Write ends, every Read that waits gets in.",
		with:     rw,
		check: func(c *run) {
			d1, d2 := c.pair()
			w := c.ask(d1, as(driver.Write)).mustGet()
			var readers []*asker
			for i := range 3 {
				r := c.ask([]driver.Driver{d1, d2}[i%2], as(driver.Read), waits)
				r.mustNotGet()
				readers = append(readers, r)
			}
			for _, r := range readers {
				r.forget()
			}
			w.release()
			if c.h.powers()&notifies != 0 {
				for _, r := range readers {
					if !r.hear(driver.Changed, c.soon()+c.turn()) {
						c.failf("a waiting reader was not told of the writer's end")
					}
				}
			}
			for _, r := range readers {
				r.mustGetWithin(c.soon() + c.turn())
			}
		},
	},
	{
		Name:     "a waiting writer stops new readers",
		Sentence: "While a Write waits for Reads to end, no new Read is granted, and then the Write gets in.",
		with:     rw,
		needs:    writerFirst,
		check: func(c *run) {
			d1, d2 := c.pair()
			r := c.ask(d1, as(driver.Read)).mustGet()
			w := c.ask(d2, as(driver.Write), waits)
			w.mustNotGet()
			c.ask(d1, as(driver.Read)).mustNotGet()
			late := c.ask(d1, as(driver.Read), waits)
			late.mustNotGet()
			r.release()
			w.mustGetWithin(c.soon() + c.turn())
			late.mustNotGet()
			w.release()
			late.mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "a writer that gave up stops nobody",
		Sentence: "A Write that has left, or did not wait, stops no Read.",
		with:     rw,
		check: func(c *run) {
			d1, d2 := c.pair()
			c.ask(d1, as(driver.Read)).mustGet()
			c.ask(d2, as(driver.Write)).mustNotGet()
			c.ask(d1, as(driver.Read)).mustGet()
			w := c.ask(d2, as(driver.Write), waits)
			w.mustNotGet()
			w.leave()
			c.ask(d1, as(driver.Read)).mustGet()
		},
	},
	{
		Name:     "a dead reader's share is taken",
		Sentence: "A Write gets in within the TTL of a Read that died, and not before its trust ends.",
		with:     rw,
		slow:     true,
		check: func(c *run) {
			d1 := c.driver()
			dead := c.ask(c.driver(), as(driver.Read), lasting(c.short())).mustGet()
			live := c.ask(d1, as(driver.Read)).mustGet()
			dead.vanish()
			live.release()
			w := c.ask(d1, as(driver.Write), waits).mustGetWithin(dead.grant.TTL + c.soon())
			if early := dead.trust().Sub(w.at); early > c.tick() {
				c.failf("the writer got in %v before the trust in the dead reader ended", early)
			}
		},
	},
	{
		Name:     "readers live by themselves",
		Sentence: "A Read lives for its own TTL, whatever TTL and whatever end the Reads beside it have.",
		with:     rw,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			long := c.ask(d1, as(driver.Read)).mustGet()
			dead := c.ask(c.driver(), as(driver.Read), lasting(c.short())).mustGet()
			dead.vanish()
			c.sleepOver(dead)
			long.mustHold()
			c.ask(d2, as(driver.Write)).mustNotGet()
			long.release()
			c.ask(d2, as(driver.Write), waits).mustGetWithin(c.soon() + c.turn())
		},
	},
	{
		Name:     "a dead waiting writer stops readers for its TTL at most",
		Sentence: "A Write that died while it waited stops new Reads no longer than its TTL and the Slack.",
		with:     rw,
		needs:    writerFirst,
		slow:     true,
		check: func(c *run) {
			d := c.driver()
			c.ask(d, as(driver.Read)).mustGet()
			w := c.ask(c.driver(), as(driver.Write), lasting(c.short()), waits)
			w.mustNotGet()
			w.vanish()
			c.ask(d, as(driver.Read), waits).mustGetWithin(c.short() + c.soon() + c.turn())
		},
	},
}
