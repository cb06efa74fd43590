package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// ballot is one attempt to get a claim. Every member that is asked has a goroutine of its own, which does all that is to
// be done there, also after the attempt has ended: it writes the token back, lets a late vote join, or undoes it.
//
// A member's vote is open (asked), cast (it granted), then counted (it knows the interval's end, still has the hold, and
// is in the life in which it granted), or it failed. With enough votes cast the token is fixed; with enough counted the
// ballot is won; when that has become impossible it is lost.
type ballot struct {
	c     *claim
	sent  driver.Instant
	span  int
	fixed chan struct{} // closed when the token is fixed
	done  chan struct{} // closed when won or lost
	quiet chan struct{} // closed when all that were asked have answered

	mu     sync.Mutex
	votes  []vote
	rested []*member // left in peace so far
	over   bool
	won    bool
	ready  bool // the token is fixed
	silent bool // quiet is closed
	token  int64
	end    int64
}

type vote struct {
	state voteState
	token int64
	until driver.Instant // the member keeps the hold until then
	err   error          // why it failed
}

type voteState uint8

const (
	open voteState = iota
	cast
	counted
	failed
)

// start asks the members that may vote.
func (c *claim) start(span int) *ballot {
	d := c.d
	b := &ballot{c: c, sent: driver.Now(), span: span, fixed: make(chan struct{}), done: make(chan struct{}), quiet: make(chan struct{}), votes: make([]vote, len(d.members))}
	c.mu.Lock()
	for i, m := range d.members {
		switch err := m.muted(b.sent); {
		case c.seats[i].spent:
			b.votes[i] = vote{state: failed, err: errSpent}
		case err != nil:
			b.votes[i] = vote{state: failed, err: fmt.Errorf("%w: %w", driver.ErrNotDone, err)}
		case m.resting(b.sent, d.nodeLimit(c.r.TTL)):
			b.votes[i] = vote{state: failed, err: errResting}
			b.rested = append(b.rested, m)
		}
	}
	c.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range d.members {
		if b.votes[i].state == open {
			c.run(func() { b.ask(m) })
		}
	}
	b.count()
	return b
}

var (
	errSpent   = errors.New("an undo of an earlier request has no answer yet")
	errResting = fmt.Errorf("%w: it did not answer just now", driver.ErrNotDone)
	errBusy    = fmt.Errorf("%w: an earlier request there has no answer yet", driver.ErrNotDone)
	errUnasked = fmt.Errorf("%w: it was not asked any more", driver.ErrNotDone)
	errVoid    = errors.New("its vote was gone before it was counted")
)

// ask gets one member's vote and sees to what becomes of it.
func (b *ballot) ask(m *member) {
	c, d := b.c, b.c.d
	s := &c.seats[m.no]
	limit := d.nodeLimit(c.r.TTL)
	ctx, stop := context.WithTimeout(d.base, limit)
	defer stop()
	if !s.take(ctx) {
		b.set(m, vote{state: failed, err: errBusy})
		return
	}
	defer s.give()
	c.mu.Lock()
	spent, over := s.spent, c.over
	if !spent && !over {
		s.gone, s.token = false, 0
	}
	c.mu.Unlock()
	switch {
	case spent:
		b.set(m, vote{state: failed, err: errSpent})
		return
	case over || b.lost():
		b.set(m, vote{state: failed, err: errUnasked})
		return
	}

	life := d.vouchBeside(ctx, m)
	p, err := m.d.Enter(ctx, c.request(m))
	entered := err == nil
	var g driver.Grant
	if entered {
		g, err = p.Try(ctx, 1)
		m.heard(ctx, err, limit)
	}
	voted := driver.Now()
	switch {
	case err == nil:
		c.mu.Lock()
		s.token = g.Token
		c.mu.Unlock()
		b.set(m, vote{state: cast, token: g.Token, until: min(g.Sent, voted).Add(g.TTL)})
	case !entered || sure(err):
		b.set(m, vote{state: failed, err: err})
		return
	default:
		b.set(m, vote{state: failed, err: unanswered(ctx, limit, err)})
		<-b.done
		if !b.isWon() || !c.doubt(m, p) {
			c.undo(m, p)
		}
		return
	}

	select {
	case <-b.fixed:
	case <-b.done:
	}
	if b.lost() {
		c.undo(m, nil)
		return
	}
	ctx, stop = context.WithTimeout(d.base, limit)
	defer stop()
	err = b.confirm(ctx, m, voted, life)
	m.heard(ctx, err, limit)
	silent := err != nil && ctx.Err() != nil
	if err != nil {
		b.set(m, vote{state: failed, err: unanswered(ctx, limit, err)})
	} else {
		b.set(m, vote{state: counted})
	}
	<-b.done
	// A member that was silent keeps the hold if the others suffice: renewals raise its token, or find it gone.
	if !b.isWon() || err != nil && !silent || !c.seat(m, err == nil) {
		c.undo(m, nil)
	}
}

// errUnknown marks a failed vote of which something may be in the store.
var errUnknown = errors.New("no certain answer")

func unanswered(ctx context.Context, limit time.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w in %v: %w", errUnknown, limit, err)
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// confirm writes the end of the token interval to a member, owner-checked, and makes sure that the member is still in the
// life in which it voted.
func (b *ballot) confirm(ctx context.Context, m *member, voted driver.Instant, life <-chan vouched) error {
	d, c := b.c.d, b.c
	if life != nil {
		return d.vouchAround(ctx, m, voted, life)
	}
	ch := make(chan error, 1)
	if m.lives == nil {
		ch <- nil
	} else {
		c.run(func() { ch <- d.vouch(ctx, m) })
	}
	var err error
	if b.end != 0 {
		err = m.raiser.Raise(ctx, c.at(m), b.end)
	}
	if errors.Is(err, driver.ErrNotHeld) {
		err = errVoid
	}
	return errors.Join(err, <-ch)
}

// set notes a member's vote.
func (b *ballot) set(m *member, v vote) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.votes[m.no]; was.state == cast {
		v.token, v.until = was.token, was.until
	}
	if b.votes[m.no].state == open || !b.over {
		b.votes[m.no] = v
	}
	b.count()
}

// count decides what can be decided.
func (b *ballot) count() {
	var n [4]int
	final, taken := false, false
	for _, v := range b.votes {
		n[v.state]++
		taken = taken || v.state == failed && errors.Is(v.err, driver.ErrHeld)
		final = final || v.state == failed && (errors.Is(v.err, driver.ErrDone) || errors.Is(v.err, driver.ErrInvalid) || errors.Is(v.err, errors.ErrUnsupported))
	}
	if may := n[open] + n[cast] + n[counted]; may < b.c.need && may+len(b.rested) >= b.c.need && !final && !taken && !b.over {
		// The others do not suffice.
		for _, m := range b.rested {
			b.votes[m.no] = vote{}
			b.c.run(func() { b.ask(m) })
		}
		b.rested = nil
		b.count()
		return
	}
	if n[open] == 0 && !b.silent {
		b.silent = true
		close(b.quiet)
	}
	switch need := b.c.need; {
	case b.over:
	case final, n[open]+n[cast]+n[counted] < need:
		b.decide(false)
	case n[counted] >= need:
		b.decide(true)
	case !b.ready && n[cast]+n[counted] >= need:
		b.fix()
	}
}

// fix chooses the token: the largest that a member proposed. Any earlier hold had its last one written to a majority, and
// a member of that is among these.
func (b *ballot) fix() {
	b.ready = true
	with := b.c.d.tokens
	for _, v := range b.votes {
		if v.state == cast {
			b.token = max(b.token, v.token)
			with = with && v.token > 0
		}
	}
	if with {
		b.end = b.token + int64(b.span) - 1
	} else {
		b.token = 0
	}
	close(b.fixed)
}

func (b *ballot) decide(won bool) {
	if b.over {
		return
	}
	b.over, b.won = true, won
	if won {
		b.c.win(b)
	}
	close(b.done)
}

// giveUp loses the ballot unless it is won already, which it answers.
func (b *ballot) giveUp() (won bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decide(false)
	return b.won
}

func (b *ballot) isWon() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.won
}

func (b *ballot) lost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over && !b.won
}

// win makes the claim a hold.
func (c *claim) win(b *ballot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.won, c.token, c.end = true, b.token, b.end
	c.until = b.sent.Add(c.r.TTL)
	now := driver.Now()
	for i, v := range b.votes {
		if v.state != counted {
			continue
		}
		c.until = min(c.until, v.until) // a member may grant less, or count from an earlier instant
		if s := &c.seats[i]; !s.gone {
			s.held, s.raised, s.since = true, true, now
		}
	}
	c.until -= driver.Instant(drift(c.r.TTL))
}

// doubt notes that a member may have the claim, which a renewal or the release will show. It answers false if the claim
// is over.
func (c *claim) doubt(m *member, p driver.Place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || driver.Now() >= c.until {
		return false
	}
	c.seats[m.no].place = p
	return true
}
