package pawl

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// together takes all locks in one request, if the store can do that and nobody here is in the way. When it answers neither
// leases nor an error, nothing is held, and they are to be taken one by one. Its error is about the lock with that number.
func (p *plan) together(ctx context.Context, try bool) (Leases, int, error) {
	if len(p.locks) < 2 || ctx.Err() != nil {
		return nil, 0, nil
	}
	c := p.locks[0].c.core
	j, ok := c.d.(driver.Joiner)
	if !ok {
		return nil, 0, nil
	}
	for _, t := range p.locks {
		if t.c.core != c || t.kind != driver.Exclusive || find(ctx, c, t.name) != nil {
			return nil, 0, nil
		}
	}
	ws := c.leadAll(p.locks)
	if ws == nil {
		return nil, 0, nil
	}
	defer func() {
		for _, w := range ws {
			c.free(w)
		}
	}()
	places := make([]driver.Place, len(ws))
	var grants []driver.Grant
	var err error
	entered := false
	for i, w := range ws {
		if places[i], err = c.d.Enter(ctx, w.con.req); err != nil {
			break
		}
		w.con.place = places[i]
	}
	if err == nil {
		entered = true
		grants, err = j.TryAll(ctx, places)
	}
	if err == nil {
		return c.grantedAll(ctx, ws, grants)
	}

	held, isHeld := errors.AsType[*driver.HeldError](err)
	known := !entered || isHeld || errors.Is(err, driver.ErrHeld) || sure(err)
	c.mu.Lock()
	for _, w := range ws {
		w.trying = false
		if !known {
			c.settle(w.con)
		}
		w.con.w, w.con = nil, nil
		c.quitLine(w)
	}
	c.mu.Unlock()
	t := p.locks[0]
	switch {
	case !known && ctx.Err() != nil:
		return nil, 0, wrap("lock", t.name, both(err, ctx))
	case !known:
		return nil, 0, &UnknownError{Op: "lock", Name: t.name, FreeBy: time.Now().Add(t.c.pol.ttl), Err: err}
	case isHeld && try:
		for i, t := range p.locks {
			if t.name == held.By.Name {
				e := &HeldError{Name: t.name}
				e.learn(c, held)
				return nil, i, e
			}
		}
	}
	return nil, 0, nil // one by one: they are waited for, or the one that is at fault says so
}

// leadAll makes a leader in every line, as if each were in Lock; nil if somebody is in one of them.
func (c *core) leadAll(locks []*target) []*waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	for _, t := range locks {
		if ln := c.lines[lineOf(t)]; ln != nil && (ln.head != nil || ln.leader != nil || ln.writer != nil) {
			return nil
		}
	}
	ws := make([]*waiter, len(locks))
	for i, t := range locks {
		w := c.waiter(t)
		w.ln, w.leading, w.trying = c.line(lineOf(t)), true, true
		w.ln.push(w)
		w.ln.leader = w
		w.con = c.contender(w, false)
		ws[i] = w
	}
	return ws
}

// grantedAll makes the leases, or gives everything back if one of them is not worth having any more.
func (c *core) grantedAll(ctx context.Context, ws []*waiter, grants []driver.Grant) (got Leases, at int, failed error) {
	got = make(Leases, len(ws))
	for i, w := range ws {
		l, err := c.granted(ctx, w, w.con, grants[i])
		if got[i] = l; err != nil {
			at, failed = i, err
		}
	}
	if failed == nil {
		return got, 0, nil
	}
	for _, l := range got {
		if l != nil {
			c.abandon(l)
		}
	}
	return nil, at, failed
}
