package torture_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// MaxHold ends the lease, frees nothing under running work, and lets the store's hold run out.
func TestMaxHold(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{MaxHold: 45 * time.Second})
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		begin := time.Now()
		work := l.Context(t.Context())
		<-work.Done()
		want(t, "ended after", time.Since(begin), 45*time.Second)
		lost, ok := errors.AsType[*pawl.LostError](context.Cause(work))
		if !ok || lost.Reason != pawl.TooLong {
			t.Errorf("got %v", context.Cause(work))
		}
		renewals := wire.Calls("Renew")
		_, err := b.Mutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		theirs := t.lock(t.Context(), b.Mutex("x"))
		time.Sleep(pawl.DefaultTTL)
		t.got(theirs).Unlock()
		want(t, "renewals", wire.Calls("Renew"), renewals)
		wantIs(t, l.Unlock(), pawl.ErrLost)

		l = t.must(a.Mutex("x"))
		time.Sleep(46 * time.Second)
		wantIs(t, l.Unlock(), pawl.ErrLost) // the work has stopped: freed at once
		t.must(b.Mutex("x")).Unlock()
	})
}

// Each holder has MaxHold for itself, also when the lease was handed on, and a local waiter does not wait for a stuck one.
func TestMaxHoldOfEachHolder(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{MaxHold: time.Second, TTL: 3 * time.Second})
		b, _ := t.process()
		outside := t.must(b.Mutex("x"))
		first := t.lock(t.Context(), a.Mutex("x"))
		second := t.lock(t.Context(), a.Mutex("x"))
		third := t.lock(t.Context(), a.Mutex("x"))
		outside.Unlock()
		l1 := t.got(first)
		time.Sleep(4 * time.Millisecond)
		l1.Unlock()
		l2 := t.got(second)
		want(t, "handed on", l1.ID() == l2.ID(), true)
		begin := time.Now()
		<-l2.Done()
		want(t, "second had", time.Since(begin), time.Second)
		time.Sleep(3 * time.Second) // the store's hold runs out, though l2 is never unlocked
		l3 := t.got(third)
		l3.Unlock()
		l2.Unlock()
	})
}

// MinHold keeps the name taken after Unlock, counted from when it was taken, for this process too, and no longer.
func TestMinHold(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{MinHold: 10 * time.Second})
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		begin := time.Now()
		time.Sleep(3 * time.Second)
		want(t, "unlock", l.Unlock(), error(nil))
		wantIs(t, l.Unlock(), pawl.ErrNotHeld)
		for _, c := range []*pawl.Client{a, b} {
			_, err := c.Mutex("x").TryLock(t.Context())
			wantIs(t, err, pawl.ErrHeld)
		}
		mine, theirs := t.lock(t.Context(), a.Mutex("x")), t.lock(t.Context(), b.Mutex("x"))
		var wg sync.WaitGroup
		for _, ch := range []<-chan answer{mine, theirs} {
			wg.Go(func() {
				l := (<-ch).l
				if d := time.Since(begin); d < 10*time.Second {
					t.Errorf("taken after %v", d)
				}
				l.Unlock()
			})
		}
		wg.Wait()
		if d := time.Since(begin); d > 21*time.Second { // a's own MinHold may lie between
			t.Errorf("the second came after %v", d)
		}
		time.Sleep(20 * time.Second)
		l = t.must(a.Mutex("x"))
		time.Sleep(11 * time.Second)
		l.Unlock() // held for long enough
		t.must(b.Mutex("x")).Unlock()
	})
}

// Names: 1 to 4096 bytes, whatever they are, and never two alike.
func TestNames(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		for _, name := range []string{"", strings.Repeat("x", 4097)} {
			for kind, k := range map[string]pawl.Locker{"mutex": a.Mutex(name), "fair": a.FairMutex(name), "rw": a.RWMutex(name),
				"reader": a.RWMutex(name).RLocker(), "semaphore": a.Semaphore(name, 1)} {
				for _, f := range []func(context.Context) (*pawl.Lease, error){k.Lock, k.TryLock} {
					l, err := f(t.Context())
					wantIs(t, err, pawl.ErrInvalid)
					wantText(t, err, "name")
					if l != nil || len(err.Error()) > 200 {
						t.Errorf("%s: lease %v, error %v", kind, l, err)
					}
				}
			}
		}
		want(t, "calls", wire.Calls("Enter"), 0)
		names := []string{"x", "X", " x", "x ", "x/y", "x/", "/x", "{x}", "{x", "x\x00", "x\x00y", "\xff", "\xfe", "é", "e\u0301", "x\n",
			"%s", "*", "..", strings.Repeat("x", 4096), strings.Repeat("x", 4095), strings.Repeat("x", 4095) + "y"}
		for _, name := range names {
			l := t.must(a.Mutex(name))
			want(t, "name", l.Name(), name)
			defer l.Unlock()
		}
		for _, name := range names {
			_, err := a.Mutex(name).TryLock(t.Context())
			wantIs(t, err, pawl.ErrHeld)
			he, _ := errors.AsType[*pawl.HeldError](err)
			want(t, "name of the error", he.Name, name)
		}
	})
}
