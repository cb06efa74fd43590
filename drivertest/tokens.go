package drivertest

import (
	"github.com/pawl-lock/pawl/driver"
	"math"
)

// wide is a span that the clock does not catch up with while a case runs, so that a store which takes its tokens from the
// clock alone is found out.
const wide = 200_000_000

var tokenRules = []Rule{
	{
		Name:     "rise over release",
		Sentence: "A token is larger than that of every hold of the name that was released before.",
		each:     alone,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			for i := range 20 {
				a.release()
				b := c.ask([]driver.Driver{d1, d2}[i%2]).mustGet()
				c.mustRise(a.grant.Token, b)
				a = b
			}
		},
	},
	{
		Name:     "rise over expiry",
		Sentence: "A token is larger than all those reserved for a hold that expired, used or not: Token … Token+Span-1.",
		each:     alone,
		slow:     true,
		check: func(c *run) {
			a := c.dieWith(wide)
			b := c.ask(c.driver(), waits).mustGetWithin(a.grant.TTL + c.soon())
			c.mustRise(a.lastReserved(), b)
		},
	},
	{
		Name:     "rise over a steal",
		Sentence: "A token is larger than those of a hold that was stolen.",
		each:     alone,
		needs:    inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			c.steal(d2, a)
			c.mustRise(a.grant.Token, c.ask(d2).mustGet())
		},
	},
	{
		Name:     "rise above the last one used",
		Sentence: "A token is larger than End.Last of the hold before it.",
		each:     alone,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGetSpan(wide)
			last := a.lastReserved()
			a.releaseWith(driver.End{Last: last})
			b := c.ask(d2).mustGet()
			c.mustRise(last, b)
			b.release()
			c.mustRise(b.grant.Token, c.ask(d1).mustGet())
		},
	},
	{
		Name:     "count a whole interval",
		Sentence: "An End.Last beyond the reserved tokens means that all of them were used, and no more.",
		each:     alone,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGetSpan(wide)
			last := a.lastReserved()
			a.releaseWith(driver.End{Last: math.MaxInt64})
			b := c.ask(d2).mustGet()
			c.mustRise(last, b)
			if b.grant.Token > math.MaxInt64/2 {
				c.errorf("the next token is %d: the driver believed a number that it never reserved", b.grant.Token)
			}
		},
	},
	{
		Name:     "rise between kinds of a family",
		Sentence: "Tokens of the kinds that share a name are one sequence: a Fair's rises above an Exclusive's, a Write's above every Read's.",
		each:     []driver.Kind{driver.Fair, driver.Read},
		check: func(c *run) {
			other := driver.Exclusive
			if c.kind == driver.Read {
				other = driver.Write
			}
			if !c.h.carries(other) {
				return
			}
			d1, d2 := c.pair()
			var last int64
			for range 5 {
				a, b := c.ask(d1, as(other)).mustGetSpan(1000), (*asker)(nil)
				if last != 0 {
					c.mustRise(last, a)
				}
				last = a.lastReserved()
				a.releaseWith(driver.End{Last: last})
				a = c.ask(d2).mustGetSpan(1000)
				if c.kind == driver.Read {
					b = c.ask(d1).mustGetSpan(1000)
					c.mustRise(last, b)
				}
				c.mustRise(last, a)
				last = a.lastReserved()
				a.releaseWith(driver.End{Last: last})
				if b != nil {
					last = max(last, b.lastReserved())
					b.releaseWith(driver.End{Last: b.lastReserved()})
				}
			}
		},
	},
	{
		Name:     "all or none",
		Sentence: "A store that cannot order its holds grants token 0, always; one that can, never.",
		each:     everyKind,
		check: func(c *run) {
			d1, d2 := c.pair()
			first := c.ask(d1).mustGet()
			first.release()
			for i := range 10 {
				a := c.ask([]driver.Driver{d1, d2}[i%2]).mustGet()
				if (a.grant.Token == 0) != (first.grant.Token == 0) {
					c.failf("the first token was %d, a later one %d", first.grant.Token, a.grant.Token)
				}
				a.release()
			}
		},
	},
	{
		Name:     "stay over renewal",
		Sentence: "A renewal never changes a token.",
		each:     alone,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			for range 3 {
				a.mustHold()
			}
			if i, ok := d2.(driver.Inspector); ok {
				if h := c.mustShow(i, a); h.Token != 0 && h.Token != a.grant.Token {
					c.failf("the token was %d, after renewals it is %d", a.grant.Token, h.Token)
				}
			}
			a.release() // by its token
			c.mustRise(a.grant.Token, c.ask(d2).mustGet())
		},
	},
}

// lastReserved is the last token that belongs to the hold.
func (a *asker) lastReserved() int64 {
	if a.grant.Token == 0 {
		return 0
	}
	return a.grant.Token + int64(a.grant.Span) - 1
}

// mustRise wants a grant above the last token of the hold before it.
func (c *run) mustRise(last int64, a *asker) {
	c.tb.Helper()
	if last == 0 && a.grant.Token == 0 {
		return // a store without tokens; that it is one, always, is a rule of its own
	}
	if a.grant.Token <= last {
		c.failf("token %d follows %d", a.grant.Token, last)
	}
}
