package pawl

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// grant is what the store gave: one remote hold, and the leases that live on it. A hand-off is its next lease, a joined
// reader a further one, re-entry a nested one. It is live, then draining (no lease may be added), then gone. One rule
// replaces many: no release in the store while a lease is left, no new lease once draining.
//
// A process may hold 100,000 of them: 192 bytes are no accident, nor are the 96 of a Lease.
type grant struct {
	cl    *Client
	hold  driver.Hold // its Token is the first of the interval
	limit int         // of a semaphore

	// under core.mu
	ln       *line  // nil once it has left its line
	leases   *Lease // a list, in no order
	last     int64  // the last token given out
	start    driver.Instant
	trust    driver.Instant // the trust deadline
	renewAt  driver.Instant // 0: not to be renewed
	endAt    driver.Instant // when idle ends, or MaxHold; 0: never
	due      driver.Instant
	index    int32 // in the agenda; -1: not there
	left     int16 // how many tokens of the interval come after last
	idle     bool  // lingers: no lease, but not given back
	wanted   bool  // somebody else wants it: do not linger
	renewing chan struct{}
	lost     *LostError
	lastErr  error         // of the last renewal
	over     chan struct{} // made by Close: closed when the last lease was unlocked
}

func newGrant(t *target, hold driver.Hold, d driver.Grant) *grant {
	g := &grant{cl: t.c, hold: hold, limit: t.limit, last: hold.Token, start: driver.Now(), index: -1}
	if d.Token != 0 { // else there is nothing to number hand-offs with
		g.left = int16(min(max(d.Span, 1), maxSpan) - 1)
	}
	ttl := cmp.Or(d.TTL, hold.TTL) // as granted, which may be more or less than asked for
	g.hold.TTL = ttl
	g.trust = d.Sent.Add(ttl - margin(ttl))
	if !t.c.pol.noKeepalive {
		g.renewAt = t.c.agenda.renewal(d.Sent, ttl)
	}
	g.limitHold(g.start)
	return g
}

// admit enters a new grant in its line and in the agenda.
func (c *core) admit(g *grant, ln *line) {
	g.ln = ln
	ln.live++
	switch g.hold.Kind {
	case driver.Exclusive, driver.Write, driver.Once, driver.Leader:
		ln.writer = g
	case driver.Read:
		ln.reader = g
	}
	c.agenda.add(g)
	c.arm()
}

// depart takes g out of its line, so that the next one here may ask the store.
func (c *core) depart(g *grant) {
	c.agenda.remove(g)
	ln := g.ln
	if ln == nil {
		return
	}
	g.ln = nil
	ln.live--
	if ln.writer == g {
		ln.writer = nil
	}
	if ln.reader == g {
		ln.reader = nil
	}
	c.promote(ln)
}

// trustedHalf reports whether more than half of the trust is left: only then may a grant pass on.
func (g *grant) trustedHalf(now driver.Instant) bool {
	ttl := g.hold.TTL
	return 2*g.trust.Sub(now) > ttl-margin(ttl)
}

func (g *grant) lease(cl *Client, parent *Lease, token int64, now driver.Instant) *Lease {
	l := &Lease{g: g, cl: cl, token: token, got: now, next: g.leases}
	if parent != nil {
		l.kin = &kin{parent: parent}
	}
	if l.next != nil {
		l.next.prev = l
	}
	g.leases = l
	return l
}

// lose ends g without a release: every lease of it ends, and its place in the line is free at once.
func (c *core) lose(g *grant, why Reason, err error, out *after) {
	if g.lost != nil || g.index < 0 {
		return
	}
	g.lost = &LostError{Name: g.hold.Name, Token: g.last, Reason: why, Err: err}
	for l := g.leases; l != nil; l = l.next {
		l.finish(g.lost, out)
	}
	idle := g.idle
	g.idle = false
	switch {
	case why == Closing: // it stays in its line: nobody here may ask the store any more
		c.agenda.remove(g)
	default:
		c.depart(g)
	}
	if idle {
		return
	}
	for l := g.leases; l != nil; l = l.next {
		l.tell(Lost, driver.Now().Sub(l.got), g.lost)
	}
	if why != Closing {
		lost, log := g.lost, g.cl.opts.log()
		out.add(func() {
			log.Warn("pawl: lock lost", "lock", lost.Name, "token", lost.Token, "reason", string(lost.Reason), "err", lost.Err)
		})
	}
}

// release gives g back and lets the next one here ask the store.
func (g *grant) release() {
	c := g.cl.core
	c.mu.Lock()
	x := g.exit(driver.Now(), driver.End{})
	c.mu.Unlock()
	x.leave(c)
	c.mu.Lock()
	c.depart(g)
	c.mu.Unlock()
}

// exit is what it takes to give a grant back in the store.
type exit struct {
	hold     driver.Hold
	end      driver.End
	kept     driver.Instant // until when a MinHold keeps the name taken
	limit    time.Duration
	shared   context.Context // ends after limit, about; nil: make one
	renewing chan struct{}
}

func (g *grant) exit(now driver.Instant, end driver.End) exit {
	end.Last = g.last
	x := exit{hold: g.hold, end: end, kept: g.start.Add(g.cl.pol.minHold), renewing: g.renewing}
	if x.limit = min(releaseLimit, max(g.trust.Sub(now), 100*time.Millisecond)); x.limit == releaseLimit {
		x.shared = g.cl.brief(now)
	}
	return x
}

// brief is a context that ends after releaseLimit, or a little earlier. Many releases share one: a context with a timer costs
// as much as the rest of an Unlock.
func (c *core) brief(now driver.Instant) context.Context {
	if c.shared == nil || now.Sub(c.sharedAt) > releaseLimit/20 {
		c.sharedAt = now
		c.shared, c.sharedStop = context.WithTimeout(context.Background(), releaseLimit)
	}
	return c.shared
}

// leave gives a grant back in the store, in the caller's goroutine, within its limit. No lease is left.
func (x *exit) leave(c *core) error {
	ctx := x.shared
	if ctx == nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.Background(), x.limit)
		defer stop()
	}
	err := x.release(ctx, c)
	perhaps := false // an earlier request, which had no answer, may have done it
	for pause := minPause; err != nil && !isAny(err, ErrNotHeld, ErrClosed) && ctx.Err() == nil; pause *= 2 {
		perhaps = perhaps || !sure(err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			continue
		}
		if err = x.release(ctx, c); errors.Is(err, ErrNotHeld) && perhaps {
			err = nil
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrNotHeld):
		err = &LostError{Name: x.hold.Name, Token: x.end.Last, Reason: Revoked}
	default:
		// A renewal that is still under way could outlive a release that may not have arrived. It has had as long as the
		// release, and ends about now.
		if x.renewing != nil {
			t := time.NewTimer(minPause)
			select {
			case <-x.renewing:
			case <-t.C:
			}
			t.Stop()
		}
		if !errors.Is(err, ErrClosed) {
			later := *x // or x would be on the heap for each release
			c.repeat(later.hold.TTL, func(ctx context.Context) error { return later.release(ctx, c) })
		}
		err = &UnknownError{Op: "unlock", Name: x.hold.Name, FreeBy: time.Now().Add(max(x.hold.TTL, x.kept.Until())), Err: err}
	}
	return err
}

func (x *exit) release(ctx context.Context, c *core) error {
	e := x.end
	if keep := x.kept.Until(); keep > 0 && e.Keep == 0 {
		e.Keep = (keep + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return c.d.Release(ctx, x.hold, e)
}

// releaseLimit bounds Unlock on a store that does not answer, and a renewal.
const releaseLimit = 3 * time.Second

// giveBack frees what a lost grant may still have in the store, now that its last lease was unlocked.
func (g *grant) giveBack() {
	switch g.lost.Reason {
	case Revoked:
	case Expired:
		g.cl.repeat(g.hold.TTL, func(ctx context.Context) error {
			return g.cl.d.Release(ctx, g.hold, driver.End{Last: g.last})
		})
	default: // the store still has it, and the work has just stopped
		g.release()
	}
}

// drain gives a lingering grant back in the background.
func (c *core) drain(g *grant) {
	g.idle = false
	c.agenda.remove(g)
	c.tasks.run(g.release)
}

// resume turns a lingering grant into a lease without asking the store.
func (c *core) resume(g *grant, cl *Client) *Lease {
	g.idle = false
	now := driver.Now()
	g.pass(now)
	return g.lease(cl, nil, g.last, now)
}

// pass gives g to its next holder: a new token, a new MaxHold.
func (g *grant) pass(now driver.Instant) {
	g.last++
	g.left--
	g.limitHold(now)
	g.cl.agenda.fix(g)
	g.cl.arm()
}

func (g *grant) limitHold(from driver.Instant) {
	g.endAt = 0
	if d := g.cl.pol.maxHold; d > 0 {
		g.endAt = from.Add(d)
	}
}

func (g *grant) drop(l *Lease) {
	if l.prev == nil {
		g.leases = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.next, l.prev = nil, nil
}
