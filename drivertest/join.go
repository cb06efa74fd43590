package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var exclusiveOnly = []driver.Kind{driver.Exclusive}

var joinRules = []Rule{
	{
		Name:     "all",
		Sentence: "TryAll gets every hold, each with a token above the earlier ones of its name, and each is renewed and released by itself.",
		with:     exclusiveOnly,
		needs:    joins,
		check: func(c *run) {
			d1, d2 := c.pair()
			names := c.joined(3)
			before := c.ask(d2, named(names[1])).mustGet()
			before.release()
			as := c.mustJoin(d1, names)
			c.mustRise(before.grant.Token, as[1])
			for i, a := range as {
				a.mustHold()
				c.ask(d2, named(names[i])).mustNotGet()
			}
			as[1].release()
			c.ask(d2, named(names[1])).mustGet().release()
			for _, i := range []int{0, 2} {
				as[i].mustHold()
				as[i].release()
				c.mustRise(as[i].grant.Token, c.ask(d2, named(names[i])).mustGet())
			}
		},
	},
	{
		Name:     "or none",
		Sentence: "When one name is taken TryAll gets none of them, and its HeldError says which name was in the way.",
		with:     exclusiveOnly,
		needs:    joins,
		check: func(c *run) {
			d1, d2 := c.pair()
			names := c.joined(3)
			for taken := range names {
				b := c.ask(d2, named(names[taken])).mustGet()
				as, _, err := c.join(d1, names)
				held, ok := errors.AsType[*driver.HeldError](err)
				if !ok {
					c.failf("TryAll with a name that is taken should be a *HeldError, got: %s", say(err))
				}
				if held.By.Name != names[taken] {
					c.failf("%q was in the way, but TryAll says %q", names[taken], held.By.Name)
				}
				for i, a := range as {
					a.left = true
					c.mustBeOver(d1, a.r.Hold)
					if i != taken {
						c.ask(d2, named(names[i])).mustGet().release()
					}
				}
				b.mustHold()
				b.release()
			}
			for _, a := range c.mustJoin(d1, names) {
				a.release()
			}
		},
	},
	{
		Name:     "in one step",
		Sentence: "Contenders that TryAll overlapping names in different orders exclude one another, and never keep one another out for good.",
		with:     exclusiveOnly,
		needs:    joins,
		slow:     true,
		check: func(c *run) {
			names := c.joined(3)
			var inside [3]atomic.Int32
			var got atomic.Int32
			var wg sync.WaitGroup
			end := time.Now().Add(time.Second)
			for k, order := range [][]int{{0, 1}, {1, 2}, {2, 0}} {
				d := c.driver()
				wg.Go(func() {
					for n := 0; time.Now().Before(end) || k == 0 && got.Load() == 0 && n < 1000; n++ {
						as, gs, err := c.join(d, []string{names[order[0]], names[order[1]]})
						if err != nil {
							for _, a := range as {
								a.left = true
							}
							if !errors.Is(err, driver.ErrHeld) {
								c.errorf("TryAll: %s", say(err))
								return
							}
							time.Sleep(time.Millisecond)
							continue
						}
						got.Add(1)
						for _, i := range order {
							if inside[i].Add(1) != 1 {
								c.errorf("two hold %q", names[i])
							}
						}
						for i, a := range as {
							a.took(gs[i])
						}
						time.Sleep(time.Millisecond)
						for n, i := range order {
							inside[i].Add(-1)
							if err := d.Release(c.ctx, as[n].r.Hold, driver.End{}); err != nil {
								c.errorf("Release: %s", say(err))
							}
							as[n].granted, as[n].left = false, true
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			wg.Wait()
			if got.Load() == 0 {
				c.failf("nobody ever got all")
			}
		},
	},
	{
		Name:     "an unheard answer is undone",
		Sentence: "After a TryAll whose answer nobody heard, Leave of each place leaves nothing of it in the store.",
		with:     exclusiveOnly,
		needs:    joins,
		check: func(c *run) {
			d1, d2 := c.pair()
			names := c.joined(3)
			as, _, err := c.join(d1, names)
			if err != nil {
				c.failf("TryAll of free names: %s", say(err))
			}
			for i, a := range as {
				a.leave()
				c.mustBeOver(d1, a.r.Hold)
				c.ask(d2, named(names[i])).mustGet()
			}
		},
	},
	{
		Name:     "an unanswered request is undone",
		Sentence: "A TryAll that a silent store took is not called refused, and Leave of each place undoes it once the store answers again.",
		with:     exclusiveOnly,
		needs:    joins | stalls,
		check: func(c *run) {
			d1, d2 := c.pair()
			names := c.joined(2)
			c.ask(d1, named(c.freshName())).mustGet().release() // so that there is a connection
			resume := c.h.Stall(c.tb)
			ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
			as, _, err := c.joinWith(ctx, d1, names)
			cancel()
			resume()
			if err == nil {
				c.failf("TryAll was granted by a store that does not answer")
			}
			for _, certain := range []error{driver.ErrHeld, driver.ErrMismatch, driver.ErrInvalid, errors.ErrUnsupported} {
				if errors.Is(err, certain) {
					c.failf("the request may have arrived, but TryAll says %q", certain)
				}
			}
			for i, a := range as {
				for end := time.Now().Add(c.soon()); a.place.Leave(c.ctx) != nil; time.Sleep(50 * time.Millisecond) {
					if time.Now().After(end) {
						c.failf("Leave still fails %v after the store came back", c.soon())
					}
				}
				a.left = true
				b := c.ask(d2, named(names[i])).mustGet()
				c.pause()
				b.mustHold()
			}
		},
	},
}

// joined are names that one step can have on every store that can join at all: what is in braces puts them on one node.
func (c *run) joined(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("{%s}%d", c.name, i)
	}
	return names
}

func (c *run) join(d driver.Driver, names []string) ([]*asker, []driver.Grant, error) {
	return c.joinWith(c.ctx, d, names)
}

func (c *run) joinWith(ctx context.Context, d driver.Driver, names []string) ([]*asker, []driver.Grant, error) {
	as := make([]*asker, len(names))
	ps := make([]driver.Place, len(names))
	for i, name := range names {
		as[i] = c.newAsker(d, named(name), plainly)
		p, err := d.Enter(c.ctx, as[i].r)
		if err != nil {
			return as, nil, fmt.Errorf("to enter: %w", err)
		}
		as[i].place, ps[i] = p, p
	}
	gs, err := d.(driver.Joiner).TryAll(ctx, ps)
	if err == nil && len(gs) != len(ps) {
		err = fmt.Errorf("%d grants for %d places", len(gs), len(ps))
	}
	return as, gs, err
}

func plainly(r *driver.Request) { r.Kind, r.Wait = driver.Exclusive, false }

func (c *run) mustJoin(d driver.Driver, names []string) []*asker {
	c.tb.Helper()
	as, gs, err := c.join(d, names)
	if err != nil {
		c.failf("TryAll of free names: %s", say(err))
	}
	for i, a := range as {
		a.took(gs[i])
		c.askers = append(c.askers, a)
	}
	return as
}
