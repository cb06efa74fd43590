package pawl

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/driver"
)

// Locker is any lock: a *Mutex, a *RWMutex (to write), RWMutex.RLocker(), a *Semaphore. All are names, not states: make
// one per call or keep it, and use it from any number of goroutines.
type Locker interface {
	Lock(ctx context.Context) (*Lease, error)
	TryLock(ctx context.Context) (*Lease, error)
	Do(ctx context.Context, fn func(context.Context) error) error
	TryDo(ctx context.Context, fn func(context.Context) error) error
	self() *target
}

// Mutex is an exclusive lock, made by Client.Mutex or Client.FairMutex. The zero Mutex answers ErrInvalid.
type Mutex struct{ target }

// RWMutex is a lock that many readers or one writer hold, made by Client.RWMutex. Lock, TryLock, Do and TryDo write.
//
// A waiting writer stops new readers, in this process and, where the store allows, in all. Reading inside writing (a
// Lock by the Context of a write lease) is re-entry and ends with the outer lease: there is no downgrade. Writing inside
// reading would wait for itself and is refused at once with ErrMismatch.
type RWMutex struct{ target }

// Semaphore gives out at most its limit of permits at a time, made by Client.Semaphore. Waiters of one client are served
// in order of arrival, a heavy one before the light ones behind it. Permits expire like any lease. It never re-enters.
type Semaphore struct{ target }

// RLock takes the lock to read, beside other readers. It blocks as Lock does.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.RLocker().Lock(ctx) }

// TryRLock is RLock without waiting.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return m.RLocker().TryLock(ctx) }

// RLocker is the reading side as a lock of its own.
func (m *RWMutex) RLocker() Locker {
	t := m.target
	t.kind = driver.Read
	return &Mutex{t}
}

// Weight is the same semaphore taking n permits at a time, all or none.
func (s *Semaphore) Weight(n int) *Semaphore {
	t := s.target
	t.permits = n
	return &Semaphore{t}
}

// target is what every lock is made of: a name used as a kind through a client.
type target struct {
	c              *Client
	kind           driver.Kind
	name           string
	permits, limit int
	value          []byte
}

func (t *target) self() *target { return t }

// Lock waits until the lock is taken, ctx ends (*HeldError that also matches ctx's cause, or just the cause when the
// holder is not known), Options.Wait is over (likewise context.DeadlineExceeded) or the client is closed (ErrClosed). ctx
// bounds the wait and never the hold. Errors of the store end it too, except that a Lock which is already in line rides
// out a failure of up to one TTL. When Lock returns an error, nothing was taken; what an unanswered request may have got
// is given back in the background (*UnknownError).
//
// With a ctx from Context of a live lease of the same name it takes a child of that lease, without asking the store.
func (t *target) Lock(ctx context.Context) (*Lease, error) { return t.acquire(ctx, false) }

// TryLock takes the lock or answers ErrHeld (*HeldError), within one request to the store; ctx bounds it. Every other
// error means that the store did not decide: do not take it for "busy".
func (t *target) TryLock(ctx context.Context) (*Lease, error) { return t.acquire(ctx, true) }

// Do runs fn under the lock. fn's context is a child of ctx that also ends when the lease is lost. Do unlocks even if fn
// panics. It returns fn's error as it is, joined with ErrLost if the lease was lost before fn returned, even if fn
// answered nil. An Unlock that the store did not confirm is no error of Do (the lock frees itself); it is an Event.
func (t *target) Do(ctx context.Context, fn func(context.Context) error) error {
	return t.do(ctx, false, fn)
}

// TryDo is Do without waiting. When fn itself takes other locks, HeldError.Name says whose ErrHeld it was.
func (t *target) TryDo(ctx context.Context, fn func(context.Context) error) error {
	return t.do(ctx, true, fn)
}

func (t *target) do(ctx context.Context, try bool, fn func(context.Context) error) (err error) {
	l, err := t.acquire(ctx, try)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := l.Unlock(); errors.Is(uerr, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(l.Context(ctx))
}

// maxName bounds a name, in bytes, on every store.
const maxName = 4096

func (t *target) check() error {
	switch {
	case t == nil || t.c == nil:
		return invalid("a lock is made by a Client")
	case t.name == "":
		return invalid("empty lock name")
	case len(t.name) > maxName:
		return invalid("lock name of %d bytes: at most %d", len(t.name), maxName)
	case t.kind == driver.Permits && t.limit < 1:
		return invalid("semaphore %q: limit %d: at least 1", t.name, t.limit)
	case t.kind == driver.Permits && t.permits < 1:
		return invalid("semaphore %q: weight %d: at least 1", t.name, t.permits)
	case t.kind == driver.Permits && t.permits > t.limit:
		return invalid("semaphore %q: weight %d exceeds the limit of %d: it could never be taken", t.name, t.permits, t.limit)
	}
	return t.c.bad
}

// reenters reports whether a kind is re-entered by the context of a lease of its name.
func reenters(k driver.Kind) bool {
	switch k {
	case driver.Exclusive, driver.Fair, driver.Read, driver.Write:
		return true
	}
	return false
}

func (t *target) String() string { return fmt.Sprintf("%s %q", t.kind, t.name) }
