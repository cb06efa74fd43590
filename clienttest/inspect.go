package clienttest

import (
	"errors"
	"slices"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var inspectCases = []Case{
	{
		Name:     "who holds",
		Sentence: "Inspect and List show what is held, by which hold and with which token, and nothing of what is free.",
		flavours: exclusive,
		needs:    inspects,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			names := []string{c.name + "-1", c.name + "-2", c.name + "-3"}
			var ls []*pawl.Lease
			for _, name := range names {
				ls = append(ls, c.take(c.lock(a, name), 0))
			}
			c.free(ls[1])
			var listed []string
			for i, err := range b.List(c.ctx, c.name) {
				if err != nil {
					c.failf("List: %v", err)
				}
				if len(i.Holders) > 0 {
					listed = append(listed, i.Name)
				}
			}
			slices.Sort(listed)
			if !slices.Equal(listed, []string{names[0], names[2]}) {
				c.failf("List: got %v, want the first and the third of %v", listed, names)
			}
			for k, want := range []int{1, 0, 1} {
				i, err := b.Inspect(c.ctx, names[k])
				if err != nil || i.Name != names[k] || len(i.Holders) != want {
					c.failf("Inspect: got %+v, %v, want %d holders", i, err, want)
				}
				if want == 1 && (i.Holders[0].ID != ls[k].ID() || i.Holders[0].Token != ls[k].Token()) {
					c.failf("Inspect: got the holder %+v, want the hold %s with token %d", i.Holders[0], ls[k].ID(), ls[k].Token())
				}
			}
			c.free(ls[0])
			c.free(ls[2])
		},
	},
	{
		Name:     "steal",
		Sentence: "A stolen name is free at once, its holder is told, and what Inspect showed of a hold that is over steals nothing.",
		flavours: exclusive,
		needs:    inspects,
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
				l := c.take(c.lock(a, c.name), 0)
				i, err := b.Inspect(c.ctx, c.name)
				if l.Err() != nil {
					return false
				}
				if err != nil || len(i.Holders) != 1 {
					c.failf("Inspect: got %+v, %v", i, err)
				}
				err = b.Steal(c.ctx, c.name, i.Holders[0])
				if errors.Is(err, pawl.ErrNotHeld) {
					return false
				}
				if err != nil {
					c.failf("Steal: %v", err)
				}
				next := c.take(c.lock(b, c.name), 0)
				if t := c.ordered(next.Token()); t <= l.Token() && t != 0 {
					c.failf("the token %d is followed by %d", l.Token(), t)
				}
				c.mustEnd("the stolen lease", l.Done(), c.short())
				c.mustBe("Unlock of it", l.Unlock(), pawl.ErrLost)
				c.mustBe("a second Steal", b.Steal(c.ctx, c.name, i.Holders[0]), pawl.ErrNotHeld)
				if err := next.Err(); err != nil {
					c.failf("the next holder: %v", err)
				}
				c.mustBeHeld(c.lock(c.node(pawl.Options{}), c.name))
				c.free(next)
				return true
			})
		},
	},
	{
		Name:     "who reads",
		Sentence: "Inspect shows every reader, and every holder of permits with how many.",
		with:     []driver.Kind{driver.Read, driver.Write, driver.Permits},
		needs:    inspects,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			r1, r2 := c.take(a.RWMutex(c.name).RLocker(), 0), c.take(b.RWMutex(c.name).RLocker(), 0)
			i, err := a.Inspect(c.ctx, c.name)
			if err != nil || len(i.Holders) != 2 {
				c.failf("Inspect: got %+v, %v, want two readers", i, err)
			}
			s := c.name + "-s"
			p1, p2 := c.take(a.Semaphore(s, 5).Weight(2), 0), c.take(b.Semaphore(s, 5), 0)
			i, err = b.Inspect(c.ctx, s)
			if err != nil || len(i.Holders) != 2 || i.Limit != 5 || i.Holders[0].Permits+i.Holders[1].Permits != 3 {
				c.failf("Inspect: got %+v, %v, want two holders with 3 of 5 permits", i, err)
			}
			for _, l := range []*pawl.Lease{r1, r2, p1, p2} {
				c.free(l)
			}
		},
	},
}
