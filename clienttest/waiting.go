package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

var waitingCases = []Case{
	{
		Name:     "an unlock wakes",
		Sentence: "Who waits in another client is woken by Unlock, and not by the end of the TTL.",
		flavours: exclusive,
		check: func(c *run) {
			o := pawl.Options{TTL: 4 * c.long()}
			a, b := c.node(o), c.node(o)
			for range 3 {
				l := c.take(c.lock(a, c.name), 0)
				before := b.waiting()
				got := make(chan *pawl.Lease, 1)
				go func() {
					defer close(got)
					next, err := c.lock(b, c.name).Lock(c.ctx)
					if err != nil {
						c.errorf("Lock: %v", err)
					}
					got <- next
				}()
				c.within(0, "the waiter is in line", func() bool { return b.waiting() > before })
				select {
				case <-got:
					c.failf("got in beside the holder")
				case <-time.After(100 * time.Millisecond):
				}
				c.free(l)
				var next *pawl.Lease
				c.within(0, "the waiter gets in", func() bool {
					select {
					case next = <-got:
						return true
					default:
						return false
					}
				})
				c.free(next)
				a, b = b, a
			}
		},
	},
	{
		Name:     "first come, first served",
		Sentence: "A FairMutex serves the waiters of all clients in the order in which they came.",
		flavours: []flavour{fair},
		check: func(c *run) {
			nodes := c.several(3, pawl.Options{})
			// A waiter that a busy machine keeps from its turn loses it; hardly three times in a row.
			for try := 1; ; try++ {
				got := c.served(nodes)
				if slices.IsSorted(got) {
					return
				}
				if try == 3 {
					c.failf("they came in order and were served as %v", got)
				}
			}
		},
	},
	{
		Name:     "others have their turn",
		Sentence: "Handing a lock on inside one client does not keep another client out for ever.",
		flavours: []flavour{mutex, fair},
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			r := &region{c: c}
			var stop atomic.Bool
			var mine atomic.Int64
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					for !stop.Load() {
						err := c.lock(a, c.name).Do(c.ctx, func(ctx context.Context) error {
							r.visit(tokenOf(ctx, c.name))
							mine.Add(1)
							return nil
						})
						if err != nil {
							c.errorf("Do: %v", err)
							return
						}
					}
				})
			}
			defer wg.Wait()
			defer stop.Store(true)
			for range 5 {
				before := mine.Load()
				c.within(0, "the other client works too", func() bool { return mine.Load() > before })
				l := c.take(c.lock(b, c.name), c.soon())
				r.visit(l.Token())
				c.free(l)
			}
		},
	},
	{
		Name:     "a wait ends with its context",
		Sentence: "A Lock whose context ends answers what ended it and who is in the way, and leaves nothing behind.",
		flavours: exclusive,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			l := c.take(c.lock(a, c.name), 0)
			ctx, stop := context.WithCancel(c.ctx)
			ended := make(chan error, 1)
			go func() {
				_, err := c.lock(b, c.name).Lock(ctx)
				ended <- err
			}()
			c.within(0, "the waiter is in line", func() bool { return b.waiting() > 0 })
			stop()
			c.within(0, "the wait ends", func() bool { return len(ended) > 0 })
			err := <-ended
			c.mustBe("a cancelled wait", err, context.Canceled, pawl.ErrHeld)
			_, err = c.lock(&node{Client: b.With(pawl.Options{Wait: 50 * time.Millisecond})}, c.name).Lock(c.ctx)
			c.mustBe("a wait of 50 ms", err, context.DeadlineExceeded)
			c.free(l)
			c.free(c.take(c.lock(a, c.name), 0)) // nobody in line is waited for
			c.free(c.take(c.lock(b, c.name), 0))
		},
	},
}

// served lets six waiters of three clients come one after another, and answers the order in which they were served.
func (c *run) served(nodes []*node) []int {
	c.tb.Helper()
	holder := c.take(c.lock(nodes[0], c.name), 0)
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	for k := range 6 {
		n := nodes[k%3]
		before := n.waiting()
		wg.Go(func() {
			err := c.lock(n, c.name).Do(c.ctx, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, k)
				return nil
			})
			if err != nil {
				c.errorf("Do: %v", err)
			}
		})
		c.within(0, fmt.Sprintf("waiter %d is in line", k), func() bool { return n.waiting() > before })
	}
	c.free(holder)
	wg.Wait()
	return got
}

var unsupportedCases = []Case{
	{
		Name:     "what the store lacks",
		Sentence: "What needs a power that the store lacks answers errors.ErrUnsupported.",
		lacks:    true,
		check: func(c *run) {
			n := c.node(pawl.Options{})
			can := powersOf(n.wire.inner)
			no := func(what string, err error) { c.tb.Helper(); c.mustBe(what, err, errors.ErrUnsupported) }
			for _, f := range exclusive {
				if !c.h.carries(f.with...) {
					_, err := f.lock(n.Client, freshName()).TryLock(c.ctx)
					no(f.name, err)
					_, err = f.lock(n.Client, freshName()).Lock(c.ctx)
					no(f.name, err)
					_, err = pawl.All(f.lock(n.Client, freshName())).Lock(c.ctx)
					no("All of a "+f.name, err)
				}
			}
			work := func(context.Context) error { c.errorf("work was run"); return nil }
			if !c.h.carries(driver.Leader) {
				_, err := n.Election(c.name).Campaign(c.ctx, "v")
				no("Campaign", err)
				no("Election.Run", n.Election(c.name).Run(c.ctx, "v", work))
			}
			if !c.h.carries(driver.Once) {
				_, err := pawl.Once(c.ctx, n.Client, c.name, time.Hour, func(ctx context.Context) (int, error) { return 0, work(ctx) })
				no("Once", err)
				no("Schedule.Run", n.Schedule(c.name, time.Second).Run(c.ctx, work))
			}
			if can&inspects == 0 {
				_, err := n.Inspect(c.ctx, c.name)
				no("Inspect", err)
				for _, err := range n.List(c.ctx, c.name) {
					no("List", err)
				}
				_, err = n.Election(c.name).Leader(c.ctx)
				no("Leader", err)
			}
			if can&attaches == 0 && c.h.carries(driver.Exclusive) {
				l := c.take(n.Mutex(c.name), 0)
				_, err := l.Detach()
				no("Detach", err)
				if err := l.Err(); err != nil {
					c.failf("after a refused Detach the lease is %v", err)
				}
				c.mustBeHeld(c.node(pawl.Options{}).Mutex(c.name))
				c.free(l)
				_, err = n.Attach(c.ctx, "{}")
				no("Attach", err)
			}
		},
	},
}
