package clienttest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var stripedCases = []Case{
	{
		Name:     "a sharded sale",
		Sentence: "A stock in parts is sold to the last item and not beyond, and nobody is turned away before.",
		with:     []driver.Kind{driver.Exclusive},
		check: func(c *run) {
			const parts, items, buyers = 4, 30, 42
			var stock [parts]atomic.Int64
			for k := range items {
				stock[k%parts].Add(1)
			}
			nodes := c.several(3, pawl.Options{})
			var sold, turned atomic.Int64
			var wg sync.WaitGroup
			for k, n := range nodes {
				for g := range 2 {
					wg.Go(func() {
						for b := range buyers / 6 {
							s := n.Striped(c.name, parts)
							found, err := s.Any(c.ctx, s.Of(fmt.Sprint(k, g, b)), func(_ context.Context, i int) (bool, error) {
								left := stock[i].Load()
								if left == 0 {
									return false, nil
								}
								time.Sleep(time.Millisecond)
								stock[i].Store(left - 1)
								sold.Add(1)
								return true, nil
							})
							switch {
							case err != nil:
								c.errorf("Any: %v", err)
							case !found:
								turned.Add(1)
								if got := sold.Load(); got != items {
									c.errorf("a buyer was turned away when %d of %d were sold", got, items)
								}
							}
						}
					})
				}
			}
			wg.Wait()
			if s, t := sold.Load(), turned.Load(); s != items || t != buyers-items {
				c.failf("%d sold and %d turned away, want %d and %d", s, t, items, buyers-items)
			}
		},
	},
	{
		Name:     "try and drain",
		Sentence: "TryAny passes over what is held and says so; Each visits every segment once.",
		with:     []driver.Kind{driver.Exclusive},
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			const parts = 4
			l := c.take(b.Striped(c.name, parts).Segment(2), 0)
			var seen []int
			found, err := a.Striped(c.name, parts).TryAny(c.ctx, 1, func(_ context.Context, i int) (bool, error) {
				seen = append(seen, i)
				return false, nil
			})
			c.mustBe("TryAny beside a holder", err, pawl.ErrHeld)
			if found || fmt.Sprint(seen) != "[1 3 0]" {
				c.failf("TryAny: found %v in %v, want nothing in [1 3 0]", found, seen)
			}
			c.free(l)
			seen = nil
			err = a.Striped(c.name, parts).Each(c.ctx, func(_ context.Context, i int) error {
				seen = append(seen, i)
				c.mustBeHeld(b.Striped(c.name, parts).Segment(i))
				return nil
			})
			if err != nil || fmt.Sprint(seen) != "[0 1 2 3]" {
				c.failf("Each: %v, %v", seen, err)
			}
		},
	},
}
