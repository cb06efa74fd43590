package pawl

import (
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Hand-off bounds. A grant passes from one local holder to the next until its token interval or its time slice is used
// up; then it goes back to the store, where other processes wait (lock cohorting, Dice, Marathe and Shavit, PPoPP 2012).
const (
	maxSpan      = 1024
	defaultSlice = 5 * time.Millisecond
)

type lineKey struct {
	name string
	kind driver.Kind
}

// lineOf says which line a kind queues in: readers and writers share one, the other kinds have their own.
func lineOf(t *target) lineKey {
	k := t.kind
	if k == driver.Write {
		k = driver.Read
	}
	return lineKey{t.name, k}
}

// ownPlace reports that every waiter of the kind contends in the store for itself.
func ownPlace(k driver.Kind) bool { return k == driver.Fair || k == driver.Leader }

// line is the local queue of one name. At most one of its waiters, the leader, contends in the store (of Fair: all).
type line struct {
	name       string
	kind       driver.Kind
	live       int32 // grants of this line, and requests made beside it
	head, tail *waiter
	leader     *waiter
	writer     *grant // the live grant that excludes all others here: of Exclusive, Write and Once, until it is given back
	reader     *grant // the read grant that new readers may join
}

// waiter is one goroutine inside Lock or TryLock.
type waiter struct {
	t          *target
	ln         *line
	next, prev *waiter
	ch         chan struct{} // capacity 1: look again
	leading    bool          // contends in the store
	trying     bool          // has a request under way there
	beside     bool          // asks beside the line, not in it
	counted    bool          // Close waits until it has left
	con        *contender    // while leading
	lease      *Lease        // handed over
	err        error         // failed by somebody else
	held       *driver.HeldError
}

func (c *core) waiter(t *target) *waiter {
	w, _ := c.spare.Get().(*waiter)
	if w == nil {
		w = &waiter{ch: make(chan struct{}, 1)}
	}
	w.t = t
	return w
}

// free lets another Lock use w, which is in no line any more, so that nobody pings it.
func (c *core) free(w *waiter) {
	select {
	case <-w.ch:
	default:
	}
	*w = waiter{ch: w.ch}
	c.spare.Put(w)
}

func (w *waiter) ping() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

func (w *waiter) fail(err error) {
	if w.lease == nil && w.err == nil {
		w.err = err
		w.ping()
	}
}

// like reports whether a grant or a place in line of w serves o as well.
func (w *waiter) like(o *target) bool {
	return w.t.kind == o.kind && w.t.permits == o.permits && w.t.limit == o.limit && w.t.c.pol == o.c.pol
}

func (c *core) line(k lineKey) *line {
	ln := c.lines[k]
	if ln == nil {
		ln = &line{name: k.name, kind: k.kind}
		c.lines[k] = ln
	}
	return ln
}

func (ln *line) push(w *waiter) {
	w.prev = ln.tail
	if ln.tail == nil {
		ln.head = w
	} else {
		ln.tail.next = w
	}
	ln.tail = w
}

// parked is the first waiter that does not contend in the store, or nil.
func (ln *line) parked() *waiter {
	for w := ln.head; w != nil; w = w.next {
		if !w.leading && w.lease == nil && w.err == nil {
			return w
		}
		if ownPlace(w.t.kind) {
			return nil
		}
	}
	return nil
}

// remove takes w out of its line. What w had in the store goes to the next leader if it fits, else it is left.
func (c *core) remove(w *waiter) {
	ln := w.ln
	if w.prev == nil {
		ln.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ln.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
	if ln.leader == w {
		ln.leader = nil
	}
	w.leading = false
	con := w.con
	w.con = nil
	c.promote(ln)
	if n := ln.leader; con != nil && n != nil && n.con == nil && !n.trying && w.like(n.t) {
		n.con, n.held, con.w = con, w.held, n
		con = nil
	}
	if con != nil {
		c.settle(con)
	}
	if w.counted {
		c.tasks.end()
	}
}

// promote makes the first parked waiter the leader if it may contend now, after letting readers join what is held.
func (c *core) promote(ln *line) {
	for ln.leader == nil {
		w := ln.parked()
		if w == nil || ln.writer != nil {
			break
		}
		if g := ln.reader; w.t.kind == driver.Read && c.joinable(g, w.t) {
			c.hand(g, w, g.last, driver.Now())
			continue
		}
		w.leading, ln.leader = true, w
		w.ping()
	}
	if ln.head == nil && ln.live == 0 {
		delete(c.lines, lineKey{ln.name, ln.kind})
	}
}

// joinable reports whether a reader may share g: it is not being given back, and the store's grant is young enough that
// nobody behind it starves.
func (c *core) joinable(g *grant, t *target) bool {
	if g == nil || g.index < 0 || c.closed || t.c.pol != g.cl.pol || g.cl.pol.maxHold > 0 || g.cl.pol.minHold > 0 || g.cl.pol.noKeepalive {
		return false
	}
	now := driver.Now()
	return now.Sub(g.start) < g.cl.pol.slice && g.trustedHalf(now)
}

// hand makes w the holder of a new lease of g and takes it out of the line.
func (c *core) hand(g *grant, w *waiter, token int64, now driver.Instant) {
	w.lease = g.lease(w.t.c, nil, token, now)
	c.remove(w)
	w.ping()
}

// next is the waiter to whom the last lease of g may pass without asking the store, or nil.
func (c *core) next(g *grant, now driver.Instant) *waiter {
	ln := g.ln
	if ln == nil || c.closed || g.left == 0 || g.cl.pol.minHold > 0 || g.cl.pol.noKeepalive || g.hold.Kind == driver.Once ||
		g.hold.Kind == driver.Read || ownPlace(g.hold.Kind) {
		return nil
	}
	w := ln.parked()
	if l := ln.leader; l != nil { // of a semaphore: it is served before those behind it
		if l.trying {
			return nil
		}
		w = l
	}
	if w == nil || w.t.kind != g.hold.Kind || w.t.permits != g.hold.Permits || w.t.limit != g.limit || w.t.c.pol != g.cl.pol || w.err != nil {
		return nil
	}
	if now.Sub(g.start) >= g.cl.pol.slice && (g.cl.pol.linger == 0 || g.wanted) || !g.trustedHalf(now) {
		return nil
	}
	return w
}

// span is how many tokens to reserve for w: more than one only if a hand-off may follow.
func (ln *line) span(w *waiter) int {
	p := &w.t.c.pol
	if p.noKeepalive || p.minHold > 0 || w.t.kind == driver.Read || w.t.kind == driver.Once || ownPlace(w.t.kind) {
		return 1
	}
	if p.linger > 0 && !w.t.kind.Shared() || ln.head != w || w.next != nil {
		return p.span
	}
	return 1
}
