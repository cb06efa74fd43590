package torture_test

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// As many waiters get in as there are permits given back, in one instant, those of other processes too.
func TestPermitsWakeAsManyAsFit(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process()
		var held []*pawl.Lease
		for range 5 {
			held = append(held, t.must(a.Semaphore("x", 5)))
		}
		var waiting []<-chan answer
		for i := range 12 {
			waiting = append(waiting, t.lock(t.Context(), []*pawl.Client{a, b}[i%2].Semaphore("x", 5)))
		}
		served := func() (n int) {
			for i, ch := range waiting {
				select {
				case a := <-ch:
					if a.err != nil {
						t.Fatal(a.err)
					}
					held, waiting[i] = append(held, a.l), nil
					n++
				default:
				}
			}
			return n
		}
		for _, free := range []int{3, 1, 5, 3} {
			begin := time.Now()
			for range free {
				held[0].Unlock()
				held = held[1:]
			}
			time.Sleep(time.Millisecond)
			want(t, "served", served(), free)
			if time.Since(begin) > time.Millisecond {
				t.Error("not at once")
			}
		}
		for _, l := range held {
			l.Unlock()
		}
	})
}

// A heavy request is not passed by the light ones that came after it, though they would fit.
func TestHeavyIsNotStarved(t *testing.T) {
	for _, c := range []struct {
		name string
		far  bool // the light one is in another process
	}{{"one process", false}, {"two processes", true}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, _ := t.process()
				b := a
				if c.far {
					b, _ = t.process()
				}
				one, two := t.must(a.Semaphore("x", 3)), t.must(a.Semaphore("x", 3))
				heavy := t.lock(t.Context(), a.Semaphore("x", 3).Weight(3))
				light := t.lock(t.Context(), b.Semaphore("x", 3))
				_, err := b.Semaphore("x", 3).TryLock(t.Context())
				wantIs(t, err, pawl.ErrHeld)
				one.Unlock()
				t.waits(heavy)
				t.waits(light)
				two.Unlock()
				l := t.got(heavy)
				t.waits(light)
				l.Unlock()
				t.got(light).Unlock()
			})
		})
	}
}

// A permit passes to the next waiter of this process without the store, if that one asks for as many.
func TestPermitHandOff(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		held := t.must(a.Semaphore("x", 1)) // nobody waits: one token, and back to the store
		first := t.lock(t.Context(), a.Semaphore("x", 1))
		second := t.lock(t.Context(), a.Semaphore("x", 1))
		third := t.lock(t.Context(), a.Semaphore("x", 1))
		held.Unlock()
		l1 := t.got(first)
		releases := wire.Calls("Release")
		l1.Unlock()
		l2 := t.got(second)
		want(t, "the same hold", l1.ID() == l2.ID(), true)
		if l1.Token() == l2.Token() {
			t.Errorf("two permits with the token %d", l1.Token())
		}
		want(t, "releases", wire.Calls("Release"), releases)
		l2.Unlock()
		t.got(third).Unlock()
		want(t, "waiters", waiters(t), 0)
	})
}

// A permit does not pass to a waiter that asks for more or fewer.
func TestPermitHandOffToEqualsOnly(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		held := t.must(a.Semaphore("x", 2).Weight(2))
		first := t.lock(t.Context(), a.Semaphore("x", 2))
		second := t.lock(t.Context(), a.Semaphore("x", 2).Weight(2))
		third := t.lock(t.Context(), a.Semaphore("x", 2))
		held.Unlock()
		l1 := t.got(first)
		t.waits(second)
		l1.Unlock()
		l2 := t.got(second)
		want(t, "the same hold", l1.ID() == l2.ID(), false)
		r, _ := t.store.Inspect(t.Context(), "x")
		want(t, "permits taken", r.Holds[0].Permits, 2)
		t.waits(third)
		l2.Unlock()
		t.got(third).Unlock()
	})
}

// Everybody must name the same limit, and permits that can never be had are refused at once.
func TestPermitLimits(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		l := t.must(a.Semaphore("x", 5))
		_, err := b.Semaphore("x", 6).TryLock(t.Context())
		wantIs(t, err, pawl.ErrMismatch)
		wantText(t, err, "5 permits, not 6")
		_, err = b.Semaphore("x", 6).Lock(t.Context())
		wantIs(t, err, pawl.ErrMismatch)
		_, err = b.Mutex("x").Lock(t.Context())
		wantIs(t, err, pawl.ErrMismatch)
		n := wire.Calls("Enter")
		for _, c := range []struct {
			limit, weight int
			text          string
		}{{5, 6, "could never be taken"}, {5, 0, "weight 0"}, {5, -1, "weight -1"}, {0, 1, "limit 0"}, {-3, 1, "limit -3"}} {
			_, err = a.Semaphore("x", c.limit).Weight(c.weight).Lock(t.Context())
			wantIs(t, err, pawl.ErrInvalid)
			wantText(t, err, c.text)
		}
		want(t, "calls for them", wire.Calls("Enter"), n)
		l.Unlock()
	})
}

// A permit expires like any lease, and only that one.
func TestPermitExpires(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process(pawl.Options{TTL: 3 * time.Second, NoKeepalive: true})
		mine, theirs := t.must(a.Semaphore("x", 2)), t.must(b.Semaphore("x", 2))
		waiting := t.lock(t.Context(), a.Semaphore("x", 2))
		time.Sleep(3 * time.Second)
		t.got(waiting).Unlock()
		wantIs(t, theirs.Err(), pawl.ErrLost)
		want(t, "the other permit", mine.Err(), error(nil))
		wantIs(t, theirs.Unlock(), pawl.ErrLost)
		want(t, "unlock", mine.Unlock(), error(nil))
	})
}

// A semaphore is not re-entered: whoever has a permit and asks for another one waits like everybody.
func TestSemaphoreDoesNotReenter(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{Wait: time.Second})
		l := t.must(a.Semaphore("x", 1))
		_, err := a.Semaphore("x", 1).Lock(l.Context(t.Context()))
		wantIs(t, err, pawl.ErrHeld, errDeadline)
		l.Unlock()
	})
}
