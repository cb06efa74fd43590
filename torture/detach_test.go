package torture_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// A detached lease of every kind goes on in another process, with its token, and keeps others out meanwhile.
func TestDetachAndAttach(t *testing.T) {
	for _, kind := range []string{"mutex", "fair", "writer", "reader", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process(pawl.Options{TTL: 10 * time.Second})
				b, _ := t.process()
				c, _ := t.process()
				k := map[string]func(c *pawl.Client) pawl.Locker{
					"mutex":     func(c *pawl.Client) pawl.Locker { return c.Mutex("x") },
					"fair":      func(c *pawl.Client) pawl.Locker { return c.FairMutex("x") },
					"writer":    func(c *pawl.Client) pawl.Locker { return c.RWMutex("x") },
					"reader":    func(c *pawl.Client) pawl.Locker { return c.RWMutex("x").RLocker() },
					"semaphore": func(c *pawl.Client) pawl.Locker { return c.Semaphore("x", 3).Weight(2) },
				}[kind]
				other := k
				if kind == "reader" {
					other = func(c *pawl.Client) pawl.Locker { return c.RWMutex("x") }
				}
				l := t.must(k(a))
				work := l.Context(t.Context())
				ticket, err := l.Detach()
				if err != nil {
					t.Fatal(err)
				}
				wantIs(t, l.Err(), pawl.ErrNotHeld)
				wantIs(t, l.Unlock(), pawl.ErrNotHeld)
				wantIs(t, context.Cause(work), pawl.ErrNotHeld)
				_, err = l.Detach()
				wantIs(t, err, pawl.ErrNotHeld)
				waiting := t.lock(t.Context(), other(a)) // a knows nothing of it any more and asks the store
				time.Sleep(9 * time.Second)
				want(t, "renewals meanwhile", wire.Calls("Renew"), 0)
				l2, err := b.Attach(t.Context(), ticket)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "token", l2.Token(), l.Token())
				want(t, "id", l2.ID(), l.ID())
				want(t, "name", l2.Name(), "x")
				if d := time.Until(l2.Deadline()); d >= 10*time.Second || d < 8*time.Second {
					t.Errorf("trusted for %v", d)
				}
				time.Sleep(time.Hour)
				t.waits(waiting)
				want(t, "an hour later", l2.Err(), error(nil))
				_, err = other(c).TryLock(t.Context())
				wantIs(t, err, pawl.ErrHeld)
				if err := a.Close(); err != nil { // it is no business of a's
					t.Error(err)
				}
				wantIs(t, t.ended(waiting).err, pawl.ErrClosed)
				want(t, "after a was closed", l2.Err(), error(nil))
				want(t, "unlock", l2.Unlock(), error(nil))
				t.must(other(c)).Unlock()
				_, err = b.Attach(t.Context(), ticket)
				wantIs(t, err, pawl.ErrNotHeld)
			})
		})
	}
}

// A lease that was handed on has another token than its hold; a ticket carries both.
func TestDetachAfterHandOff(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{Linger: time.Second})
		b, _ := t.process()
		for range 4 {
			t.must(a.Mutex("x")).Unlock()
		}
		l := t.must(a.Mutex("x"))
		ticket, err := l.Detach()
		if err != nil {
			t.Fatal(err)
		}
		l2, err := b.Attach(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "token", l2.Token(), l.Token())
		inner, err := b.Mutex("x").TryLock(l2.Context(t.Context())) // it is a lease like any other
		if err != nil {
			t.Fatal(err)
		}
		inner.Unlock()
		l2.Unlock()
		l3 := t.must(b.Mutex("x"))
		if l3.Token() <= l.Token() {
			t.Errorf("token %d after %d", l3.Token(), l.Token())
		}
		l3.Unlock()
	})
}

// Only a lease that is alone on its hold can be detached.
func TestDetachRefused(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		outer := t.must(a.Mutex("x"))
		inner := t.got(t.lock(outer.Context(t.Context()), a.Mutex("x")))
		for _, l := range []*pawl.Lease{outer, inner} {
			_, err := l.Detach()
			wantIs(t, err, pawl.ErrHeld)
			want(t, "still held", l.Err(), error(nil))
		}
		inner.Unlock()
		outer.Unlock()
		r1, r2 := t.must(a.RWMutex("y").RLocker()), t.must(a.RWMutex("y").RLocker())
		_, err := r1.Detach()
		wantIs(t, err, pawl.ErrHeld)
		r2.Unlock()
		if _, err := r1.Detach(); err != nil {
			t.Error(err)
		}
		l := t.must(a.Mutex("z"))
		t.store.Expire("z")
		_, err = l.Detach()
		wantIs(t, err, pawl.ErrLost)
		l.Unlock()
		_, err = (*pawl.Lease)(nil).Detach()
		wantIs(t, err, pawl.ErrNotHeld)
		simple := pawl.New(plainDriver{t.store.Share()})
		l = t.must(simple.Mutex("w"))
		_, err = l.Detach()
		wantIs(t, err, errors.ErrUnsupported)
		want(t, "still held", l.Err(), error(nil))
		_, err = simple.Attach(t.Context(), "{}")
		wantIs(t, err, errors.ErrUnsupported)
		_, err = simple.Inspect(t.Context(), "w")
		wantIs(t, err, errors.ErrUnsupported)
		l.Unlock()
		simple.Close()
		t.store.Expire("y")
	})
}

// plainDriver has no optional powers.
type plainDriver struct{ driver.Driver }

// A ticket is good until the TTL is over, and says nothing that could crash whoever reads it.
func TestTickets(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{TTL: 10 * time.Second})
		b, wire := t.process()
		ticket, err := t.must(a.Mutex("x")).Detach()
		if err != nil {
			t.Fatal(err)
		}
		wire.next("Attach", fault{Never: true})
		_, err = b.Attach(t.Context(), ticket)
		if err == nil || isAny(err, pawl.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Second)
		_, err = b.Attach(t.Context(), ticket)
		wantIs(t, err, pawl.ErrNotHeld)
		t.must(b.Mutex("x")).Unlock()

		n := wire.Calls("Attach")
		fields := map[string][]any{
			"v":      {0, 2, -1, "1", nil},
			"kind":   {"", "none", "mutex", 1},
			"name":   {"", nil, "not base64!"},
			"id":     {"", nil},
			"ttl_ms": {0, -1, int64(1) << 62},
		}
		for field, values := range fields {
			for _, v := range values {
				var m map[string]any
				if err := json.Unmarshal([]byte(ticket), &m); err != nil {
					t.Fatal(err)
				}
				m[field] = v
				bad, _ := json.Marshal(m)
				_, err := b.Attach(t.Context(), string(bad))
				if !isAny(err, pawl.ErrInvalid) {
					t.Errorf("%s: got %v, want ErrInvalid", bad, err)
				}
			}
		}
		for _, s := range []string{"", "{}", "null", "[]", "x", ticket[:len(ticket)-1], ticket + "x", "{\"v\":1"} {
			_, err := b.Attach(t.Context(), s)
			wantIs(t, err, pawl.ErrInvalid)
		}
		want(t, "calls for them", wire.Calls("Attach"), n)
	})
}
