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

var elects = []driver.Kind{driver.Leader}

var electionCases = []Case{
	{
		Name:     "one stop for each start",
		Sentence: "Terms follow one another with rising numbers, each is over before the next begins, and every start of a leader has one stop.",
		with:     elects,
		check: func(c *run) {
			nodes := c.several(3, pawl.Options{TTL: c.short()})
			ctx, stop := context.WithCancel(c.ctx)
			defer stop()
			type term struct {
				by    int
				lease *pawl.Lease
			}
			var mu sync.Mutex
			var terms []term
			starts, stops := make([]atomic.Int64, len(nodes)), make([]atomic.Int64, len(nodes))
			var wg sync.WaitGroup
			for k, n := range nodes {
				wg.Go(func() {
					err := n.Election(c.name).Run(ctx, "v", func(ctx context.Context) error {
						l := pawl.FromContext(ctx, c.name)
						mu.Lock()
						if len(terms) > 0 {
							last := terms[len(terms)-1].lease
							if last.Err() == nil {
								c.errorf("a term begins while the one before is trusted")
							}
							if last.Token() >= l.Token() {
								c.errorf("the term %d is followed by %d", last.Token(), l.Token())
							}
						}
						terms = append(terms, term{k, l})
						mu.Unlock()
						if starts[k].Add(1) != stops[k].Load()+1 {
							c.errorf("a leader was started before it had stopped")
						}
						<-ctx.Done()
						stops[k].Add(1)
						return nil
					})
					c.endsWith("Run", err, context.Canceled)
				})
			}
			led := func() (int, int) {
				mu.Lock()
				defer mu.Unlock()
				if len(terms) == 0 {
					return 0, -1
				}
				return len(terms), terms[len(terms)-1].by
			}
			c.within(0, "somebody leads", func() bool { n, _ := led(); return n > 0 })
			n, victim := led()
			nodes[victim].crash()
			c.within(2*c.short(), "another one leads", func() bool { m, by := led(); return m > n && by != victim })
			c.within(0, "the one that was cut off has stopped", func() bool { return stops[victim].Load() == starts[victim].Load() })
			stop()
			wg.Wait()
			for k := range nodes {
				if starts[k].Load() != stops[k].Load() {
					c.failf("%d starts and %d stops of one leader", starts[k].Load(), stops[k].Load())
				}
				if nodes[k].Election(c.name).IsLeader() {
					c.failf("one still believes to lead")
				}
			}
		},
	},
	{
		Name:     "resigning passes on",
		Sentence: "When a leader's function returns, Run returns what it answered, and the next in line leads at once with a larger term.",
		with:     elects,
		check: func(c *run) {
			a, b := c.node(pawl.Options{}), c.node(pawl.Options{})
			first, err := a.Election(c.name).Campaign(c.ctx, "a")
			if err != nil {
				c.failf("Campaign: %v", err)
			}
			resign := make(chan struct{})
			ran := make(chan error, 1)
			var term atomic.Int64
			reason := errors.New("enough")
			go func() {
				ran <- b.Election(c.name).Run(c.ctx, "b", func(ctx context.Context) error {
					term.Store(tokenOf(ctx, c.name))
					if !b.Election(c.name).IsLeader() {
						c.errorf("a leader does not know it")
					}
					select {
					case <-resign:
					case <-ctx.Done():
					}
					return reason
				})
			}()
			c.within(0, "the second is in line", func() bool { return b.waiting() > 0 })
			if !a.Election(c.name).IsLeader() || b.Election(c.name).IsLeader() {
				c.failf("IsLeader is wrong")
			}
			c.free(first)
			c.within(0, "the second leads", func() bool { return term.Load() != 0 })
			if term.Load() <= first.Token() {
				c.failf("the term %d is followed by %d", first.Token(), term.Load())
			}
			waiting := make(chan *pawl.Lease, 1)
			go func() {
				l, err := a.Election(c.name).Campaign(c.ctx, "a")
				if err != nil {
					c.errorf("Campaign: %v", err)
				}
				waiting <- l
			}()
			c.within(0, "the first is in line again", func() bool { return a.waiting() > 0 })
			close(resign)
			c.within(0, "the first leads again", func() bool { return len(waiting) > 0 })
			c.free(<-waiting)
			c.within(0, "Run returns", func() bool { return len(ran) > 0 })
			c.mustBe("Run", <-ran, reason)
		},
	},
	{
		Name:     "draining",
		Sentence: "A leader that is asked to stop keeps its term for as long as its function drains, an Overrun event tells when that takes longer than a TTL, and then the next in line leads.",
		with:     elects,
		check: func(c *run) {
			c.inTime(func() bool {
				var overruns, lost atomic.Int64
				a := c.node(pawl.Options{TTL: c.short(), OnEvent: func(e pawl.Event) {
					switch e.Op {
					case pawl.Overrun:
						overruns.Add(1)
					case pawl.Lost:
						lost.Add(1)
					}
				}})
				b := c.node(pawl.Options{})
				d := c.drain(a, b, 0)
				defer d.end()
				c.within(c.short(), "an Overrun event", func() bool { return overruns.Load() > 0 || lost.Load() > 0 })
				time.Sleep(c.short())
				early := len(d.next) > 0
				if lost.Load() > 0 {
					return false
				}
				if early {
					c.failf("another one leads while the first still drains")
				}
				if n := overruns.Load(); n != 1 {
					c.failf("%d Overrun events", n)
				}
				d.end()
				err := <-d.ran
				if errors.Is(err, pawl.ErrLost) {
					return false
				}
				c.mustBe("Run", err, context.Canceled)
				c.within(0, "the next one leads", func() bool { return len(d.next) > 0 })
				l := <-d.next
				if l.Token() <= d.term {
					c.failf("the term %d is followed by %d", d.term, l.Token())
				}
				c.free(l)
				return true
			})
		},
	},
	{
		Name:     "draining, with a limit",
		Sentence: "A leader whose function does not stop within the limit of Drain loses its term, and the next in line leads after the TTL, with a larger one.",
		with:     elects,
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short()}), c.node(pawl.Options{})
				d := c.drain(a, b, 100*time.Millisecond)
				defer d.end()
				c.mustEnd("the term of one that does not stop", d.lease.Done(), 100*time.Millisecond)
				if why, ok := errors.AsType[*pawl.LostError](d.lease.Err()); !ok || why.Reason != pawl.TooLong {
					return false // lost before
				}
				c.within(2*c.short(), "the next one leads, while the first still works", func() bool { return len(d.next) > 0 })
				l := <-d.next
				if l.Token() <= d.term {
					c.failf("the term %d is followed by %d", d.term, l.Token())
				}
				d.end()
				c.mustBe("Run", <-d.ran, context.Canceled, pawl.ErrLost)
				if err := l.Err(); err != nil {
					c.failf("the next term: %v", err)
				}
				c.free(l)
				return true
			})
		},
	},
	{
		Name:     "observed",
		Sentence: "Everybody sees who leads, with its value and term, and every later change.",
		with:     elects,
		needs:    inspects,
		check: func(c *run) {
			a, b := c.node(pawl.Options{Holder: "the first"}), c.node(pawl.Options{Holder: "the second"})
			watcher := c.node(pawl.Options{})
			nobody, err := watcher.Election(c.name).Leader(c.ctx)
			if err != nil || nobody.Term != 0 {
				c.failf("before the election: got %+v, %v, want no leader", nobody, err)
			}
			var mu sync.Mutex
			var seen []pawl.Leader
			ctx, stop := context.WithCancel(c.ctx)
			var wg sync.WaitGroup
			wg.Go(func() {
				for l, err := range watcher.Election(c.name).Observe(ctx) {
					if err != nil {
						c.errorf("Observe: %v", err)
						return
					}
					mu.Lock()
					seen = append(seen, l)
					mu.Unlock()
				}
			})
			defer wg.Wait()
			defer stop()
			saw := func(value string, term int64) func() bool {
				return func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(seen) > 0 && string(seen[len(seen)-1].Value) == value && seen[len(seen)-1].Term == term
				}
			}
			c.within(0, "nobody is seen to lead", saw("", 0))
			first, err := a.Election(c.name).Campaign(c.ctx, "10.0.0.1:80")
			if err != nil {
				c.failf("Campaign: %v", err)
			}
			c.within(0, "the first is seen", saw("10.0.0.1:80", first.Token()))
			l, err := b.Election(c.name).Leader(c.ctx)
			if err != nil || string(l.Value) != "10.0.0.1:80" || l.Term != first.Token() {
				c.failf("Leader: got %+v, %v", l, err)
			}
			next := make(chan *pawl.Lease, 1)
			go func() {
				l, err := b.Election(c.name).Campaign(c.ctx, "10.0.0.2:80")
				if err != nil {
					c.errorf("Campaign: %v", err)
				}
				next <- l
			}()
			c.within(0, "the second is in line", func() bool { return b.waiting() > 0 })
			c.free(first)
			c.within(0, "the second leads", func() bool { return len(next) > 0 })
			second := <-next
			c.within(0, "the second is seen", saw("10.0.0.2:80", second.Token()))
			c.free(second)
			c.within(0, "nobody is seen to lead again", saw("", 0))
		},
	},
}

// drained is a leader that was asked to stop and does not, and one who waits in line.
type drained struct {
	lease *pawl.Lease // the leader's
	term  int64
	ran   chan error       // what its Run answered
	next  chan *pawl.Lease // of the one in line
	end   func()           // lets it stop
}

// drain makes one. Its context has ended, and the other is in line.
func (c *run) drain(a, b *node, limit time.Duration) *drained {
	c.tb.Helper()
	d := &drained{ran: make(chan error, 1), next: make(chan *pawl.Lease, 1)}
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	name := c.name
	leads, stopping := make(chan *pawl.Lease, 1), make(chan struct{})
	d.end = sync.OnceFunc(func() { close(stopping) })
	go func() {
		d.ran <- a.Election(name).Drain(limit).Run(ctx, "a", func(ctx context.Context) error {
			select {
			case leads <- pawl.FromContext(ctx, name):
			default: // it was lost, and taken again
			}
			<-stopping
			return nil
		})
	}()
	c.within(0, "the first leads", func() bool { return len(leads) > 0 })
	d.lease = <-leads
	d.term = d.lease.Token()
	before := b.waiting()
	go func() {
		l, err := b.Election(name).Campaign(c.ctx, "b")
		if err != nil {
			if c.ctx.Err() == nil {
				c.errorf("Campaign: %v", err)
			}
			return
		}
		d.next <- l
	}()
	c.within(0, "the second is in line", func() bool { return b.waiting() > before || len(d.next) > 0 })
	if len(d.next) > 0 && d.lease.Err() == nil {
		d.end()
		c.failf("two lead")
	}
	return d
}
