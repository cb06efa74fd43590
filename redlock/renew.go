package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// round is one renewal of several holds at all members.
type round struct {
	d    *Driver
	sent driver.Instant
	hs   []driver.Hold
	done chan struct{} // closed when every hold is decided

	mu    sync.Mutex
	items []item
	left  int // undecided holds
	out   int // members that have not answered
}

// item is one hold of a round.
type item struct {
	c       *claim // nil: got elsewhere
	need    int
	ttl     time.Duration
	ok      int
	gone    int
	errs    []error // by member
	decided bool
	err     error
}

// Renew extends holds at all members and answers as soon as every hold is confirmed or refused by enough of them.
// Members that lost or never got a hold that a majority confirms are filled again in the background.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	if len(hs) == 0 {
		return errs
	}
	if err := d.ready(); err != nil {
		return fill(errs, err)
	}
	if ctx.Err() != nil {
		return fill(errs, fmt.Errorf("redlock: %w", context.Cause(ctx)))
	}
	r := &round{d: d, sent: driver.Now(), done: make(chan struct{}), items: make([]item, len(hs)), left: len(hs), out: len(d.members)}
	limit := d.nodeLimit(hs[0].TTL)
	var ask []int // the holds that members are asked about
	var expired []*exit
	for i, h := range hs {
		limit = min(limit, d.nodeLimit(h.TTL))
		h.Token = 0
		h.TTL += drift(h.TTL) // so that it surely lasts for the TTL by our clock
		r.hs = append(r.hs, h)
		x := &r.items[i]
		x.c, x.need, x.ttl, x.errs = d.find(h.ID), d.votes(h.Kind, 0), hs[i].TTL, make([]error, len(d.members))
		if x.c != nil {
			x.need = x.c.need
		}
		switch {
		case x.ttl > d.opts.MaxTTL:
			x.decide(r, fmt.Errorf("redlock: %w: a TTL of %v is longer than Options.MaxTTL, %v", driver.ErrInvalid, x.ttl, d.opts.MaxTTL))
		case x.c != nil && !x.c.is(hs[i]):
			x.decide(r, driver.ErrNotHeld)
		case x.c != nil && x.c.expired():
			expired = append(expired, x.c.abandon())
			x.decide(r, driver.ErrNotHeld)
		default:
			ask = append(ask, i)
		}
	}
	if len(ask) > 0 {
		for _, m := range d.members {
			d.tasks.run(func() { r.ask(m, ask, limit) })
		}
		select {
		case <-r.done:
		case <-ctx.Done():
		case <-d.quit:
		}
	}
	for _, x := range expired { // members may keep a hold a moment longer than we trust it
		x.wait(ctx, limit)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.items {
		x := &r.items[i]
		errs[i] = x.err
		switch {
		case x.decided:
		case ctx.Err() != nil:
			errs[i] = fmt.Errorf("redlock: %w (%s)", context.Cause(ctx), r.missing(x))
		default:
			errs[i] = errEnded
		}
	}
	return errs
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// is reports whether h is the claim and may be renewed.
func (c *claim) is(h driver.Hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over && c.r.Name == h.Name && (h.Token == 0 || h.Token == c.token)
}

// expired reports whether nobody may trust the claim any more. It does not live again then.
func (c *claim) expired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return driver.Now() >= c.until
}

// ask renews at one member.
func (r *round) ask(m *member, ask []int, limit time.Duration) {
	d := r.d
	ctx, stop := context.WithTimeout(d.base, limit)
	defer stop()
	hs := make([]driver.Hold, len(ask))
	for i, n := range ask {
		hs[i] = r.hs[n]
		if c := r.items[n].c; c != nil {
			hs[i].Token = c.at(m).Token
		}
	}
	sent := driver.Now()
	errs := m.d.Renew(ctx, hs)
	var last error
	for i, n := range ask {
		err := errors.New("no answer for this hold")
		if i < len(errs) {
			err = errs[i]
		}
		if c := r.items[n].c; c != nil {
			err = c.renewed(ctx, m, sent, err)
		}
		last = err
		r.answer(n, m, err)
	}
	m.heard(ctx, last, limit)
	r.end(ask)
}

// renewed notes what a member said of the claim. A member that has it but was never told the interval's end is told now,
// or does not count: each majority that confirms the hold knows its last token.
func (c *claim) renewed(ctx context.Context, m *member, sent driver.Instant, err error) error {
	s := &c.seats[m.no]
	c.mu.Lock()
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		if sent >= s.since {
			s.held, s.raised = false, false
		}
	case err == nil:
		s.place = nil
		if !s.held {
			s.held, s.since = true, driver.Now()
		}
	}
	raise := err == nil && !s.raised && c.end != 0
	c.mu.Unlock()
	if !raise {
		return err
	}
	if err := m.raiser.Raise(ctx, c.at(m), c.end); err != nil {
		return fmt.Errorf("its token was not raised: %w", err)
	}
	c.mu.Lock()
	s.raised = s.held
	c.mu.Unlock()
	return nil
}

func (r *round) answer(n int, m *member, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &r.items[n]
	x.errs[m.no] = err
	switch {
	case err == nil:
		x.ok++
	case errors.Is(err, driver.ErrNotHeld):
		x.gone++
	}
	switch {
	case x.ok >= x.need:
		x.confirm(r)
	case x.gone >= r.d.majority:
		x.decide(r, driver.ErrNotHeld)
		if x.c != nil {
			x.c.d.tasks.run(func() { x.c.abandon() })
		}
	}
}

// confirm decides that the hold lives on.
func (x *item) confirm(r *round) {
	if x.decided {
		return
	}
	x.decide(r, nil)
	if c := x.c; c != nil {
		c.mu.Lock()
		c.until = max(c.until, r.sent.Add(x.ttl))
		c.mu.Unlock()
	}
}

func (x *item) decide(r *round, err error) {
	if x.decided {
		return
	}
	x.decided, x.err = true, err
	if r.left--; r.left == 0 {
		close(r.done)
	}
}

// end notes that a member has answered for all holds. The last one fills the gaps of what is confirmed and decides what
// is not.
func (r *round) end(ask []int) {
	r.mu.Lock()
	r.out--
	last := r.out == 0
	r.mu.Unlock()
	if !last {
		return
	}
	for _, n := range ask {
		r.mu.Lock()
		x := &r.items[n]
		ok, open := x.ok, !x.decided
		r.mu.Unlock()
		var jobs []chan bool
		if x.c != nil && ok >= r.d.majority {
			for i, m := range r.d.members {
				if errors.Is(x.errs[i], driver.ErrNotHeld) {
					ch := make(chan bool, 1)
					jobs = append(jobs, ch)
					x.c.run(func() { ch <- x.c.refill(m) })
				}
			}
		}
		if !open {
			continue
		}
		r.d.tasks.run(func() {
			for _, ch := range jobs {
				if <-ch {
					ok++
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if ok >= x.need {
				x.ok = ok
				x.confirm(r)
			} else {
				x.decide(r, r.missing(x))
			}
		})
	}
}

func (r *round) missing(x *item) error {
	return &QuorumError{Op: "renew", OK: x.ok, Need: x.need, Members: slices.Clone(x.errs)}
}

// refill gives the claim to a member that does not have it. That is right only while a majority still has it, so that
// nobody else can have got it in between, and where no undo may still arrive. An answer that comes later is undone.
func (c *claim) refill(m *member) bool {
	s := &c.seats[m.no]
	select {
	case s.turn <- struct{}{}:
	default:
		return false // somebody is at it
	}
	defer s.give()
	d := c.d
	c.mu.Lock()
	ok := c.r.Notify != nil && !c.over && !s.held && !s.spent && driver.Now() < c.until
	limit := min(d.nodeLimit(c.r.TTL), max(c.until.Until(), time.Millisecond))
	s.gone = false
	if ok {
		s.token = 0
	}
	c.mu.Unlock()
	if !ok {
		return false
	}
	ctx, stop := context.WithTimeout(d.base, limit)
	defer stop()
	p, err := m.d.Enter(ctx, c.request(m))
	if err != nil {
		return false
	}
	g, err := p.Try(ctx, 1)
	m.heard(ctx, err, limit)
	switch {
	case err == nil:
		c.mu.Lock()
		s.token = g.Token
		c.mu.Unlock()
	case sure(err):
		return false
	default:
		if !c.doubt(m, p) {
			c.undo(m, p)
		}
		return false
	}
	if c.end != 0 {
		err = m.raiser.Raise(ctx, c.at(m), c.end)
	}
	if errors.Is(err, driver.ErrNotHeld) {
		return false
	}
	raised := err == nil
	if !c.seat(m, raised) {
		c.undo(m, nil)
		return false
	}
	return raised
}
