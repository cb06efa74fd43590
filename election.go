package pawl

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Election is a contest for one leader among those who campaign under a name, made by Client.Election. It is a name, not
// a state, and safe for concurrent use.
//
// A term is a Lease. Its Token is the number of the term and only rises, Unlock resigns (the next candidate in line leads
// at once), and its Context ends with the term, before the store can let another lead. A leader that was paused may still
// act after that: what it does must carry the term, and whoever receives it must refuse an older one.
type Election struct {
	c     *Client
	name  string
	drain time.Duration
}

// Election is the election of that name.
func (c *Client) Election(name string) *Election { return &Election{c: c, name: name} }

// Drain is the same election with a limit to how long Run keeps a term for work that does not stop when it should. Then the
// term is lost: it is no longer renewed, and runs out in the store within a TTL. Default: no limit.
func (e *Election) Drain(limit time.Duration) *Election {
	n := *e
	n.drain = limit
	return &n
}

// Leader is who leads, with the value that it published (its address, say). Term is 0 when nobody leads.
type Leader struct {
	Holder
	Term int64
}

// Campaign waits in line until this candidate leads, and publishes value. It blocks and fails as Mutex.Lock does.
func (e *Election) Campaign(ctx context.Context, value string) (*Lease, error) {
	t := e.target()
	t.value = []byte(value)
	return t.acquire(ctx, false)
}

func (e *Election) target() *target {
	return &target{c: e.c, kind: driver.Leader, name: e.name, permits: 1}
}

// Run campaigns, and runs fn as the leader, again after each term that was lost, until fn returns in a term that was not
// lost (its result is Run's) or ctx ends (the error matches ctx's cause, joined with fn's, and with ErrLost if the term was
// lost). fn must return when its context ends; it never runs twice at a time. When ctx ends, the term is kept while fn
// drains, and resigned when it has returned; an Overrun event tells when that takes longer than a TTL, and Drain limits it.
// Errors of the store do not end Run: it campaigns again after a pause.
func (e *Election) Run(ctx context.Context, value string, fn func(ctx context.Context) error) error {
	if e.drain < 0 {
		return invalid("election %q: the limit to drain is negative: %v", e.name, e.drain)
	}
	for pause := minPause; ; {
		l, err := e.Campaign(ctx, value)
		if ctx.Err() != nil && l == nil {
			return err
		}
		if err != nil {
			if final(err) {
				return err
			}
			if !sleep(ctx, pause) {
				return wrap("campaign", e.name, both(err, ctx))
			}
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		lost, err := e.term(ctx, l, fn)
		switch {
		case ctx.Err() != nil:
			return errors.Join(context.Cause(ctx), err, lost)
		case lost == nil:
			return err
		}
	}
}

// term runs fn for one term and resigns.
func (e *Election) term(ctx context.Context, l *Lease, fn func(context.Context) error) (lost, err error) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		warn := time.NewTimer(e.c.opts.TTL)
		defer warn.Stop()
		var limit <-chan time.Time
		if e.drain > 0 {
			t := time.NewTimer(e.drain)
			defer t.Stop()
			limit = t.C
		}
		for {
			select {
			case <-over:
				return
			case <-warn.C:
				e.c.events.emit(&e.c.opts, Event{Op: Overrun, Name: e.name, Token: l.token})
			case <-limit:
				var out after
				e.c.mu.Lock()
				e.c.lose(l.g, TooLong, nil, &out)
				e.c.mu.Unlock()
				out.run()
				return
			}
		}
	})
	defer func() {
		stop()
		close(over)
		if e := l.Unlock(); errors.Is(e, ErrLost) {
			lost = e
		}
	}()
	return nil, fn(l.Context(ctx))
}

// IsLeader reports whether a candidate of this client leads now. It asks no server and is true only while the term is
// trusted, but it is old news when it returns: guard what you do by the term's Context and number.
func (e *Election) IsLeader() bool {
	c := e.c.core
	c.mu.Lock()
	defer c.mu.Unlock()
	ln := c.lines[lineOf(e.target())]
	if ln == nil || ln.writer == nil || driver.Now() >= ln.writer.trust {
		return false
	}
	for l := ln.writer.leases; l != nil; l = l.next {
		if l.cause == nil { // else it was lost, or is being given back
			return true
		}
	}
	return false
}

// Leader asks the store who leads now.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	i, err := e.c.Inspect(ctx, e.name)
	if err != nil || len(i.Holders) == 0 {
		return Leader{}, err
	}
	return Leader{Holder: i.Holders[0], Term: i.Holders[0].Token}, nil
}

// observePoll is how often Observe looks at a store that cannot tell of changes, or that may have lost one.
const observePoll = time.Second

// Observe yields the leader now, and then every change that it sees, until ctx ends or the loop is left. Changes in quick
// succession may be seen as one. After an error it stops.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var changed <-chan struct{}
		last := int64(-1)
		for {
			if w, ok := e.c.d.(driver.Watcher); ok && changed == nil {
				ch, err := w.Watch(ctx, e.name)
				if err != nil && ctx.Err() == nil {
					yield(Leader{}, wrap("observe", e.name, err))
					return
				}
				changed = ch
			}
			l, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(Leader{}, err)
				return
			case l.Term != last:
				last = l.Term
				if !yield(l, nil) {
					return
				}
			}
			t := time.NewTimer(observePoll)
			select {
			case <-ctx.Done():
			case <-t.C:
			case _, ok := <-changed:
				if !ok {
					changed = nil // the watch was lost: begin another
				}
			}
			t.Stop()
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// final reports whether trying again can never help.
func final(err error) bool {
	for _, e := range []error{ErrClosed, ErrMismatch, ErrInvalid, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sleep waits for about d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
