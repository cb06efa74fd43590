package torture_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// lockers are the kinds of lock that have a local queue.
func lockers(c *pawl.Client) map[string]pawl.Locker {
	return map[string]pawl.Locker{
		"mutex":     c.Mutex("x"),
		"writer":    c.RWMutex("x"),
		"reader":    c.RWMutex("x").RLocker(),
		"semaphore": c.Semaphore("x", 2).Weight(2),
	}
}

// blocker takes what keeps all of one kind out.
func blocker(c *pawl.Client, kind string) pawl.Locker {
	if kind == "reader" {
		return c.RWMutex("x")
	}
	return lockers(c)[kind]
}

func waiters(t *world) int {
	t.Helper()
	r, err := t.ledger.god.Inspect(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return r.Waiters
}

// A thousand waiting goroutines are one contender in the store, and asking for a taken name costs it nothing more.
func TestOneContenderAName(t *testing.T) {
	for kind := range lockers(nil) {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				b, _ := t.process()
				held := t.must(blocker(b, kind))
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range 1000 {
					wg.Go(func() {
						_, err := lockers(a)[kind].Lock(ctx)
						wantIs(t, err, pawl.ErrHeld, context.Canceled)
					})
				}
				synctest.Wait()
				want(t, "waiters in the store", waiters(t), 1)
				want(t, "enters", wire.Calls("Enter"), 1)
				want(t, "tries", wire.Calls("Try"), 1)
				cancel()
				wg.Wait()
				synctest.Wait()
				want(t, "waiters in the end", waiters(t), 0)
				want(t, "leaves", wire.Calls("Leave"), 1)
				held.Unlock()
			})
		})
	}
}

// The queue is served in the order of arrival, whether the lock is handed on or comes from the store.
func TestQueueOrder(t *testing.T) {
	for kind := range lockers(nil) {
		for _, hold := range []time.Duration{0, 2 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(kind, " ", hold), func(t *testing.T) {
				bubble(t, func(t *world) {
					a, _ := t.process()
					b, _ := t.process()
					first := t.must(blocker(b, kind))
					var mu sync.Mutex
					last := 0
					var wgs []*sync.WaitGroup
					for i := range 20 {
						wgs = append(wgs, t.crowd(1, lockers(a)[kind], hold, func(*pawl.Lease) {
							mu.Lock()
							defer mu.Unlock()
							if i < last && kind != "reader" { // readers come in together
								t.Errorf("%d came after %d", i, last)
							}
							last = i
						}))
					}
					first.Unlock()
					for _, wg := range wgs {
						wg.Wait()
					}
				})
			})
		}
	}
}

// When the waiter that stands in the store's line gives up, its place passes to the next one here, and is not lost to
// other processes that came later.
func TestCancelledLeaderLeavesItsPlace(t *testing.T) {
	for kind := range lockers(nil) {
		if kind == "reader" {
			continue // below: behind a reader's place another process's readers are let in together
		}
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				b, _ := t.process()
				c, _ := t.process()
				held := t.must(blocker(c, kind))
				ctx, cancel := context.WithCancel(t.Context())
				leader := t.lock(ctx, lockers(a)[kind])
				next := t.lock(t.Context(), lockers(a)[kind])
				theirs := t.lock(t.Context(), lockers(b)[kind])
				cancel()
				wantIs(t, t.ended(leader).err, context.Canceled, pawl.ErrHeld)
				want(t, "leaves", wire.Calls("Leave"), 0)
				want(t, "waiters", waiters(t), 2)
				held.Unlock()
				l := t.got(next)
				t.waits(theirs)
				l.Unlock()
				t.got(theirs).Unlock()
			})
		})
	}
}

// A place that suits the next waiter here no more is given up: it asks for something else.
func TestCancelledLeaderOfAnotherWeight(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		held := t.must(b.Semaphore("x", 3).Weight(3))
		ctx, cancel := context.WithCancel(t.Context())
		heavy := t.lock(ctx, a.Semaphore("x", 3).Weight(3))
		light := t.lock(t.Context(), a.Semaphore("x", 3).Weight(1))
		cancel()
		wantIs(t, t.ended(heavy).err, context.Canceled, pawl.ErrHeld)
		want(t, "leaves", wire.Calls("Leave"), 1)
		want(t, "waiters", waiters(t), 1)
		held.Unlock()
		t.got(light).Unlock()
	})
}

// A wait that is over in the local queue costs the store nothing, and says who is in the way.
func TestCancelledInTheQueue(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process(pawl.Options{Note: "deploy"})
		held := t.must(b.Mutex("x"))
		leader := t.lock(t.Context(), a.Mutex("x"))
		ctx, cancel := context.WithCancelCause(t.Context())
		second := t.lock(ctx, a.Mutex("x"))
		timed := t.lock(t.Context(), a.With(pawl.Options{Wait: time.Second}).Mutex("x"))
		cancel(errGaveUp)
		err := t.ended(second).err
		wantIs(t, err, pawl.ErrHeld, errGaveUp)
		if !strings.Contains(err.Error(), `held by b`) || !strings.Contains(err.Error(), `"deploy"`) {
			t.Errorf("it does not say who holds: %v", err)
		}
		time.Sleep(time.Second)
		wantIs(t, t.ended(timed).err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "calls", wire.Calls("Enter")+wire.Calls("Leave"), 1)
		held.Unlock()
		t.got(leader).Unlock()
	})
}

// A ctx that has ended takes nothing, not even a free name.
func TestEndedContext(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGaveUp)
		for kind, k := range lockers(a) {
			for _, f := range []func(context.Context) (*pawl.Lease, error){k.Lock, k.TryLock} {
				_, err := f(ctx)
				wantIs(t, err, errGaveUp)
				if isAny(err, pawl.ErrHeld) {
					t.Errorf("%s: %v: nobody holds it", kind, err)
				}
			}
		}
		want(t, "calls", wire.Calls("Enter"), 0)
	})
}

// TryLock does not queue behind waiters, and does not pass them.
func TestTryLockBesideAQueue(t *testing.T) {
	for kind := range lockers(nil) {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				b, _ := t.process()
				held := t.must(blocker(b, kind))
				waiting := t.lock(t.Context(), lockers(a)[kind])
				n := wire.Calls("Try")
				_, err := lockers(a)[kind].TryLock(t.Context())
				wantIs(t, err, pawl.ErrHeld)
				he, ok := errors.AsType[*pawl.HeldError](err)
				if !ok || he.Holder.Label != "b" || he.Here {
					t.Errorf("held by %+v, here %v", he.Holder, he.Here)
				}
				want(t, "tries", wire.Calls("Try"), n)
				held.Unlock()
				t.got(waiting).Unlock()
			})
		})
	}
}
