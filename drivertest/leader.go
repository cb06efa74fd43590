package drivertest

import (
	"bytes"

	"github.com/pawl-lock/pawl/driver"
)

var elected = []driver.Kind{driver.Leader}

var leaderRules = []Rule{
	{
		Name:     "the value is published",
		Sentence: "Request.Value of the leader, and of nobody else, is shown with its hold for as long as it lives.",
		with:     elected,
		needs:    inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			in := d2.(driver.Inspector)
			for _, value := range [][]byte{[]byte("http://10.0.0.7:80/\x00\xff"), []byte("second")} {
				given := bytes.Clone(value)
				a := c.ask(d1, func(r *driver.Request) { r.Value = given }).mustGet()
				b := c.ask(d2, func(r *driver.Request) { r.Value, r.Wait = []byte("another"), true })
				b.mustNotGet()
				a.mustHold()
				if h := c.mustShow(in, a); !bytes.Equal(h.Value, value) {
					c.failf("shown is the value %q, right would be %q", h.Value, value)
				}
				b.leave()
				a.release()
				c.mustBeFree(in, c.name)
			}
		},
	},
	{
		Name:     "the next in line follows",
		Sentence: "When the leader resigns, the first in line leads, with a larger token and its own value.",
		with:     elected,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b, later := c.ask(d2, waits), c.ask(d1, waits)
			b.mustNotGet()
			later.mustNotGet()
			a.release()
			later.mustNotGet()
			b.mustGetWithin(c.soon() + c.turn())
			c.mustRise(a.grant.Token, b)
			if held := later.mustNotGet(); held.By.ID != "" && (held.By.ID != b.r.ID || held.By.Value != nil && !bytes.Equal(held.By.Value, b.r.Value)) {
				c.failf("the refused one is told of the leader %q with the value %q", held.By.ID, held.By.Value)
			}
		},
	},
}
