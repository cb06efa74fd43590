package pawl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Multi is several locks that are taken all or none, made by All. It is safe for concurrent use.
type Multi struct {
	locks []Locker
}

// All combines locks, of one client or of several. A name that is given twice is taken once, in the stronger mode: writing
// beats reading, and the weights of a semaphore add up. Two kinds of lock under one name are ErrMismatch.
//
// Locks are taken in one order for everybody: by store, then by name. Nobody who takes locks in that order can deadlock
// with anybody else who does. Against those who take them in another order, All waits without limit only while it holds
// nothing: when a further lock does not come soon, it gives back what it has, waits for that one alone, and begins anew
// unless the others are free.
//
// Mutexes of one client that are all free are taken in one request where the store can do that: memlock, and Redis if one
// node has all the names (in a cluster, names with the same part in braces).
func All(locks ...Locker) *Multi { return &Multi{slices.Clone(locks)} }

// Leases are the leases of a Multi, in the order in which All named the locks. Each has its own Token. A name that was
// given twice has the same lease in both places.
type Leases []*Lease

// Lock waits until all are taken, as Mutex.Lock does for one; ctx and the Options.Wait of the first lock bound the wait
// for all of them. When it returns an error, none is held.
func (m *Multi) Lock(ctx context.Context) (Leases, error) { return m.acquire(ctx, false) }

// TryLock takes all or none, without waiting.
func (m *Multi) TryLock(ctx context.Context) (Leases, error) { return m.acquire(ctx, true) }

// Do runs fn under all the locks, as Mutex.Do does under one. fn's context ends when any of them is lost.
func (m *Multi) Do(ctx context.Context, fn func(context.Context) error) error {
	return m.do(ctx, false, fn)
}

// TryDo is Do without waiting.
func (m *Multi) TryDo(ctx context.Context, fn func(context.Context) error) error {
	return m.do(ctx, true, fn)
}

func (m *Multi) do(ctx context.Context, try bool, fn func(context.Context) error) (err error) {
	ls, err := m.acquire(ctx, try)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := ls.Unlock(); errors.Is(uerr, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(ls.Context(ctx))
}

// each yields every lease once, in the order of the names.
func (ls Leases) each(f func(*Lease)) {
	for i, l := range ls {
		if !slices.Contains(ls[:i], l) {
			f(l)
		}
	}
}

// Context is parent, ending when any of the leases ends. Those that are not lost stay held until Unlock.
func (ls Leases) Context(parent context.Context) context.Context {
	ls.each(func(l *Lease) { parent = l.Context(parent) })
	return parent
}

// Err is nil while all leases are held and trusted, else what ended those that are not.
func (ls Leases) Err() error {
	var errs []error
	ls.each(func(l *Lease) { errs = append(errs, l.Err()) })
	return errors.Join(errs...)
}

// Unlock gives all of them back, whatever happens to each, and joins their errors.
func (ls Leases) Unlock() error {
	var all []*Lease
	ls.each(func(l *Lease) { all = append(all, l) })
	errs := make([]error, len(all))
	for i, l := range slices.Backward(all) {
		errs[i] = l.Unlock()
	}
	return errors.Join(errs...)
}

// order compares two targets by the order that everybody shares.
func (t *target) order(o *target) int {
	if t.c.core != o.c.core {
		if n := cmp.Compare(t.c.store(), o.c.store()); n != 0 {
			return n
		}
	}
	return cmp.Compare(t.name, o.name)
}

// store names the store of a client, the same in every process that uses it, as far as the driver can tell.
func (c *core) store() string {
	if s, ok := c.d.(driver.Named); ok {
		return s.Store()
	}
	return fmt.Sprintf("%T", c.d)
}

// same reports whether two targets are one lock in one store.
func (t *target) same(o *target) bool {
	return t.name == o.name && (t.c.core == o.c.core || t.c.store() == o.c.store() && isNamed(t.c.d))
}

func isNamed(d driver.Driver) bool { _, ok := d.(driver.Named); return ok }

// plan is what a Multi takes: each lock once, in order, and for each given lock which of them it is.
type plan struct {
	locks []*target
	which []int
}

func (m *Multi) plan(ctx context.Context) (plan, error) {
	if m == nil || len(m.locks) == 0 {
		return plan{}, invalid("All of no locks")
	}
	given := make([]*target, len(m.locks))
	for i, l := range m.locks {
		if l == nil || l.self() == nil {
			return plan{}, invalid("All: lock %d is nil", i)
		}
		given[i] = l.self()
		if err := given[i].check(); err != nil {
			return plan{}, err
		}
	}
	idx := make([]int, len(given))
	for i := range idx {
		idx[i] = i
	}
	slices.SortStableFunc(idx, func(a, b int) int { return given[a].order(given[b]) })
	p := plan{which: make([]int, len(given))}
	for _, i := range idx {
		t := *given[i]
		if n := len(p.locks); n > 0 && p.locks[n-1].same(&t) {
			if err := p.locks[n-1].merge(&t); err != nil {
				return plan{}, err
			}
			p.which[i] = n - 1
			continue
		}
		p.which[i] = len(p.locks)
		p.locks = append(p.locks, &t)
	}
	for _, t := range p.locks {
		if l := t.above(ctx); l != nil {
			return plan{}, invalid("All: %q comes before %q in the order of locks, which this context already holds", t.name, l.Name())
		}
	}
	return p, nil
}

// merge makes t stand for o too, the same lock once more.
func (t *target) merge(o *target) error {
	switch {
	case t.kind.Family() != o.kind.Family():
		return wrap("lock", t.name, &driver.MismatchError{Have: t.kind, Want: o.kind})
	case t.kind == driver.Permits && t.limit != o.limit:
		return wrap("lock", t.name, &driver.MismatchError{Have: t.kind, Want: o.kind, HaveLimit: t.limit, WantLimit: o.limit})
	case t.kind == driver.Permits && t.permits+o.permits > t.limit:
		return invalid("All: semaphore %q: %d and %d of %d permits", t.name, t.permits, o.permits, t.limit)
	case t.kind == driver.Permits:
		t.permits += o.permits
	case o.kind == driver.Write || o.kind == driver.Fair:
		t.kind = o.kind
	}
	return nil
}

// above is a lease that ctx carries and that comes behind t in the order of locks, unless t re-enters one.
func (t *target) above(ctx context.Context) *Lease {
	k, _ := ctx.Value(leaseKey{}).(*carried)
	if k == nil || reenters(t.kind) && find(ctx, t.c.core, t.name) != nil {
		return nil
	}
	for ; k != nil; k = k.up {
		held := &target{c: k.l.cl, name: k.l.g.hold.Name}
		if k.l.Err() == nil && t.order(held) < 0 {
			return k.l
		}
	}
	return nil
}

// How long All waits for a further lock while it holds others: at first, which is more on a store that takes long to answer,
// and at most.
const (
	patience    = 50 * time.Millisecond
	maxPatience = 2 * time.Second
	roundTrips  = 4
)

func (m *Multi) acquire(ctx context.Context, try bool) (Leases, error) {
	p, err := m.plan(ctx)
	if err != nil {
		return nil, err
	}
	if wait := p.locks[0].c.opts.Wait; wait > 0 && !try {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, wait)
		defer stop()
	}
	begin := driver.Now()
	got, at, err := p.together(ctx, try)
	if got == nil && err == nil {
		got, at, err = p.inTurn(ctx, try)
	}
	if err == nil {
		if at, err = 0, got.Err(); err != nil { // the first may have run out while we waited for the last
			got.Unlock()
			err = fmt.Errorf("pawl: lost while the other locks were taken: %w", err)
		}
	}
	took := driver.Now().Sub(begin)
	if err != nil {
		t := p.locks[at]
		t.c.events.emit(&t.c.opts, Event{Op: Failed, Name: t.name, Took: took, Err: err})
		return nil, err
	}
	for _, l := range got {
		if l.parent() == nil {
			l.g.cl.mu.Lock()
			l.acquired(took)
			l.g.cl.mu.Unlock()
		}
	}
	leases := make(Leases, len(p.which))
	for i, n := range p.which {
		leases[i] = got[n]
	}
	return leases, nil
}

// inTurn takes the locks one by one. Its error is about the lock with that number. What is taken on the way and given back is no
// event.
func (p *plan) inTurn(ctx context.Context, try bool) (Leases, int, error) {
	var err error
	got := make(Leases, len(p.locks))
	order := make([]int, len(p.locks))
	for i := range order {
		order[i] = i
	}
	sorted := true
	quickest := maxPatience // that a lock was had
	for limit := patience; ; limit = min(2*limit, maxPatience) {
		failed := -1
		for n, i := range order {
			bound, stop := ctx, context.CancelFunc(func() {})
			if n > 0 && sorted && !try {
				some := max(limit, min(roundTrips*quickest, maxPatience))
				bound, stop = context.WithTimeout(ctx, some/2+rand.N(some))
			}
			begin := driver.Now()
			got[i], err = p.locks[i].take(bound, try || n > 0 && !sorted)
			stop()
			if err != nil {
				failed = i
				break
			}
			quickest = min(quickest, driver.Now().Sub(begin))
		}
		if failed < 0 {
			return got, 0, nil
		}
		for n, l := range slices.Backward(got) {
			if l != nil {
				l.Unlock()
				got[n] = nil
			}
		}
		late := sorted && errors.Is(err, context.DeadlineExceeded) || !sorted && errors.Is(err, ErrHeld)
		if try || ctx.Err() != nil || !late {
			return nil, failed, both(err, ctx) // err may tell only of our own short wait
		}
		// Wait for the one that did not come while nothing is held, and then see whether the others are free. Whoever waited
		// for them while holding it would be out of order himself, and could meet somebody who waits the other way round.
		slices.Sort(order)
		if sorted = !sorted; !sorted {
			order = append([]int{failed}, slices.DeleteFunc(order, func(i int) bool { return i == failed })...)
		}
	}
}
