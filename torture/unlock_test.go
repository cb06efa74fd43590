package torture_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// Exactly one of many Unlocks is the one; the others are told so.
func TestUnlockManyTimes(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		l := t.must(a.Mutex("x"))
		wire.next("Release", fault{After: time.Second})
		var mu sync.Mutex
		var ok, again int
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				err := l.Unlock()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					ok++
				case isAny(err, pawl.ErrNotHeld):
					again++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want(t, "unlocked, told", fmt.Sprint(ok, again), "1 7")
		want(t, "releases", wire.Calls("Release"), 1)
		wantIs(t, l.Err(), pawl.ErrNotHeld)
	})
}

// An Unlock that the store does not confirm ends all the same, within its bound, says so, and goes on in the background:
// the name is free as soon as the store answers, and by FreeBy if it never does.
func TestUnlockUnknown(t *testing.T) {
	for _, c := range []struct {
		name string
		f    fault
		is   error
	}{
		{"refused", fault{Never: true, Err: errBroken}, errBroken},
		{"no answer", fault{Never: true, Hang: true}, context.DeadlineExceeded},
		{"never sent", fault{Never: true, Err: errCertain}, errCertain},
	} {
		for _, heals := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, " heals ", heals), func(t *testing.T) {
				bubble(t, func(t *world) {
					a, wire := t.process()
					b, _ := t.process()
					l := t.must(a.Mutex("x"))
					work := l.Context(t.Context())
					time.Sleep(15 * time.Second)
					wire.all("Release", c.f)
					begin := time.Now()
					err := l.Unlock()
					wantIs(t, err, pawl.ErrUnknown, c.is)
					if d := time.Since(begin); d > 3*time.Second+20*time.Millisecond {
						t.Errorf("took %v", d)
					}
					u, ok := errors.AsType[*pawl.UnknownError](err)
					if !ok || u.Op != "unlock" || u.Name != "x" || time.Until(u.FreeBy) > pawl.DefaultTTL {
						t.Fatalf("got %#v", err)
					}
					wantText(t, err, `unlock "x"`, "outcome unknown", "at the latest")
					wantIs(t, context.Cause(work), pawl.ErrNotHeld)
					_, err = b.Mutex("x").TryLock(t.Context())
					wantIs(t, err, pawl.ErrHeld)
					if heals {
						time.Sleep(5 * time.Second)
						wire.heal()
						time.Sleep(pawl.DefaultTTL / 4) // one attempt may hang that long
						time.Sleep(2 * time.Second)
					} else {
						time.Sleep(time.Until(u.FreeBy))
					}
					t.must(b.Mutex("x")).Unlock()
				})
			})
		}
	}
}

// A lost answer to an Unlock is made good within the call.
func TestUnlockAnswerLost(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		wire.next("Release", fault{Lost: true})
		want(t, "unlock", l.Unlock(), error(nil))
		want(t, "releases", wire.Calls("Release"), 2)
		t.must(b.Mutex("x")).Unlock()
	})
}

// Unlock near the end of the trust does not outlast it by more than its minimum.
func TestUnlockIsBoundByTheTrust(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{TTL: time.Second})
		l := t.must(a.Mutex("x"))
		wire.cut(errBroken)
		time.Sleep(time.Until(l.Deadline()) - 10*time.Millisecond)
		begin := time.Now()
		wantIs(t, l.Unlock(), pawl.ErrUnknown)
		if d := time.Since(begin); d > 130*time.Millisecond {
			t.Errorf("took %v", d)
		}
		wire.mend()
	})
}

// An Unlock after the loss says so, frees at once what the store still has, and touches nothing of the next holder.
func TestUnlockAfterTheLoss(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{TTL: 3 * time.Second})
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		wire.cut(errBroken)
		<-l.Done()
		wire.mend()
		wantIs(t, l.Unlock(), pawl.ErrLost) // the store would keep it for another 300 ms
		synctest.Wait()
		next := t.must(b.Mutex("x"))
		wantIs(t, l.Unlock(), pawl.ErrNotHeld)
		wantIs(t, l.Err(), pawl.ErrLost)
		time.Sleep(time.Minute)
		want(t, "the next holder", next.Err(), error(nil))
		next.Unlock()
	})
}

// A Lock whose answer does not come takes nothing: what it may have got is given back in the background, now, when the
// store can be reached again, or when its late request arrives.
func TestLockUnknown(t *testing.T) {
	for _, c := range []struct {
		name string
		f    fault
		is   []error
	}{
		{"answer lost", fault{Lost: true}, []error{pawl.ErrUnknown, io.ErrUnexpectedEOF}},
		{"answer late", fault{After: 5 * time.Second}, []error{context.DeadlineExceeded}},
		{"request late", fault{Before: 5 * time.Second}, []error{context.DeadlineExceeded}},
		{"no answer", fault{Lost: true, Hang: true}, []error{context.DeadlineExceeded}},
		{"never sent", fault{Never: true}, []error{pawl.ErrUnknown}},
	} {
		for _, cut := range []bool{false, true} {
			for _, try := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, " cut ", cut, " try ", try), func(t *testing.T) {
					bubble(t, func(t *world) {
						a, wire := t.process()
						b, _ := t.process()
						wire.next("Try", c.f)
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						if cut {
							wire.all("Leave", fault{Never: true, Err: errBroken})
						}
						f := a.Mutex("x").Lock
						if try {
							f = a.Mutex("x").TryLock
						}
						l, err := f(ctx)
						if l != nil {
							t.Fatal("a lease")
						}
						wantIs(t, err, c.is...)
						if isAny(err, pawl.ErrHeld) {
							t.Errorf("%v: nobody holds it", err)
						}
						if u, ok := errors.AsType[*pawl.UnknownError](err); ok && (u.Op != "lock" || time.Until(u.FreeBy) > pawl.DefaultTTL) {
							t.Errorf("got %#v", u)
						}
						if cut {
							time.Sleep(10 * time.Second)
							wire.heal()
							time.Sleep(2 * time.Second)
						}
						synctest.Wait()
						t.must(b.Mutex("x")).Unlock()
						time.Sleep(10 * time.Second) // the late request has arrived
						t.must(b.Mutex("x")).Unlock()
					})
				})
			}
		}
	}
}

// A failing store is an error of its own, not "held", and all who wait behind are told at once.
func TestStoreFailsWhileTheQueueForms(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		wire.next("Try", fault{After: time.Second, Lost: true})
		var waiting []<-chan answer
		for range 5 {
			waiting = append(waiting, t.lock(t.Context(), a.Mutex("x")))
		}
		time.Sleep(time.Second)
		for _, ch := range waiting {
			err := t.ended(ch).err
			wantIs(t, err, io.ErrUnexpectedEOF)
			if isAny(err, pawl.ErrHeld) {
				t.Errorf("%v: nobody holds it", err)
			}
		}
		want(t, "tries", wire.Calls("Try"), 1)
	})
}

// A Lock that is in line rides out a failing store for one TTL, and takes the lock when it is back.
func TestWaitOverAnOutage(t *testing.T) {
	for _, err := range []error{errBroken, errCertain} {
		t.Run(err.Error(), func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				b, _ := t.process()
				held := t.must(b.Mutex("x"))
				waiting := t.lock(t.Context(), a.Mutex("x"))
				second := t.lock(t.Context(), a.Mutex("x"))
				wire.cut(err)
				time.Sleep(35 * time.Second) // it looks again after a third of a TTL
				t.waits(waiting)
				held.Unlock()
				wire.mend()
				time.Sleep(2 * time.Second)
				t.got(waiting).Unlock()
				t.got(second).Unlock()

				held = t.must(b.Mutex("x"))
				waiting = t.lock(t.Context(), a.Mutex("x"))
				second = t.lock(t.Context(), a.Mutex("x"))
				wire.cut(err)
				time.Sleep(45 * time.Second)
				for _, ch := range []<-chan answer{waiting, second} {
					wantIs(t, t.ended(ch).err, err)
				}
				wire.mend()
				held.Unlock()
			})
		})
	}
}
