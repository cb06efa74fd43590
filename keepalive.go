package pawl

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// agenda holds all grants of a client by the next instant at which something is due: a renewal, the trust deadline,
// MaxHold, the end of lingering. One timer serves them all; no goroutine waits.
type agenda struct {
	grants []*grant // a heap by due
	timer  *time.Timer
	armed  driver.Instant // when the timer fires; 0: it does not
	phase  float64        // of this client within the renewal grid
}

// maxNap bounds how long after a resume from suspend, during which timers stand still, a loss is told.
const maxNap = time.Second

func (a *agenda) init() { a.phase = rand.Float64() }

func (a *agenda) Len() int           { return len(a.grants) }
func (a *agenda) Less(i, j int) bool { return a.grants[i].due < a.grants[j].due }
func (a *agenda) Swap(i, j int) {
	a.grants[i], a.grants[j] = a.grants[j], a.grants[i]
	a.grants[i].index, a.grants[j].index = int32(i), int32(j)
}
func (a *agenda) Push(x any) {
	g := x.(*grant)
	g.index = int32(len(a.grants))
	a.grants = append(a.grants, g)
}
func (a *agenda) Pop() any {
	n := len(a.grants) - 1
	g := a.grants[n]
	a.grants[n] = nil
	a.grants = a.grants[:n]
	g.index = -1
	return g
}

func (a *agenda) add(g *grant) {
	g.due = g.nextDue()
	heap.Push(a, g)
}

func (a *agenda) fix(g *grant) {
	if g.index >= 0 {
		g.due = g.nextDue()
		heap.Fix(a, int(g.index))
	}
}

func (a *agenda) remove(g *grant) {
	if g.index >= 0 {
		heap.Remove(a, int(g.index))
	}
}

func (a *agenda) all() []*grant { return append([]*grant(nil), a.grants...) }

// renewal is when to renew a hold of which a request was sent at sent: after a third of the TTL, moved to a grid of
// thirtieths, so that many leases share one request and many clients do not share one instant.
func (a *agenda) renewal(sent driver.Instant, ttl time.Duration) driver.Instant {
	step := max(ttl/30, time.Millisecond)
	off := driver.Instant(a.phase * float64(step))
	at := sent.Add(ttl/3-time.Duration(rand.Int64N(int64(step)))) - off
	n := (at + driver.Instant(step) - 1) / driver.Instant(step)
	return n*driver.Instant(step) + off
}

func (g *grant) nextDue() driver.Instant {
	at := g.trust
	if g.renewAt != 0 && g.renewing == nil {
		at = min(at, g.renewAt)
	}
	if g.endAt != 0 {
		at = min(at, g.endAt)
	}
	return at
}

// arm makes the timer fire in time for whatever is due first.
func (c *core) arm() {
	a := &c.agenda
	if len(a.grants) == 0 {
		return
	}
	now := driver.Now()
	at := min(a.grants[0].due, now.Add(maxNap))
	if a.armed != 0 && a.armed <= at {
		return
	}
	a.armed = at
	d := max(at.Sub(now), 0)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, c.tick)
	} else {
		a.timer.Reset(d)
	}
}

func (c *core) stopTimers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sharedStop != nil {
		c.sharedStop()
	}
	if c.agenda.timer != nil {
		c.agenda.timer.Stop()
	}
}

// tick does all that is due.
func (c *core) tick() {
	var out after
	byTTL := map[time.Duration][]*grant{}
	c.mu.Lock()
	a := &c.agenda
	a.armed = 0
	now := driver.Now()
	for len(a.grants) > 0 && a.grants[0].due <= now {
		g := a.grants[0]
		switch {
		case now >= g.trust:
			c.lose(g, Expired, g.lastErr, &out)
		case g.endAt != 0 && now >= g.endAt && g.idle:
			c.drain(g)
		case g.endAt != 0 && now >= g.endAt:
			c.lose(g, TooLong, nil, &out)
		default:
			g.renewing = make(chan struct{})
			byTTL[g.hold.TTL] = append(byTTL[g.hold.TTL], g)
			a.fix(g)
		}
	}
	for ttl, gs := range byTTL {
		// All that share a TTL were due at once, so the first to run out bounds the attempt for all.
		limit := min(max(ttl/4, 20*time.Millisecond), releaseLimit)
		for _, g := range gs {
			limit = min(limit, max(g.trust.Sub(now), time.Millisecond))
		}
		holds := make([]driver.Hold, len(gs))
		for i, g := range gs {
			holds[i] = g.hold
		}
		c.tasks.run(func() { c.renew(gs, holds, limit) })
	}
	c.arm()
	c.mu.Unlock()
	out.run()
}

// renew extends the holds of gs with one call.
func (c *core) renew(gs []*grant, holds []driver.Hold, limit time.Duration) {
	ctx, stop := context.WithTimeout(c.base, limit)
	sent := driver.Now()
	errs := c.d.Renew(ctx, holds)
	stop()
	var out after
	c.mu.Lock()
	now := driver.Now()
	for i, g := range gs {
		close(g.renewing)
		g.renewing = nil
		if g.index < 0 { // unlocked or lost meanwhile
			continue
		}
		var err error
		if i < len(errs) {
			err = errs[i]
		} else {
			err = errors.New("the driver did not answer for this hold")
		}
		ttl := g.hold.TTL
		switch {
		case now >= g.trust:
			c.lose(g, Expired, cmp.Or(err, g.lastErr), &out)
			continue
		case err == nil:
			g.trust = max(g.trust, sent.Add(ttl-margin(ttl)))
			g.renewAt = c.agenda.renewal(sent, ttl)
			g.lastErr = nil
		case errors.Is(err, ErrNotHeld):
			c.lose(g, Revoked, nil, &out)
			continue
		default:
			g.lastErr = err
			g.renewAt = now.Add(retryRenewal(ttl))
		}
		c.agenda.fix(g)
	}
	c.arm()
	c.mu.Unlock()
	out.run()
}

// retryRenewal is the jittered pause before a failed renewal is tried again.
func retryRenewal(ttl time.Duration) time.Duration {
	return jitter(min(max(ttl/20, 2*time.Millisecond), time.Second))
}
