package pawl

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Lease is one successful Lock: the time-limited right to a name. It is safe for concurrent use and may be unlocked by
// any goroutine. All methods of a nil Lease answer as for a lease that was unlocked.
type Lease struct {
	g     *grant
	cl    *Client
	token int64
	got   driver.Instant

	// under core.mu
	next, prev *Lease        // in its grant
	over       bool          // unlocked
	told       bool          // its events are told
	cause      error         // why it ended
	done       chan struct{} // made by Done, closed when it ends
	ends       *ending       // the contexts that end with it
	kin        *kin          // nil: nothing nested, in either direction
}

// ending is one context made by Lease.Context.
type ending struct {
	cancel     context.CancelCauseFunc
	stop       func() bool // of the AfterFunc that forgets it; nil: none
	next, prev *ending
}

// Name is the name of the lock.
func (l *Lease) Name() string {
	if l == nil {
		return ""
	}
	return l.g.hold.Name
}

// Token is the fencing token: larger than that of every earlier conflicting holder of the name; readers that share a
// grant share one; a permit's is only an identity. It stays the same for the life of the lease, lost or not, and is 0
// for a nil lease and on a store that has none. It looks at the clock like Err.
func (l *Lease) Token() int64 {
	if l == nil {
		return 0
	}
	l.Err()
	return l.token
}

// ID is the store's name of the hold under the lease, unique for each time that the store was asked: leases that were
// handed over in this process share it, and differ by Token. It is for logs, and for guards that tell two holds apart.
func (l *Lease) ID() string {
	if l == nil {
		return ""
	}
	return l.g.hold.ID
}

// Deadline is the instant at which the lease is lost unless it is renewed before.
func (l *Lease) Deadline() time.Time {
	if l == nil {
		return time.Time{}
	}
	c := l.g.cl.core
	c.mu.Lock()
	at := l.g.trust
	c.mu.Unlock()
	return time.Now().Add(at.Until())
}

// Err is nil while the lease is held and trusted, then a *LostError, or ErrNotHeld once it was unlocked (or the lease
// that it re-entered was). It asks no server. It looks at the clock itself, so that a process which was stopped or
// suspended past the trust deadline is told at its first call.
func (l *Lease) Err() error {
	if l == nil {
		return ErrNotHeld
	}
	var out after
	c := l.g.cl.core
	c.mu.Lock()
	c.expire(l.g, driver.Now(), &out)
	err := l.cause
	c.mu.Unlock()
	out.run()
	return err
}

// expire loses g if its trust deadline has passed.
func (c *core) expire(g *grant, now driver.Instant, out *after) {
	if g.lost == nil && g.index >= 0 && now >= g.trust {
		c.lose(g, Expired, g.lastErr, out)
	}
}

// Done is closed when the lease ends: unlocked or lost.
func (l *Lease) Done() <-chan struct{} {
	if l == nil {
		return closedChan
	}
	c := l.g.cl.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.cause != nil {
		return closedChan
	}
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

type leaseKey struct{}

// carried is the stack of leases that a context carries.
type carried struct {
	l  *Lease
	up *carried
}

// Context is parent, except that it also ends when the lease ends; context.Cause then matches ErrLost, or ErrNotHeld
// after Unlock. Locks of the same name taken with it (or a child of it) re-enter this lease. Everything guarded should
// use it:
//
//	ctx = lease.Context(ctx)
//
// Whatever was made with it (rows, bodies, calls under way) ends at Unlock.
func (l *Lease) Context(parent context.Context) context.Context {
	if l == nil {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(ErrNotHeld)
		return ctx
	}
	up, _ := parent.Value(leaseKey{}).(*carried)
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, leaseKey{}, &carried{l, up}))
	c := l.g.cl.core
	e := &ending{cancel: cancel}
	c.mu.Lock()
	cause := l.cause
	if cause == nil {
		if e.next = l.ends; e.next != nil {
			e.next.prev = e
		}
		l.ends = e
		if parent.Done() != nil {
			e.stop = context.AfterFunc(ctx, func() { l.forget(e) })
		}
	}
	c.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
	return ctx
}

// forget drops a context that ended before the lease.
func (l *Lease) forget(e *ending) {
	c := l.g.cl.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.cause != nil {
		return
	}
	if e.prev == nil {
		l.ends = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
}

// finish ends the lease for its holder: Err, Done, contexts. The grant may live on.
func (l *Lease) finish(cause error, out *after) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.done != nil {
		close(l.done)
	}
	if first := l.ends; first != nil {
		l.ends = nil
		out.add(func() {
			for e := first; e != nil; e = e.next {
				if e.stop != nil {
					e.stop()
				}
				e.cancel(cause)
			}
		})
	}
	l.kin.wake()
}

// FromContext is the innermost lease of that name that ctx carries, ended or not, or nil. It is how code under Do finds
// its token.
func FromContext(ctx context.Context, name string) *Lease {
	for k, _ := ctx.Value(leaseKey{}).(*carried); k != nil; k = k.up {
		if k.l.g.hold.Name == name {
			return k.l
		}
	}
	return nil
}

// find is the innermost live lease of that name and client that ctx carries, or nil.
func find(ctx context.Context, c *core, name string) *Lease {
	for k, _ := ctx.Value(leaseKey{}).(*carried); k != nil; k = k.up {
		if k.l.g.cl.core == c && k.l.g.hold.Name == name && reenters(k.l.g.hold.Kind) && k.l.Err() == nil {
			return k.l
		}
	}
	return nil
}

// Unlock gives the lock back. It takes no context, since it has to work after the caller's has ended; it returns within
// 3 s or the rest of the TTL, whichever is less, but at least 100 ms are tried. Once it has returned, no renewal of this
// hold can take effect.
//
// It answers nil; a *LostError if the lease was lost before (work of others may have overlapped); ErrNotHeld if it was
// unlocked before, so that defer Unlock and return Unlock go together; an *UnknownError if the store did not confirm.
func (l *Lease) Unlock() error { return l.unlock(driver.End{}) }

func (l *Lease) unlock(end driver.End) error {
	if l == nil {
		return ErrNotHeld
	}
	g := l.g
	c := g.cl.core
	now := driver.Now()
	var out after
	c.mu.Lock()
	if l.over {
		c.mu.Unlock()
		return wrap("unlock", g.hold.Name, ErrNotHeld)
	}
	c.expire(g, now, &out)
	l.over = true
	l.finish(errUnlocked, &out)
	g.drop(l)
	if l.kin != nil && l.kin.n > 0 {
		for k := g.leases; k != nil; k = k.next {
			if k.inside(l) {
				k.finish(errOuter, &out)
			}
		}
	}
	if up := l.parent(); up != nil {
		up.kin.end()
	}
	lost := g.lost
	var err error
	release := false
	var x exit
	switch {
	case lost != nil:
		err = lost
		release = g.leases == nil
	case g.leases != nil:
	case c.passOn(g, now, end):
	case c.linger(g, now, end):
	default:
		c.agenda.remove(g) // draining: no renewal starts any more
		release = true
		x = g.exit(now, end)
	}
	if release {
		c.tasks.begin() // Close waits for it
	} else if lost == nil {
		l.tell(Released, now.Sub(l.got), nil) // before the next one here can tell that it has acquired
	}
	over := g.over
	c.mu.Unlock()
	out.run()
	if !release {
		return err
	}
	if lost != nil {
		g.giveBack()
	} else {
		err = x.leave(c)
		l.tell(Released, now.Sub(l.got), err)
		c.mu.Lock()
		c.depart(g)
		c.mu.Unlock()
	}
	if over != nil {
		close(over)
	}
	c.tasks.end()
	return err
}

// acquired tells of a lease that its caller is about to have. What happens to those that no caller ever has, and to nested
// ones, is no event.
func (l *Lease) acquired(took time.Duration) {
	l.told = true
	l.tell(Acquired, took, nil)
	if lost := l.g.lost; lost != nil && !l.over {
		l.tell(Lost, driver.Now().Sub(l.got), lost)
	}
}

func (l *Lease) tell(op Op, took time.Duration, err error) {
	if l.told {
		l.cl.events.emit(&l.cl.opts, Event{Op: op, Name: l.g.hold.Name, Token: l.token, Took: took, Err: err})
	}
}

func (l *Lease) inside(outer *Lease) bool {
	for p := l.parent(); p != nil; p = p.parent() {
		if p == outer {
			return true
		}
	}
	return false
}

// passOn hands g to the next waiter of this process, if one may have it without asking the store.
func (c *core) passOn(g *grant, now driver.Instant, end driver.End) bool {
	if end.Keep != 0 {
		return false
	}
	w := c.next(g, now)
	if w == nil {
		return false
	}
	g.pass(now)
	c.hand(g, w, g.last, now)
	return true
}

// linger keeps g for the next local caller, if the options say so and nobody else is known to want it.
func (c *core) linger(g *grant, now driver.Instant, end driver.End) bool {
	d := g.cl.pol.linger
	if d == 0 || end.Keep != 0 || c.closed || g.wanted || g.ln == nil || g.ln.writer != g || g.ln.head != nil ||
		g.cl.pol.minHold > 0 || g.cl.pol.noKeepalive || g.left == 0 || g.hold.Kind == driver.Once || !g.trustedHalf(now) {
		return false
	}
	g.idle, g.endAt = true, now.Add(d)
	c.agenda.fix(g)
	c.arm()
	return true
}
