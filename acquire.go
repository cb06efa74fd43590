package pawl

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// contender is what the client has at one name in the store while it asks for a hold.
type contender struct {
	c     *core
	req   driver.Request
	place driver.Place // nil until Enter; only the leader touches it
	link  *link

	w *waiter // under mu: whom Changed wakes
}

// link carries a driver's signals to the grant that they are about. It outlives the contender.
type link struct {
	c   *core
	con *contender
	g   *grant // under mu
	out driver.Signal
}

func (k *link) notify(s driver.Signal) {
	var out after
	k.c.mu.Lock()
	switch {
	case s == driver.Changed:
		if k.con != nil && k.con.w != nil {
			k.con.w.ping()
		}
	case k.g == nil:
		if k.out != driver.Lost { // Wanted says nothing about a hold that is gone
			k.out = s
		}
	default:
		k.c.signal(k.g, s, &out)
	}
	k.c.mu.Unlock()
	out.run()
}

func (c *core) signal(g *grant, s driver.Signal, out *after) {
	switch s {
	case driver.Lost:
		c.lose(g, Revoked, nil, out)
	case driver.Wanted:
		g.wanted = true
		if g.idle {
			c.drain(g)
		}
	}
}

func (c *core) contender(w *waiter, wait bool) *contender {
	t := w.t
	con := &contender{c: c, w: w, link: &link{c: c}}
	con.link.con = con
	var id [64]byte
	con.req = driver.Request{
		Hold: driver.Hold{Kind: t.kind, Name: t.name, ID: string(strconv.AppendInt(append(append(id[:0], c.id...), ':'), c.seq.Add(1), 10)),
			Permits: t.permits, TTL: t.c.pol.ttl},
		Limit: t.limit, Wait: wait, Value: t.value, Notify: con.link.notify,
		Who: driver.Holder{Label: t.c.pol.holder, Host: c.host, Note: t.c.pol.note, PID: pid},
	}
	return con
}

func (t *target) acquire(ctx context.Context, try bool) (*Lease, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if t.c.opts.OnEvent == nil {
		return t.take(ctx, try)
	}
	begin := driver.Now()
	if above := t.above(ctx); above != nil && !try {
		t.c.events.emit(&t.c.opts, Event{Op: OutOfOrder, Name: t.name,
			Err: invalid("%q comes before %q in the order of locks, which this context already holds", t.name, above.Name())})
	}
	l, err := t.take(ctx, try)
	switch {
	case err != nil:
		t.c.events.emit(&t.c.opts, Event{Op: Failed, Name: t.name, Took: driver.Now().Sub(begin), Err: err})
	case l.parent() == nil: // re-entry is no event, nor is its end
		t.c.mu.Lock()
		l.acquired(driver.Now().Sub(begin))
		t.c.mu.Unlock()
	}
	return l, err
}

func (t *target) take(ctx context.Context, try bool) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, wrap("lock", t.name, context.Cause(ctx))
	}
	c := t.c.core
	if wait := t.c.opts.Wait; wait > 0 && !try {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, wait)
		defer stop()
	}
	if reenters(t.kind) {
		if up := find(ctx, c, t.name); up != nil {
			return up.reenter(ctx, t, try)
		}
	}
	w := c.waiter(t)
	defer c.free(w)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, wrap("lock", t.name, ErrClosed)
	}
	ln := c.line(lineOf(t))
	w.ln = ln
	switch g := ln.writer; {
	case ownPlace(t.kind):
		ln.push(w)
		w.leading = true
	case g != nil && g.idle && g.hold.Kind == t.kind && g.cl.pol == t.c.pol && ln.head == nil && g.left > 0 && g.trustedHalf(driver.Now()):
		l := c.resume(g, t.c)
		c.mu.Unlock()
		return l, nil
	case t.kind == driver.Read && ln.head == nil && c.joinable(ln.reader, t):
		l := ln.reader.lease(t.c, nil, ln.reader.last, driver.Now())
		c.mu.Unlock()
		return l, nil
	case g == nil && ln.leader == nil && ln.head == nil:
		ln.push(w)
		w.leading, ln.leader = true, w
	case try && t.kind.Shared() && g == nil && (ln.leader == nil || ln.leader.held == nil && ln.leader.next == nil):
		// Beside the leader's first request, which says nothing yet about who may get in: ask for ourselves.
		w.leading, w.beside = true, true
		ln.live++
	case try:
		if g != nil && g.idle {
			c.drain(g)
		}
		err := c.busy(ln, t)
		c.mu.Unlock()
		return nil, err
	default:
		if g != nil && g.idle {
			c.drain(g)
		}
		ln.push(w)
		c.mu.Unlock()
		if l, err := c.park(ctx, w); l != nil || err != nil {
			return l, err
		}
	}
	return c.contend(ctx, w, try)
}

// busy is the answer to a TryLock that need not ask the store.
func (c *core) busy(ln *line, t *target) error {
	e := &HeldError{Name: t.name, Waiters: -1}
	switch g := ln.writer; {
	case g != nil:
		e.Here = true
		e.Holder = Holder{Label: g.cl.pol.holder, Host: c.host, Note: g.cl.pol.note, PID: pid, Token: g.last, Permits: g.hold.Permits, hold: g.hold}
		e.Remaining = max(g.trust.Until(), 0)
	case ln.leader != nil && ln.leader.held != nil:
		e.learn(c, ln.leader.held)
	}
	return e
}

func (e *HeldError) learn(c *core, d *driver.HeldError) {
	e.Holder, e.Remaining, e.Waiters = holder(d.By), d.Remaining, d.Ahead
	e.Here = d.By.ID != "" && c.ours(d.By.ID)
}

// park waits in the local line until w leads (nil, nil, and c.mu is held), was handed a lease, failed, or ctx ended.
func (c *core) park(ctx context.Context, w *waiter) (*Lease, error) {
	for {
		if done := ctx.Done(); done == nil {
			<-w.ch // half as dear as a select
		} else {
			select {
			case <-w.ch:
			case <-done:
			}
		}
		c.mu.Lock()
		switch {
		case w.lease != nil:
			l := w.lease
			c.mu.Unlock()
			if ctx.Err() != nil {
				c.abandon(l)
				return nil, c.gaveUp(ctx, w, nil, true)
			}
			return l, nil
		case w.err != nil:
			c.remove(w)
			c.mu.Unlock()
			return nil, w.err
		case ctx.Err() != nil:
			held := w.held
			if l := w.ln.leader; held == nil && l != nil {
				held = l.held
			}
			here := w.ln.writer != nil
			c.remove(w)
			c.mu.Unlock()
			return nil, c.gaveUp(ctx, w, held, here)
		case w.leading:
			return nil, nil
		}
		c.mu.Unlock()
	}
}

// gaveUp is the error of a wait that ctx ended. It says ErrHeld only if somebody is known to have been in the way: the
// store said so in held, or a lease of this client is.
func (c *core) gaveUp(ctx context.Context, w *waiter, held *driver.HeldError, here bool) error {
	if held == nil && !here {
		return wrap("lock", w.t.name, context.Cause(ctx))
	}
	e := &HeldError{Name: w.t.name, Waiters: -1, cause: context.Cause(ctx)}
	if held != nil {
		e.learn(c, held)
	}
	e.Here = e.Here || here
	return e
}

// contend asks the store for w until it is granted, refused, or ctx ends. A Lock that has been in line rides out a
// failing store for one TTL, counted from the first failure. c.mu is held when it is called, and not when it returns.
func (c *core) contend(ctx context.Context, w *waiter, try bool) (*Lease, error) {
	var timer *time.Timer
	var outage driver.Instant
	pause := minPause
	for ; ; c.mu.Lock() {
		switch { // looked at under the same lock as trying is set: nobody hands w a lease once it asks the store
		case w.lease != nil:
			l := w.lease
			c.mu.Unlock()
			if ctx.Err() != nil {
				c.abandon(l)
				return nil, c.gaveUp(ctx, w, w.held, false)
			}
			return l, nil
		case w.err != nil:
			c.quitLine(w)
			c.mu.Unlock()
			return nil, w.err
		case ctx.Err() != nil:
			c.quitLine(w)
			c.mu.Unlock()
			return nil, c.gaveUp(ctx, w, w.held, false)
		}
		con := w.con
		if con == nil {
			con = c.contender(w, !try)
			w.con = con
		}
		w.trying = true
		span := w.ln.span(w)
		c.mu.Unlock()

		var g driver.Grant
		var err error
		if con.place == nil {
			con.place, err = c.d.Enter(ctx, con.req)
		}
		entered := err == nil
		if entered {
			g, err = con.place.Try(ctx, span)
		}
		if err == nil {
			return c.granted(ctx, w, con, g)
		}

		var wait time.Duration
		var undone <-chan struct{}
		held, isHeld := errors.AsType[*driver.HeldError](err)
		isHeld = isHeld || errors.Is(err, driver.ErrHeld)
		certain := !entered || sure(err)
		c.mu.Lock()
		w.trying = false
		switch {
		case isHeld:
			if held == nil {
				held = &driver.HeldError{Ahead: -1}
			}
			w.held = held
			if try {
				w.con, con.w = nil, nil // nothing of it is in the store
				c.quitLine(w)
				c.mu.Unlock()
				e := &HeldError{Name: w.t.name}
				e.learn(c, held)
				return nil, e
			}
			wait = recheck(held)
			outage, pause = 0, minPause
		case ctx.Err() != nil, try, w.held == nil, certain && !errors.Is(err, driver.ErrNotDone),
			outage != 0 && driver.Now().Sub(outage) >= w.t.c.pol.ttl:
			if !certain || w.held != nil {
				c.settle(con)
			}
			w.con, con.w = nil, nil
			if ctx.Err() == nil && (!certain || errors.Is(err, driver.ErrNotDone) || errors.Is(err, driver.ErrDone)) {
				// The answer is about the store or the name, not the caller: those behind would only get it one by one.
				for o := w.ln.head; o != nil; o = o.next {
					if !o.leading {
						o.fail(wrap("lock", o.t.name, err))
					}
				}
			}
			c.quitLine(w)
			c.mu.Unlock()
			return nil, c.failed(ctx, w, con, err, certain)
		default:
			if outage == 0 {
				outage = driver.Now()
			}
			if !certain {
				undone = c.settle(con)
				w.con = nil
			}
			wait = jitter(pause)
			pause = min(2*pause, maxPause)
		}
		c.mu.Unlock()

		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		c.doze(ctx, w, timer, undone)
	}
}

// doze sleeps until it is time for w to look again: when the timer fires, and undone, if any, is closed, which means that
// the store answers or that nobody need wait for its answer any more; or when w is woken, or ctx ends.
func (c *core) doze(ctx context.Context, w *waiter, timer *time.Timer, undone <-chan struct{}) {
	tick := timer.C
	for tick != nil || undone != nil {
		select {
		case <-tick:
			tick = nil
		case <-undone:
			undone = nil
		case <-w.ch:
			c.mu.Lock()
			over := w.lease != nil || w.err != nil
			c.mu.Unlock()
			if over || undone == nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// quitLine ends w's turn, whether it queued in a line or asked beside it.
func (c *core) quitLine(w *waiter) {
	if !w.beside {
		c.remove(w)
		return
	}
	w.con = nil
	w.ln.live--
	c.promote(w.ln)
}

// sure reports whether err says for certain that the request had no effect.
func sure(err error) bool {
	return isAny(err, driver.ErrNotDone, driver.ErrMismatch, driver.ErrDone, driver.ErrInvalid, errors.ErrUnsupported)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

func (c *core) failed(ctx context.Context, w *waiter, con *contender, err error, certain bool) error {
	switch {
	case ctx.Err() != nil && w.held != nil:
		return c.gaveUp(ctx, w, w.held, false)
	case ctx.Err() != nil:
		return wrap("lock", w.t.name, both(err, ctx))
	case certain:
		return wrap("lock", w.t.name, err)
	}
	return &UnknownError{Op: "lock", Name: w.t.name, FreeBy: time.Now().Add(con.req.TTL), Err: err}
}

// recheck is how long to sleep when no message comes: until the holder runs out, but not for longer than a lost message
// may cost.
func recheck(e *driver.HeldError) time.Duration {
	switch d := e.Again; {
	case d > 0:
		return max(d, time.Millisecond)
	case e.Remaining > 0 && e.Remaining < maxRecheck:
		return e.Remaining + time.Millisecond + rand.N(10*time.Millisecond)
	}
	return maxRecheck - rand.N(maxRecheck/4)
}

// jitter spreads d by half of it in both directions.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d)
}

const (
	maxRecheck = 10 * time.Second
	minPause   = 20 * time.Millisecond // between attempts while the store fails
	maxPause   = time.Second
)

// settle gives back, in the background, whatever con has or may yet get in the store. It goes on for one TTL, after
// which nothing of it can be left; then, or when it is done before, the channel is closed.
func (c *core) settle(con *contender) <-chan struct{} {
	con.w = nil
	if con.place == nil {
		return nil
	}
	return c.repeat(con.req.TTL, func(ctx context.Context) error { return con.place.Leave(ctx) })
}

// abandon gives back, in the background, a lease that its caller never learns of.
func (c *core) abandon(l *Lease) {
	var out after
	c.mu.Lock()
	l.finish(errUnlocked, &out)
	c.mu.Unlock()
	out.run()
	c.tasks.run(func() { l.Unlock() })
}

// repeat runs f in the background until it succeeds, answers ErrNotHeld, or limit is over. Then the channel is closed.
func (c *core) repeat(limit time.Duration, f func(context.Context) error) <-chan struct{} {
	over := make(chan struct{})
	c.tasks.run(func() {
		defer close(over)
		ctx, stop := context.WithTimeout(c.base, limit)
		defer stop()
		for pause := minPause; ; pause = min(2*pause, maxPause) {
			one, done := context.WithTimeout(ctx, max(limit/4, 50*time.Millisecond))
			err := f(one)
			done()
			if err == nil || errors.Is(err, ErrNotHeld) || ctx.Err() != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
	return over
}

// granted turns the store's answer into a lease, or gives it back if nobody wants it any more.
func (c *core) granted(ctx context.Context, w *waiter, con *contender, d driver.Grant) (*Lease, error) {
	hold := con.req.Hold
	hold.Token = d.Token
	g := newGrant(w.t, hold, d)
	now := driver.Now()
	var out after
	c.mu.Lock()
	w.trying, w.con = false, nil
	con.w, con.link.con = nil, nil
	if c.closed || w.err != nil || now >= g.trust {
		err := w.err
		switch {
		case c.closed:
			err = wrap("lock", w.t.name, ErrClosed)
		case err == nil:
			err = wrap("lock", w.t.name, &LostError{Name: hold.Name, Token: hold.Token, Reason: Expired})
		}
		c.repeat(hold.TTL, func(ctx context.Context) error { return c.d.Release(ctx, hold, driver.End{}) })
		c.quitLine(w)
		c.mu.Unlock()
		return nil, err
	}
	c.admit(g, w.ln)
	l := g.lease(w.t.c, nil, d.Token, now)
	con.link.g = g
	if con.link.out != 0 {
		c.signal(g, con.link.out, &out)
	}
	c.quitLine(w)
	c.mu.Unlock()
	out.run()
	if ctx.Err() != nil {
		c.abandon(l)
		return nil, c.gaveUp(ctx, w, w.held, false)
	}
	return l, nil
}
