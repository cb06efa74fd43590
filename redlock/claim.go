package redlock

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// claim is one hold, or the request for one: what each member has of it.
type claim struct {
	d     *Driver
	r     driver.Request
	need  int // members that must have it
	ears  ears
	seats []seat // by member
	jobs  tasks  // goroutines that talk to a member about it

	mu       sync.Mutex // guards the seats too, but for turn
	won      bool
	over     bool           // released, left or lost: nothing joins any more
	told     bool           // that it is lost
	token    int64          // the first of the interval
	end      int64          // the last one, to be known to every member; 0: no tokens
	until    driver.Instant // it is trusted until then: a majority of members has it
	released *exit          // once Release was called
}

// seat is what one member has of a claim.
type seat struct {
	turn  chan struct{} // capacity 1: full while somebody talks to the member about the claim. Renewals do not take it
	place driver.Place  // of a request without an answer: it may have won

	token  int64          // the member's own; 0: not known
	held   bool           // the member confirmed it
	raised bool           // the member knows the interval's end
	since  driver.Instant // when it was seen to be held
	gone   bool           // the member reported a loss since the last request
	spent  bool           // an undo had no answer and may still arrive: never ask there again
}

func newClaim(d *Driver, r driver.Request, need int) *claim {
	r.Value = bytes.Clone(r.Value)
	c := &claim{d: d, r: r, need: need, seats: make([]seat, len(d.members))}
	c.ears.set(r.Notify)
	for i := range c.seats {
		c.seats[i].turn = make(chan struct{}, 1)
	}
	return c
}

// request is what a member is asked for. It never waits in a member's line: contenders that stand first in different
// members' lines would wait for one another.
func (c *claim) request(m *member) driver.Request {
	r := c.r
	r.Wait = false
	r.Token = 0
	r.Notify = func(s driver.Signal) {
		if s == driver.Lost {
			c.lostAt(m)
		}
	}
	return r
}

// at names the claim to a member. Each has a token of its own for it. Where that is known it is told: what is ended by
// its ID alone may be refused for good, since a request for it may still be under way.
func (c *claim) at(m *member) driver.Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.r.Hold
	h.Token = c.seats[m.no].token
	return h
}

// run starts a goroutine that belongs to the claim and to the driver.
func (c *claim) run(f func()) {
	c.jobs.begin()
	c.d.tasks.run(func() {
		defer c.jobs.end()
		f()
	})
}

// take waits for the turn at a seat.
func (s *seat) take(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *seat) give() { <-s.turn }

// lostAt notes that a member reported the loss of its part, and tells the holder when too few are left.
func (c *claim) lostAt(m *member) {
	c.mu.Lock()
	s := &c.seats[m.no]
	s.held, s.raised, s.gone = false, false, true
	tell := c.won && !c.over && !c.told && c.mayHold() < c.majority()
	c.told = c.told || tell
	c.mu.Unlock()
	if tell {
		c.ears.tell(driver.Lost)
		c.d.tasks.run(func() {
			// Not at once: whoever is ending it at one member after the other must not find it gone at half of them.
			c.d.pause(c.d.nodeLimit(c.r.TTL), driver.Now().Add(c.r.TTL))
			c.abandon()
		})
	}
}

// majority is how many members must be left for the claim to live on. Of a semaphore fewer than had to agree to it.
func (c *claim) majority() int { return c.d.majority }

// mayHold counts the members that have the claim or may have it.
func (c *claim) mayHold() (n int) {
	for i := range c.seats {
		if s := &c.seats[i]; s.held || s.place != nil {
			n++
		}
	}
	return n
}

// seat notes that a member has the claim. It answers false if that comes too late: then it must be undone. Once the claim
// is being released, that sees to every member, when the turn is free.
func (c *claim) seat(m *member, raised bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.seats[m.no]
	now := driver.Now()
	switch {
	case c.released != nil:
		return true
	case c.over, now >= c.until, s.gone:
		return false
	}
	s.held, s.raised = true, raised
	s.since = max(s.since, now)
	return true
}

func (c *claim) ranOut(now driver.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now < c.until.Add(drift(c.r.TTL)) {
		return false
	}
	c.over = true
	return true
}

// undo takes back what a member granted, or may have granted to a request that p made and that had no answer. It goes on
// until the member has answered or nothing can be left. The caller has the turn.
func (c *claim) undo(m *member, p driver.Place) {
	s := &c.seats[m.no]
	h := c.at(m)
	end := driver.Now().Add(c.r.TTL + drift(c.r.TTL))
	limit := c.d.nodeLimit(c.r.TTL)
	if p != nil || h.Token == 0 {
		c.spend(s) // the request itself may still arrive, or is refused from now on
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, stop := context.WithTimeout(c.d.base, limit)
		var err error
		if p != nil {
			err = p.Leave(ctx)
		} else {
			err = m.d.Release(ctx, h, driver.End{})
		}
		m.heard(ctx, err, limit)
		stop()
		if err == nil || errors.Is(err, driver.ErrNotHeld) {
			return
		}
		c.spend(s)
		if !c.d.pause(pause, end) {
			return
		}
	}
}

func (c *claim) spend(s *seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.spent = true
}

// pause sleeps, and answers false if the driver is closed or end would pass.
func (d *Driver) pause(t time.Duration, end driver.Instant) bool {
	if end.Until() < t {
		return false
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.quit:
		return false
	}
}

// ears pass signals on until they are stopped.
type ears struct {
	mu     sync.Mutex // held during Notify, so that none runs after stop has returned
	notify func(driver.Signal)
}

func (e *ears) set(notify func(driver.Signal)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notify = notify
}

func (e *ears) tell(s driver.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.notify != nil {
		e.notify(s)
	}
}

// stop returns when nothing is being reported; nothing is reported after it.
func (e *ears) stop() { e.set(nil) }
