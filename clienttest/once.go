package clienttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var recordsOnce = []driver.Kind{driver.Once}

// order is what a Once answers.
type order struct {
	ID    int
	Token int64
}

var onceCases = []Case{
	{
		Name:     "many callers, one run",
		Sentence: "Of all callers in all clients one runs the function, and all get its result.",
		with:     recordsOnce,
		check: func(c *run) {
			nodes := c.several(4, pawl.Options{})
			var runs atomic.Int64
			var wg sync.WaitGroup
			for _, n := range nodes {
				for range 5 {
					wg.Go(func() {
						o, err := pawl.Once(c.ctx, n.Client, c.name, c.long(), func(ctx context.Context) (order, error) {
							time.Sleep(50 * time.Millisecond)
							return order{int(runs.Add(1)), tokenOf(ctx, c.name)}, nil
						})
						if err != nil || o.ID != 1 {
							c.errorf("got %+v, %v, want the result of the first run", o, err)
						}
					})
				}
			}
			wg.Wait()
			if n := runs.Load(); n != 1 {
				c.failf("%d runs", n)
			}
		},
	},
	{
		Name:     "an error is not recorded",
		Sentence: "After a run that answered an error, or panicked, the next caller runs the function again.",
		with:     recordsOnce,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			bad := errors.New("no card")
			_, err := pawl.Once(c.ctx, a.Client, c.name, c.long(), func(context.Context) (order, error) { return order{}, bad })
			c.mustBe("a run that failed", err, bad)
			func() {
				defer func() { recover() }()
				pawl.Once(c.ctx, b.Client, c.name, c.long(), func(context.Context) (order, error) { panic("out of paper") })
			}()
			o, err := pawl.Once(c.ctx, b.Client, c.name, c.long(), func(context.Context) (order, error) { return order{ID: 3}, nil })
			if err != nil || o.ID != 3 {
				c.failf("the next caller: got %+v, %v", o, err)
			}
			o, err = pawl.Once(c.ctx, a.Client, c.name, c.long(), func(context.Context) (order, error) { return order{ID: 4}, nil })
			if err != nil || o.ID != 3 {
				c.failf("a caller after that: got %+v, %v, want what was recorded", o, err)
			}
		},
	},
	{
		Name:     "a crash before the record",
		Sentence: "When a client dies in the function, the next caller runs it again after the TTL, with a larger token.",
		with:     recordsOnce,
		check: func(c *run) {
			a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
			var first int64
			for ran := false; !ran; {
				_, err := pawl.Once(c.ctx, a.Client, c.name, c.long(), func(ctx context.Context) (order, error) {
					ran, first = true, tokenOf(ctx, c.name)
					a.crash()
					c.mustEnd("the context of a run that was cut off", ctx.Done(), c.short())
					return order{ID: 1}, nil
				})
				if ran || !slow(err) {
					c.mustBe("a run that was cut off", err, pawl.ErrLost)
				}
			}
			ctx, stop := context.WithTimeout(c.ctx, 2*c.short()+c.soon())
			defer stop()
			got, err := pawl.Once(ctx, b.Client, c.name, c.long(), func(ctx context.Context) (order, error) {
				return order{2, tokenOf(ctx, c.name)}, nil
			})
			if err != nil || got.ID != 2 || got.Token <= first && first != 0 {
				c.failf("the next caller: got %+v, %v, want a run with a token beyond %d", got, err, first)
			}
		},
	},
	{
		Name:     "a paused run cannot overwrite",
		Sentence: "A run that was paused past its TTL, until another was recorded, changes nothing of that, and its caller is told.",
		with:     recordsOnce,
		check: func(c *run) {
			a, b := c.node(pawl.Options{TTL: c.short(), NoKeepalive: true}), c.node(pawl.Options{})
			for ran := false; !ran; {
				_, err := pawl.Once(c.ctx, a.Client, c.name, c.long(), func(context.Context) (order, error) {
					ran = true
					ctx, stop := context.WithTimeout(c.ctx, 2*c.short()+c.soon())
					defer stop()
					got, err := pawl.Once(ctx, b.Client, c.name, c.long(), func(context.Context) (order, error) { return order{ID: 2}, nil })
					if err != nil || got.ID != 2 {
						c.failf("the next caller: got %+v, %v, want its own run", got, err)
					}
					return order{ID: 1}, nil
				})
				if ran || !slow(err) {
					c.mustBe("the paused run", err, pawl.ErrLost)
				}
			}
			for _, n := range []*node{b, c.node(pawl.Options{})} {
				got, err := pawl.Once(c.ctx, n.Client, c.name, c.long(), func(context.Context) (order, error) { return order{ID: 3}, nil })
				if err != nil || got.ID != 2 {
					c.failf("later: got %+v, %v, want what the second run recorded", got, err)
				}
			}
		},
	},
	{
		Name:     "for a window",
		Sentence: "A result is remembered for the window, and then the function runs again.",
		with:     recordsOnce,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			var runs atomic.Int64
			call := func(n *node) int {
				o, err := pawl.Once(c.ctx, n.Client, c.name, c.short(), func(context.Context) (order, error) {
					return order{ID: int(runs.Add(1))}, nil
				})
				if err != nil {
					c.failf("Once: %v", err)
				}
				return o.ID
			}
			begin := time.Now()
			if got := call(a); got != 1 {
				c.failf("the first call ran %d times", got)
			}
			c.within(c.short(), "the function runs again", func() bool { return call(b) == 2 })
			if d := time.Since(begin); d < c.short()-10*time.Millisecond {
				c.failf("the result was forgotten after %v of %v", d, c.short())
			}
		},
	},
}
