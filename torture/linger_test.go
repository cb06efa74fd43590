package torture_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

var lingering = pawl.Options{Linger: 100 * time.Millisecond}

// The next local caller takes over what lingers without a call to the store, again and again.
func TestLingerCostsNothing(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(lingering)
		last, id := int64(0), ""
		for range 100 {
			l := t.must(a.Mutex("x"))
			if l.Token() <= last || id != "" && l.ID() != id {
				t.Errorf("token %d of %s after %d of %s", l.Token(), l.ID(), last, id)
			}
			last, id = l.Token(), l.ID()
			time.Sleep(time.Millisecond)
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(99 * time.Millisecond)
		}
		want(t, "tries", wire.Calls("Try"), 1)
		want(t, "releases", wire.Calls("Release"), 0)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		want(t, "releases when the lingering is over", wire.Calls("Release"), 1)
	})
}

// Others see what lingers as held, until it is over.
func TestLingerEnds(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(lingering)
		b, _ := t.process()
		t.must(a.Mutex("x")).Unlock()
		time.Sleep(99 * time.Millisecond)
		_, err := b.Mutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		time.Sleep(2 * time.Millisecond)
		t.must(b.Mutex("x")).Unlock()
	})
}

// What lingers is given back at once when another process queues for it, and does not linger while one does.
func TestLingerGivesWay(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{Linger: 10 * time.Second})
		b, _ := t.process()
		t.must(a.Mutex("x")).Unlock()
		begin := time.Now()
		got := t.got(t.lock(t.Context(), b.Mutex("x")))
		want(t, "waited", time.Since(begin), time.Duration(0))
		want(t, "releases", wire.Calls("Release"), 1)
		got.Unlock()

		l := t.must(a.Mutex("x"))
		theirs := t.lock(t.Context(), b.Mutex("x"))
		l.Unlock()
		t.got(theirs).Unlock()
	})
}

// With Linger a lease is handed on for longer than a slice, but only while no other process wants it.
func TestLingerKeepsTheSlice(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "wanted"}[wanted], func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process(pawl.Options{Linger: time.Second})
				b, _ := t.process()
				first := t.must(a.Mutex("x"))
				wg := t.crowd(20, a.Mutex("x"), time.Millisecond, func(*pawl.Lease) {})
				if wanted {
					ch := t.lock(t.Context(), b.Mutex("x"))
					go func() { (<-ch).l.Unlock() }()
				}
				first.Unlock()
				wg.Wait()
				if n := wire.Calls("Try"); wanted != (n > 1) {
					t.Errorf("%d requests to the store", n)
				}
			})
		})
	}
}

// What lingers is no use to a caller with another policy, or another kind of lock: it is given back for them.
func TestLingerForEqualsOnly(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{Linger: 10 * time.Second})
		other := a.With(pawl.Options{TTL: time.Minute})
		l1 := t.must(a.Mutex("x"))
		l1.Unlock()
		l2 := t.got(t.lock(t.Context(), other.Mutex("x")))
		want(t, "the same hold", l1.ID() == l2.ID(), false)
		l2.Unlock()
		want(t, "releases", wire.Calls("Release"), 1) // l2 lingers
		t.got(t.lock(t.Context(), a.FairMutex("x"))).Unlock()
		want(t, "releases", wire.Calls("Release"), 3) // fair locks do not linger
	})
}

// A lingering hold that is lost is no event and nobody's problem: the next caller asks the store.
func TestLingerLost(t *testing.T) {
	bubble(t, func(t *world) {
		var lost atomic.Int32
		a, wire := t.process(pawl.Options{Linger: 10 * time.Second, OnEvent: func(e pawl.Event) {
			if e.Op == pawl.Lost {
				lost.Add(1)
			}
		}})
		l1 := t.must(a.Mutex("x"))
		l1.Unlock()
		t.store.Expire("x")
		l2 := t.must(a.Mutex("x"))
		if l2.Token() <= l1.Token() || l2.ID() == l1.ID() {
			t.Errorf("token %d of %s after %d of %s", l2.Token(), l2.ID(), l1.Token(), l1.ID())
		}
		l2.Unlock()
		synctest.Wait()
		want(t, "tries", wire.Calls("Try"), 2)
		want(t, "lost events", lost.Load(), int32(0))
	})
}

// While it lingers it is renewed, and given back when the client closes.
func TestLingerUntilClose(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{Linger: time.Hour, TTL: time.Second})
		t.must(a.Mutex("x")).Unlock()
		time.Sleep(time.Minute)
		if n := wire.Calls("Renew"); n < 100 {
			t.Errorf("%d renewals in 60 TTLs", n)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		want(t, "releases", wire.Calls("Release"), 1)
		r, _ := t.store.Inspect(t.Context(), "x")
		want(t, "holds", len(r.Holds), 0)
	})
}
