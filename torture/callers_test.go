package torture_test

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// The side of the callers.

func (l *ledger) asking(a *ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	a.n = l.n
	l.asks[a] = true
	if t := l.tops[a.name]; t != nil {
		a.floor = *t
	}
	l.log("%v", a)
}

// got enters what a Lock or TryLock answered.
func (l *ledger) got(a *ask, pl *pawl.Lease, err error) *lease {
	if (pl == nil) == (err == nil) {
		l.badf("%v: lease %v and error %v", a, pl, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asks, a)
	a.done = true
	if err != nil {
		l.log("%v: %v", a, err)
		l.refused(a, err)
		return nil
	}
	x := l.lease(a, pl)
	if x == nil {
		return nil
	}
	if a.in == nil || a.in.token != x.token {
		l.order(x)
	}
	l.alone(x)
	return x
}

// lease finds the hold that a new lease lives on and enters the lease.
func (l *ledger) lease(a *ask, pl *pawl.Lease) *lease {
	x := &lease{n: a.n, a: a, l: pl, token: pl.Token(), at: time.Now()}
	x.hold = l.byID[pl.ID()]
	l.log("%v: lease %d token %d of %s", a, x.n, x.token, pl.ID())
	if h := x.hold; h == nil || h.Name != a.name || pl.Name() != a.name || x.token < h.Token || x.token >= h.Token+int64(h.span) {
		l.complain("lease %d has the token %d of %s %q, which the store never granted", x.n, x.token, pl.ID(), pl.Name())
		return nil
	}
	if nested := a.in != nil && a.in.token == x.token; !nested && (x.hold.Kind != a.kind || x.hold.Permits != a.weight) {
		l.complain("lease %d (%v) lives on %d permits, used as %s", x.n, a, x.hold.Permits, x.hold.Kind)
	}
	if at := l.undone[x.hold.ID]; !at.IsZero() {
		l.complain("lease %d lives on %s, which was given back", x.n, x.hold.ID)
	}
	if a.in != nil && a.in.token == x.token {
		// A lease that has just ended is passed over for the one that it re-entered, if any.
		for x.parent = a.in; x.parent != nil && x.parent.l.Err() != nil; {
			x.parent = x.parent.parent
		}
	}
	x.ctx = pl.Context(a.base())
	l.leases = append(l.leases, x)
	return x
}

// base is what contexts of the lease are made from: what carries the outer lease, if any, without the end of the wait.
func (a *ask) base() context.Context {
	if a.in != nil {
		return a.in.ctx
	}
	return a.p.ctx
}

// order checks the token of a lease that asked the store or was handed one.
func (l *ledger) order(x *lease) {
	t := l.tops[x.a.name]
	if t == nil {
		t = &top{}
		l.tops[x.a.name] = t
	}
	switch {
	case !x.hold.robbed.IsZero(): // its client does not know yet, and passes on what is stale
		return
	case x.a.kind == driver.Permits:
		for _, y := range l.leases {
			if y != x && y.a.name == x.a.name && y.token == x.token {
				l.complain("leases %d and %d have the same permit %d", x.n, y.n, x.token)
			}
		}
	case alone(x.a.kind):
		if x.token <= x.a.floor.any {
			l.complain("lease %d has token %d, not above %d of before", x.n, x.token, x.a.floor.any)
		}
		if x.token <= t.any {
			l.complain("lease %d has token %d, not above %d of earlier ones", x.n, x.token, t.any)
		}
		t.alone = max(t.alone, x.token)
	default:
		if x.token <= x.a.floor.alone || x.token <= t.alone {
			l.complain("reader %d has token %d, not above %d of the last writer", x.n, x.token, t.alone)
		}
	}
	t.any = max(t.any, x.token)
}

// alone checks that x is compatible with all other live leases of its name.
func (l *ledger) alone(x *lease) {
	if x.ending || !x.hold.robbed.IsZero() || x.l.Err() != nil {
		return
	}
	sum := x.a.weight
	for _, y := range l.leases {
		if y == x || y.a.name != x.a.name || y.ending || !y.hold.robbed.IsZero() {
			continue
		}
		if x.a.kind == driver.Permits {
			if y.l.Err() == nil {
				sum += y.a.weight
			}
			continue
		}
		if x.a.kind == driver.Read && y.a.kind == driver.Read || x.inside(y) || y.inside(x) {
			continue
		}
		if y.l.Err() == nil && x.l.Err() == nil {
			l.complain("leases %d (%v) and %d (%v) are live at once", x.n, x.a, y.n, y.a)
		}
	}
	if x.a.kind == driver.Permits && sum > permits {
		l.complain("%d of %d permits of %q are taken", sum, permits, x.a.name)
	}
}

func (x *lease) inside(y *lease) bool {
	for p := x.parent; p != nil; p = p.parent {
		if p == y {
			return true
		}
	}
	return false
}

// refused checks that the error of a Lock or TryLock is one that may be.
func (l *ledger) refused(a *ask, err error) {
	since, calm := a.p.wire.calm()
	clean := since.IsZero() && calm && !a.p.cut()
	cause := context.Cause(a.ctx)
	switch {
	case isAny(err, pawl.ErrHeld):
		he, ok := errors.AsType[*pawl.HeldError](err)
		switch {
		case !ok || he.Name != a.name && !a.multi:
			l.complain("%v: %v is not the right *HeldError", a, err)
		case !a.try && cause == nil && !(a.pol.Wait > 0 && isAny(err, context.DeadlineExceeded)):
			l.complain("%v: %v, but nothing has ended the wait", a, err)
		case !a.try && cause != nil && !isAny(err, cause) && !isAny(err, context.DeadlineExceeded):
			l.complain("%v: %v does not match %v", a, err, cause)
		}
	case cause != nil && isAny(err, cause):
	case a.pol.Wait > 0 && isAny(err, context.DeadlineExceeded):
	case isAny(err, pawl.ErrClosed):
		if !a.p.closing() {
			l.complain("%v: %v, but the client is open", a, err)
		}
	case isAny(err, pawl.ErrMismatch):
		if a.in == nil || a.in.a.kind != driver.Read || a.kind != driver.Write {
			l.complain("%v: %v", a, err)
		}
	case isAny(err, pawl.ErrLost, pawl.ErrNotHeld) && a.in != nil && a.in.l.Err() != nil:
	case a.multi && isAny(err, pawl.ErrLost): // one of them ended while another one was waited for
	case isAny(err, pawl.ErrLost, pawl.ErrUnknown, io.ErrUnexpectedEOF, errSlow, errBroken, errCertain):
		if clean {
			l.complain("%v: %v, but nothing is wrong with the store", a, err)
		}
	default:
		l.complain("%v: %v is no error that may be", a, err)
	}
}

// unlock unlocks x and checks what it answers.
func (l *ledger) unlock(x *lease) error {
	l.mu.Lock()
	was := x.l.Err()
	x.ending = true
	x.unlocks++
	l.log("unlock %d, which is %v", x.n, was)
	l.mu.Unlock()

	begin := time.Now()
	err := x.l.Unlock()
	took := time.Since(begin)

	since, calm := x.a.p.wire.calm()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log("unlock %d: %v", x.n, err)
	dirty := !calm || x.a.p.cut() || !since.Before(x.at) || x.a.p.closing()
	switch {
	case took > 3*time.Second+100*time.Millisecond:
		l.complain("unlock %d took %v", x.n, took)
	case isAny(err, pawl.ErrNotHeld):
		if x.unlocks == 1 && !x.unlocked {
			l.complain("unlock %d: %v", x.n, err)
		}
		return err
	case x.unlocked:
		l.complain("unlock %d once more: %v", x.n, err)
		return err
	case isAny(was, pawl.ErrLost) && !isAny(err, pawl.ErrLost):
		l.complain("unlock %d of a lost lease: %v", x.n, err)
	case err == nil:
		if x.a.pol == minHold && alone(x.a.kind) && x.parent == nil && x.hold.robbed.IsZero() && !dirty && len(l.on(x.hold)) == 1 {
			l.keptTill[x.a.name] = x.hold.at.Add(minHold.MinHold)
		}
	case isAny(err, pawl.ErrLost):
		tooLong := x.a.pol.MaxHold > 0 && begin.Sub(x.at) >= x.a.pol.MaxHold
		if was == nil && x.hold.robbed.IsZero() && !dirty && !tooLong {
			l.complain("unlock %d: %v, but nobody took it", x.n, err)
		}
	case isAny(err, pawl.ErrUnknown):
		if !dirty {
			l.complain("unlock %d: %v, but nothing is wrong with the store", x.n, err)
		}
	default:
		l.complain("unlock %d: %v is no error that may be", x.n, err)
	}
	x.unlocked = true
	l.drop(x)
	return err
}

// on are the leases on a hold.
func (l *ledger) on(h *hold) (xs []*lease) {
	for _, x := range l.leases {
		if x.hold == h {
			xs = append(xs, x)
		}
	}
	return xs
}

func (l *ledger) drop(x *lease) {
	for i, y := range l.leases {
		if y == x {
			l.leases = append(l.leases[:i:i], l.leases[i+1:]...)
			l.over = append(l.over, x)
			return
		}
	}
}
