package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// exit is the release of a claim at all members. It goes on in the background until every member has answered or has
// forgotten the hold by itself.
type exit struct {
	d       *Driver
	end     driver.Instant
	all     bool          // only word of every member decides: the next permits may need each of them
	decided chan struct{} // closed when err is final
	round   chan struct{} // closed when every member has answered, or failed to once

	mu      sync.Mutex
	heard   int // members that answered, or failed to once
	freed   int
	gone    int
	over    bool // the round
	final   bool
	err     error
	members []error // why there is no answer yet
}

// Release ends a hold at every member. It returns when a majority has answered, and the others too if they are not
// much slower: then the name can be taken. What other members do not answer goes on in the background, until the hold has run out there. ErrNotHeld: a majority does not have
// the hold. Any other error than that says which members did not answer; a repeated Release then waits for their word.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if err := d.ready(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redlock: %w", context.Cause(ctx))
	}
	c := d.find(h.ID)
	if c == nil { // got by somebody else
		if h.TTL <= 0 {
			h.TTL = d.opts.MaxTTL
		}
		c = newClaim(d, driver.Request{Hold: h}, d.votes(h.Kind, 0))
	} else if c.r.Name != h.Name || h.Token != 0 && h.Token != c.first() {
		return driver.ErrNotHeld
	}
	defer c.ears.stop()
	began := driver.Now()
	x := c.release(end)
	limit, round := max(h.TTL, time.Second), x.round
	select {
	case <-round: // this is a repetition: the silent members are being asked anyway
		limit, round = d.nodeLimit(h.TTL), nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-x.decided:
		// Members that are only a little slower get as long again: when nothing is left anywhere, whoever comes next finds
		// no divided votes.
		timer.Reset(max(driver.Now().Sub(began), time.Millisecond))
		select {
		case <-round:
		case <-timer.C:
		case <-ctx.Done():
		case <-d.quit:
		}
	case <-round:
	case <-timer.C:
	case <-ctx.Done():
		return x.result(context.Cause(ctx))
	case <-d.quit:
		return x.result(driver.ErrClosed)
	}
	return x.result(nil)
}

// result is the result, or what is missing so far.
func (x *exit) result(why error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.final {
		return x.err
	}
	e := &QuorumError{Op: "release", OK: x.freed + x.gone, Need: x.d.majority, Members: append([]error(nil), x.members...)}
	if why != nil {
		return fmt.Errorf("redlock: %w (%s)", why, e)
	}
	return e
}

func (c *claim) first() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// release starts the exit of a claim, once.
func (c *claim) release(end driver.End) *exit {
	d := c.d
	c.mu.Lock()
	if x := c.released; x != nil {
		c.mu.Unlock()
		return x
	}
	now := driver.Now()
	x := &exit{d: d, decided: make(chan struct{}), round: make(chan struct{}), members: make([]error, len(d.members)), all: c.r.Kind == driver.Permits}
	x.end = max(c.until, now.Add(c.r.TTL)).Add(drift(c.r.TTL))
	c.released, c.over = x, true
	if end.Last == 0 {
		end.Last = c.token
	}
	if c.end != 0 {
		end.Last = min(end.Last, c.end)
	}
	if end.Last == 0 { // what was used is not known, and the members' own numbers do not tell
		end.Last = math.MaxInt64
	}
	c.mu.Unlock()
	for _, m := range d.members {
		c.run(func() { x.leave(c, m, end, now) })
	}
	return x
}

// leave ends the claim at one member.
func (x *exit) leave(c *claim, m *member, end driver.End, began driver.Instant) {
	d := x.d
	limit := d.nodeLimit(c.r.TTL)
	s := &c.seats[m.no]
	keep := end.Keep
	tried := false
	if m.isSilent() {
		x.silent(c, m, errResting)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, stop := context.WithTimeout(d.base, limit)
		err := error(errBusy)
		if s.take(ctx) { // whoever had the turn may just have placed it there: a refill, a late vote
			c.mu.Lock()
			p, e := s.place, end
			if s.raised && c.end != 0 { // it knows the end of the interval, and goes by that
				e.Last = 0
			}
			c.mu.Unlock()
			err = m.d.Release(ctx, c.at(m), e)
			if p != nil && (err == nil || errors.Is(err, driver.ErrNotHeld)) {
				if e := p.Leave(ctx); e != nil { // so that a request that was never answered does not come later
					err = e
				}
			}
			m.heard(ctx, err, limit)
			s.give()
		}
		stop()
		if err == nil || errors.Is(err, driver.ErrNotHeld) {
			x.answer(c, m, err == nil || tried)
			return
		}
		tried = tried || !sure(err)
		x.silent(c, m, err)
		if !d.pause(pause, x.end) {
			return
		}
		if keep > 0 { // it counts from the first request
			end.Keep = max(keep-driver.Now().Sub(began), time.Millisecond).Round(time.Millisecond)
		}
	}
}

// answer notes that a member does not have the claim any more.
func (x *exit) answer(c *claim, m *member, freed bool) {
	x.mu.Lock()
	if x.members[m.no] == nil {
		x.heard++
	}
	x.members[m.no] = nil
	if freed {
		x.freed++
	} else {
		x.gone++
	}
	x.decide(c)
	x.mu.Unlock()
}

// silent notes that a member has not answered.
func (x *exit) silent(c *claim, m *member, err error) {
	x.mu.Lock()
	if x.members[m.no] == nil {
		x.heard++
	}
	x.members[m.no] = err
	x.decide(c)
	x.mu.Unlock()
}

// decide finds the result, if there is one.
func (x *exit) decide(c *claim) {
	everybody := x.heard == len(x.members)
	if !x.final && (everybody || !x.all) {
		switch maj := x.d.majority; {
		case x.gone >= maj:
			x.final, x.err = true, driver.ErrNotHeld
		case x.freed >= maj, everybody && x.freed+x.gone >= maj:
			x.final = true
		}
		if x.final {
			x.d.forget(c)
			close(x.decided)
		}
	}
	if everybody && !x.over {
		x.over = true
		close(x.round)
	}
}

// abandon ends a claim that is lost: the members that still have it give it back.
func (c *claim) abandon() *exit {
	c.mu.Lock()
	last := c.end
	c.mu.Unlock()
	return c.release(driver.End{Last: last})
}

// wait waits for the result.
func (x *exit) wait(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-x.decided:
	case <-x.round:
	case <-timer.C:
	case <-ctx.Done():
	case <-x.d.quit:
	}
}
