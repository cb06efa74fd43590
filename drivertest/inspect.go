package drivertest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var inspectRules = []Rule{
	{
		Name:     "shows a hold",
		Sentence: "Inspect shows each hold with what Release needs to end it, its remaining time by the store's clock, and its holder or nothing.",
		each:     everyKind,
		needs:    inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			h := c.mustShow(d2.(driver.Inspector), a)
			if h.Kind.Family() != c.kind.Family() || h.Name != c.name || h.Permits != 1 {
				c.failf("shown is a hold of kind %s, name %q, %d permits", h.Kind, h.Name, h.Permits)
			}
			if h.Token != 0 && h.Token != a.grant.Token {
				c.failf("shown is token %d, granted was %d", h.Token, a.grant.Token)
			}
			if h.Remaining < 0 || h.Remaining > a.grant.TTL+time.Second {
				c.failf("shown are %v remaining of %v", h.Remaining, a.grant.TTL)
			}
			if _, ok := d2.(driver.Attacher); ok && h.Remaining == 0 {
				c.failf("no remaining time is shown, though the store ends holds by their TTL")
			}
			if w := h.Who; w.Label != "" && w.Label != "drivertest" || w.Host != "" && w.Host != "host" || w.PID != 0 && w.PID != 7 || w.Note != "" && w.Note != "note" {
				c.failf("shown is the holder %+v", w)
			}
		},
	},
	{
		Name:     "shows every hold",
		Sentence: "Inspect shows all holds of a shared name, with the permits of each and the limit.",
		needs:    inspects,
		each:     []driver.Kind{driver.Read, driver.Permits},
		check: func(c *run) {
			d1, d2 := c.pair()
			for i := range 3 {
				n := 1
				if c.kind == driver.Permits {
					n = i + 1
				}
				c.ask([]driver.Driver{d1, d2}[i%2], func(r *driver.Request) { r.Permits, r.Limit = n, 9 }).mustGet()
			}
			in := d2.(driver.Inspector)
			for _, a := range c.askers {
				if h := c.mustShow(in, a); h.Permits != a.r.Permits {
					c.failf("shown are %d permits of %d", h.Permits, a.r.Permits)
				}
			}
			r := c.inspect(in, c.name)
			if len(r.Holds) != 3 {
				c.failf("%d holds are shown, right would be 3", len(r.Holds))
			}
			if c.kind == driver.Permits && r.Limit != 9 {
				c.failf("the limit is shown as %d, right would be 9", r.Limit)
			}
			c.askers[0].release()
			if r := c.inspect(in, c.name); len(r.Holds) != 2 {
				c.failf("after a release %d holds are shown, right would be 2", len(r.Holds))
			}
		},
	},
	{
		Name:     "a free name is empty",
		Sentence: "Inspect of a free name is a Record without Holds and no error.",
		each:     everyKind,
		needs:    inspects,
		check: func(c *run) {
			d := c.driver()
			in := d.(driver.Inspector)
			c.mustBeFree(in, c.name)
			c.ask(d).mustGet().release()
			c.mustBeFree(in, c.name)
		},
	},
	{
		Name:     "counts the waiters",
		Sentence: "Record.Waiters is the number of places in line, or -1.",
		each:     single,
		needs:    inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			in := d1.(driver.Inspector)
			want := func(n int) {
				if got := c.inspect(in, c.name).Waiters; got != n && got != -1 {
					c.failf("%d waiters are shown, right would be %d", got, n)
				}
			}
			c.ask(d1).mustGet()
			want(0)
			var line []*asker
			for i := range 3 {
				w := c.ask(d2, waits)
				w.mustNotGet()
				w.mustNotGet()
				line = append(line, w)
				want(i + 1)
			}
			for i, w := range line {
				w.leave()
				want(2 - i)
			}
		},
	},
	{
		Name:     "what is shown can be stolen",
		Sentence: "Release of the Hold that Inspect showed ends exactly that hold: Renew is ErrNotHeld then, and the next gets in.",
		each:     everyKind,
		needs:    inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			c.steal(d2, a)
			c.mustBeOver(d1, a.r.Hold)
			b := c.rival(d2).mustGet()
			c.mustNotRelease(d1, a.r.Hold)
			b.mustHold()
		},
	},
	{
		Name:     "nothing is left",
		Sentence: "When all holds are released and all places left, nothing is shown of the name.",
		each:     everyKind,
		needs:    inspects,
		check: func(c *run) {
			d1, d2 := c.pair()
			for range 3 {
				a := c.rival(d1).mustGet()
				b, left, tried := c.ask(d2, waits), c.ask(d1, waits), c.ask(d2)
				b.mustNotGet()
				left.mustNotGet()
				tried.mustNotGet()
				left.leave()
				a.mustHold()
				a.release()
				b.mustGetWithin(c.soon() + c.turn()).release()
			}
			c.mustBeFree(d1.(driver.Inspector), c.name)
		},
	},
	{
		Name:     "lists the names in use",
		Sentence: "List yields exactly the names in use that begin with the prefix, byte by byte, with their holds.",
		needs:    inspects,
		each:     []driver.Kind{driver.Exclusive, driver.Read, driver.Permits},
		check: func(c *run) {
			d1, d2 := c.pair()
			want := map[string]*asker{}
			for _, name := range nastyNames(c.name) {
				a := c.ask(d1, named(name)).mustGet()
				if strings.HasPrefix(name, c.name) {
					want[name] = a
				}
			}
			got := c.list(d2, c.name)
			for name, a := range want {
				if r, ok := got[name]; !ok || len(r.Holds) != 1 || r.Holds[0].ID != a.r.ID {
					c.failf("%s is held but not listed with its one hold: %+v", show(name), r.Holds)
				}
			}
			for name, r := range got {
				if want[name] == nil && len(r.Holds) > 0 {
					c.failf("%s is listed for the prefix %q", show(name), c.name)
				}
			}
			for _, prefix := range []string{c.name + "/", c.name + "%", c.name + "{a", c.name + "\xff", c.name + "nothing"} {
				mine := maps.Collect(func(yield func(string, bool) bool) {
					for name := range want {
						if strings.HasPrefix(name, prefix) && !yield(name, true) {
							return
						}
					}
				})
				for name, r := range c.list(d2, prefix) {
					if len(r.Holds) > 0 && !mine[name] {
						c.failf("%s is listed for the prefix %q", show(name), prefix)
					}
					delete(mine, name)
				}
				if len(mine) > 0 {
					c.failf("for the prefix %q these are not listed: %q", prefix, slices.Collect(maps.Keys(mine)))
				}
			}
			for range d2.(driver.Inspector).List(c.ctx, c.name) {
				break // a loop may end early
			}
			for _, a := range want {
				a.release()
			}
			for name, r := range c.list(d2, c.name) {
				if len(r.Holds) > 0 {
					c.failf("%s is listed with holds after its release", show(name))
				}
			}
		},
	},
	{
		Name:     "a watch ticks",
		Sentence: "A watch is live when Watch returns, ticks when the name is taken and when it gets free, and its channel is closed when ctx ends.",
		needs:    watches,
		each:     everyKind,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			ctx, cancel := context.WithCancel(c.ctx)
			ticks, err := d2.(driver.Watcher).Watch(ctx, c.name)
			if err != nil {
				c.failf("Watch: %s", say(err))
			}
			defer cancel()
			next := func(what string) bool {
				t := time.NewTimer(c.soon())
				defer t.Stop()
				select {
				case _, ok := <-ticks:
					return ok
				case <-t.C:
					c.failf("the watch did not notice that %s", what)
					return false
				}
			}
			a := c.ask(d1).mustGet()
			if !next("the name was taken") {
				c.failf("the watch ended by itself")
			}
			c.pause()
			for len(ticks) > 0 {
				<-ticks
			}
			a.release()
			if !next("the name got free") {
				c.failf("the watch ended by itself")
			}
			cancel()
			for next("ctx ended") {
			}
		},
	},
}

// inspect reads a name.
func (c *run) inspect(in driver.Inspector, name string) driver.Record {
	c.tb.Helper()
	r, err := in.Inspect(c.ctx, name)
	if err != nil {
		c.failf("Inspect: %s", say(err))
	}
	if r.Name != name {
		c.failf("Inspect of %s answers a record of %s", show(name), show(r.Name))
	}
	return r
}

// mustShow wants a's hold to be shown, once.
func (c *run) mustShow(in driver.Inspector, a *asker) driver.HeldBy {
	c.tb.Helper()
	var found []driver.HeldBy
	r := c.inspect(in, a.r.Name)
	for _, h := range r.Holds {
		if h.ID == a.r.ID {
			found = append(found, h)
		}
	}
	if len(found) != 1 {
		c.failf("Inspect should show the hold %q once, it shows %+v", a.r.ID, r.Holds)
	}
	return found[0]
}

func (c *run) mustBeFree(in driver.Inspector, name string) {
	c.tb.Helper()
	if r := c.inspect(in, name); len(r.Holds) > 0 || r.Waiters > 0 {
		c.failf("%d holds and %d waiters are shown of a free name: %+v", len(r.Holds), r.Waiters, r.Holds)
	}
}

// steal ends a's hold through d.
func (c *run) steal(d driver.Driver, a *asker) {
	c.tb.Helper()
	h := c.mustShow(d.(driver.Inspector), a)
	if err := d.Release(c.ctx, h.Hold, driver.End{}); err != nil {
		c.failf("Release of the hold that Inspect showed: %s", say(err))
	}
	a.granted, a.left = false, true
}

// list collects a List.
func (c *run) list(d driver.Driver, prefix string) map[string]driver.Record {
	c.tb.Helper()
	out := map[string]driver.Record{}
	for r, err := range d.(driver.Inspector).List(c.ctx, prefix) {
		if err != nil {
			c.failf("List: %s", say(err))
		}
		if _, twice := out[r.Name]; twice {
			c.failf("%s is listed twice", show(r.Name))
		}
		out[r.Name] = r
	}
	return out
}
