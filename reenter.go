package pawl

import (
	"context"
	"errors"
	"slices"

	"github.com/pawl-lock/pawl/driver"
)

// The leases nested directly in one lease exclude one another, as its holder and strangers do: at any instant only one
// of them is live, or several readers. So two goroutines that share a lease's Context never run under it at once, while
// a call that descends from it enters without waiting (Moss, Nested Transactions, 1981: every other holder of a lock
// must be an ancestor).

var (
	errUnlocked = ErrNotHeld
	errOuter    = &outerError{}
	errUpgrade  = errors.New("held to read by this context: unlock it before writing")
)

// outerError ends a nested lease whose outer one was unlocked.
type outerError struct{}

func (*outerError) Error() string        { return "the lease that this one re-entered was unlocked: not held" }
func (*outerError) Is(target error) bool { return target == ErrNotHeld }

// kin is what ties a lease to the one that it is nested in, and to those nested directly in it.
type kin struct {
	parent  *Lease // nil: it re-entered nothing
	n       int    // live leases nested in it
	reading bool   // they are readers
	queue   []chan struct{}
}

// parent is the lease that l re-entered, or nil.
func (l *Lease) parent() *Lease {
	if l.kin == nil {
		return nil
	}
	return l.kin.parent
}

func (k *kin) wake() {
	if k == nil {
		return
	}
	for _, ch := range k.queue {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (k *kin) end() {
	if k.n--; k.n == 0 {
		k.wake()
	}
}

// reads reports whether l, which is live, shares its name with other readers, inside a writer perhaps.
func (l *Lease) reads() bool {
	return l.g.hold.Kind == driver.Read || l.parent() != nil && l.parent().kin.reading
}

// reenter takes a lease nested in l, without asking the store.
func (l *Lease) reenter(ctx context.Context, t *target, try bool) (*Lease, error) {
	g := l.g
	c := g.cl.core
	if g.hold.Kind.Family() != t.kind.Family() {
		return nil, wrap("lock", t.name, &driver.MismatchError{Have: g.hold.Kind, Want: t.kind})
	}
	read := t.kind == driver.Read
	var ch chan struct{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.kin == nil {
		l.kin = &kin{}
	}
	leave := func() {
		if i := slices.Index(l.kin.queue, ch); ch != nil && i >= 0 {
			l.kin.queue = slices.Delete(l.kin.queue, i, i+1)
			l.kin.wake()
		}
	}
	for {
		first := len(l.kin.queue) == 0 || l.kin.queue[0] == ch
		switch {
		case l.cause != nil:
			leave()
			return nil, wrap("lock", t.name, l.cause)
		case c.closed:
			leave()
			return nil, wrap("lock", t.name, ErrClosed)
		case !read && l.reads():
			leave()
			return nil, wrap("lock", t.name, errors.Join(errUpgrade, ErrMismatch))
		case first && (l.kin.n == 0 || read && l.kin.reading):
			l.kin.n++
			l.kin.reading = read
			k := g.lease(t.c, l, l.token, driver.Now())
			leave()
			return k, nil
		case try:
			return nil, &HeldError{Name: t.name, Here: true, Waiters: len(l.kin.queue)}
		case ctx.Err() != nil:
			leave()
			return nil, &HeldError{Name: t.name, Here: true, Waiters: -1, cause: context.Cause(ctx)}
		}
		if ch == nil {
			ch = make(chan struct{}, 1)
			l.kin.queue = append(l.kin.queue, ch)
		}
		c.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
}
