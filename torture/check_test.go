package torture_test

import (
	"context"
	"reflect"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// wakeBound is how long a free name may stay free while somebody waits for it, even if the store's message got lost: the
// client's longest sleep.
const wakeBound = 10 * time.Second

// check compares what everybody believes while nobody moves.
func (l *ledger) check(names []string, procs []*proc) {
	records := map[string]driver.Record{}
	stored := map[string]bool{}
	for _, n := range names {
		r, err := l.god.Inspect(context.Background(), n)
		if err != nil {
			l.badf("inspect %q: %v", n, err)
		}
		records[n] = r
		for _, h := range r.Holds {
			stored[h.ID] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range append(l.leases[:len(l.leases):len(l.leases)], l.over...) {
		l.checkLease(x, stored)
	}
	for _, x := range l.leases {
		l.alone(x)
	}
	// What is over has been looked at once more; it will not change.
	if n := len(l.over) - 64; n > 0 {
		l.over = l.over[n:]
	}
	l.checkLines()
	for _, r := range records {
		for _, h := range r.Holds {
			l.checkOwner(l.byID[h.ID], procs)
		}
	}
	for _, n := range names {
		l.checkWake(records[n], procs)
	}
}

func (l *ledger) checkLease(x *lease, stored map[string]bool) {
	now := time.Now()
	err := x.l.Err()
	if t := x.l.Token(); t != x.token {
		l.complain("lease %d: the token changed from %d to %d", x.n, x.token, t)
	}
	select {
	case <-x.l.Done():
		if err == nil {
			l.complain("lease %d is live and Done", x.n)
		}
	default:
		if err != nil {
			l.complain("lease %d is %v and not Done", x.n, err)
		}
	}
	switch {
	case err != nil && context.Cause(x.ctx) == nil:
		l.complain("lease %d is %v and its context goes on", x.n, err)
	case err == nil && x.ctx.Err() != nil && x.a.base().Err() == nil:
		l.complain("lease %d is live and its context has ended: %v", x.n, context.Cause(x.ctx))
	case err != nil && !isAny(context.Cause(x.ctx), pawl.ErrLost, pawl.ErrNotHeld):
		l.complain("lease %d: the cause of its context is %v", x.n, context.Cause(x.ctx))
	}
	if !x.lost.IsZero() && !isAny(err, pawl.ErrLost) {
		l.complain("lease %d was lost and is %v now", x.n, err)
	}
	if isAny(err, pawl.ErrLost) {
		if le, ok := err.(*pawl.LostError); !ok || le.Name != x.a.name {
			l.complain("lease %d: %v is not the right *LostError", x.n, err)
		}
		if x.lost.IsZero() {
			x.lost = now
		}
	}
	if err != nil && !isAny(err, pawl.ErrLost, pawl.ErrNotHeld) {
		l.complain("lease %d is %v", x.n, err)
	}
	if err != nil {
		return
	}
	switch {
	case x.ending:
		l.complain("lease %d was unlocked and is live", x.n)
	case x.parent != nil && x.parent.l.Err() != nil:
		l.complain("lease %d is live, but %d, which it re-entered, is %v", x.n, x.parent.n, x.parent.l.Err())
	case !x.l.Deadline().After(now):
		l.complain("lease %d is live after its deadline", x.n)
	case x.hold.robbed.IsZero() && !stored[x.hold.ID]:
		l.complain("lease %d is live, but the store does not have %s", x.n, x.hold.ID)
	case !x.hold.robbed.IsZero() && now.Sub(x.hold.robbed) >= x.hold.TTL:
		l.complain("lease %d was not told in a TTL that it was robbed", x.n)
	case x.parent == nil && x.a.pol.MaxHold > 0 && now.Sub(x.at) > x.a.pol.MaxHold:
		l.complain("lease %d is live for %v in spite of MaxHold", x.n, now.Sub(x.at))
	case x.a.p.closing():
		l.complain("lease %d is live and its client is closed", x.n)
	}
}

// checkLines checks that each client has one contender in each line of the store (of fair locks: one a waiter).
func (l *ledger) checkLines() {
	type key struct {
		w    *wire
		name string
	}
	for p := range l.owed {
		l.complain("%s had no answer for %s and does not leave", p.w.name, p.r.ID)
	}
	n := map[key]int{}
	for p := range l.inLine {
		if p.r.Kind == driver.Fair || p.r.Kind == driver.Leader {
			continue
		}
		k := key{p.w, p.r.Name}
		if n[k]++; n[k] > 1 {
			l.complain("%s has %d contenders in line for %q", p.w.name, n[k], p.r.Name)
		}
	}
}

// checkOwner checks that somebody uses what the store shows as held. h is nil for what a minimum hold keeps.
func (l *ledger) checkOwner(h *hold, procs []*proc) {
	if h == nil || h.detached || h.TTL == linger.TTL || len(l.on(h)) > 0 {
		return
	}
	for _, p := range procs {
		if since, calm := p.wire.calm(); p.wire == h.w && (!calm || p.cut() || p.closing() || time.Since(since) < h.TTL) {
			return
		}
		for a := range l.asks {
			if a.multi && a.p == p && p.wire == h.w {
				return
			}
		}
	}
	l.complain("the store has %s of %q, but nobody uses it", h.ID, h.Name)
}

// checkWake checks that no waiter sleeps beside a free name.
func (l *ledger) checkWake(r driver.Record, procs []*proc) {
	now := time.Now()
	waits, calm := false, true
	for _, p := range procs {
		// A place in line that its owner can neither use nor leave stays there for its TTL, in front of others.
		bound := wakeBound
		if p.closing() {
			bound = pawl.DefaultTTL + time.Second
		}
		since, quiet := p.wire.calm()
		if !quiet || p.cut() || now.Sub(since) < bound {
			calm = false
			break
		}
		believes, asks := false, false
		for _, x := range l.leases {
			believes = believes || x.a.p == p && x.a.name == r.Name && (x.l.Err() == nil || x.ending)
		}
		for a := range l.asks {
			asks = asks || a.p == p && a.name == r.Name && a.in == nil && !a.multi && a.ctx.Err() == nil && !p.closing()
		}
		waits = waits || asks && !believes
	}
	f := l.free[r.Name]
	switch {
	case !calm || !waits || len(r.Holds) > 0:
		delete(l.free, r.Name)
	case f == nil || f.grants != l.grants[r.Name]:
		l.free[r.Name] = &freeSince{now, l.grants[r.Name]}
	case now.Sub(f.at) > wakeBound:
		l.complain("%q is free since %v, and nobody takes it", r.Name, f.at.Sub(l.start))
	}
}

// checkEmpty checks that a client that has nothing to do has nothing left. It looks at the client's own books, which no
// exported method shows.
func (l *ledger) checkEmpty(p *proc) {
	c := reflect.ValueOf(p.client).Elem().FieldByName("core").Elem()
	lines, grants, tasks := c.FieldByName("lines").Len(), c.FieldByName("agenda").FieldByName("grants").Len(), c.FieldByName("tasks").FieldByName("n").FieldByName("v").Int()
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != 0 {
		l.badf("%s has %d more leases acquired than ended, by their events", p.name, held)
	}
	if lines != 0 || grants != 0 || tasks != 0 {
		l.badf("%s has %d lines, %d grants and %d tasks left", p.name, lines, grants, tasks)
	}
}
