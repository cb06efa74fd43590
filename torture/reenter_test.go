package torture_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// Siblings under one lease exclude one another and are served in order; what is nested deeper passes.
func TestSiblings(t *testing.T) {
	for _, kind := range []string{"mutex", "fair", "writer"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				k := map[string]pawl.Locker{"mutex": a.Mutex("x"), "fair": a.FairMutex("x"), "writer": a.RWMutex("x")}[kind]
				outer := t.must(k)
				ctx := outer.Context(t.Context())
				first, err := k.TryLock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				deep, err := k.TryLock(first.Context(ctx))
				if err != nil {
					t.Fatal(err)
				}
				_, err = k.TryLock(ctx)
				wantIs(t, err, pawl.ErrHeld)
				var queue []<-chan answer
				for range 5 {
					queue = append(queue, t.lock(ctx, k))
				}
				gone, cancel := context.WithCancelCause(ctx)
				given := t.lock(gone, k)
				cancel(errGaveUp)
				wantIs(t, t.ended(given).err, pawl.ErrHeld, errGaveUp)
				deep.Unlock()
				for i, l := 0, first; i < len(queue); i++ {
					t.waits(queue[i])
					l.Unlock()
					l = t.got(queue[i])
					want(t, "token", l.Token(), outer.Token())
					defer l.Unlock()
				}
				want(t, "enters", wire.Calls("Enter"), 1)
				want(t, "releases", wire.Calls("Release"), 0)
				want(t, "outer", outer.Unlock(), error(nil))
				want(t, "releases under the inner lease", wire.Calls("Release"), 0)
			})
		})
	}
}

// Readers inside a writer are siblings that may be in together; a writer among them waits, and those behind it too.
func TestReadersInsideAWriter(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		m := a.RWMutex("x")
		outer := t.must(m)
		ctx := outer.Context(t.Context())
		r1, r2 := t.got(t.lock(ctx, m.RLocker())), t.got(t.lock(ctx, m.RLocker()))
		writer := t.lock(ctx, m)
		r3 := t.lock(ctx, m.RLocker())
		r4 := t.lock(ctx, m.RLocker())
		r1.Unlock()
		t.waits(writer)
		r2.Unlock()
		w := t.got(writer)
		t.waits(r3)
		w.Unlock()
		l3, l4 := t.got(r3), t.got(r4)
		want(t, "readers", fmt.Sprint(l3.Err(), l4.Err()), "<nil> <nil>")
		l3.Unlock()
		l4.Unlock()
		outer.Unlock()
	})
}

// Ending the outer lease ends the inner ones and those who wait for one; the store's hold ends with the last of them.
func TestOuterEndsInner(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		outer := t.must(a.Mutex("x"))
		ctx := outer.Context(t.Context())
		inner := t.got(t.lock(ctx, a.Mutex("x")))
		deep := t.got(t.lock(inner.Context(ctx), a.Mutex("x")))
		work := deep.Context(ctx)
		waiting := t.lock(ctx, a.Mutex("x"))
		want(t, "outer", outer.Unlock(), error(nil))
		wantIs(t, t.ended(waiting).err, pawl.ErrNotHeld)
		for _, l := range []*pawl.Lease{outer, inner, deep} {
			wantIs(t, l.Err(), pawl.ErrNotHeld)
		}
		<-work.Done()
		wantIs(t, context.Cause(work), pawl.ErrNotHeld)
		_, err := b.Mutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld) // they have not said yet that they stopped
		want(t, "releases", wire.Calls("Release"), 0)
		want(t, "deep", deep.Unlock(), error(nil))
		want(t, "inner", inner.Unlock(), error(nil))
		wantIs(t, inner.Unlock(), pawl.ErrNotHeld)
		want(t, "releases", wire.Calls("Release"), 1)
		t.must(b.Mutex("x")).Unlock()
	})
}

// A hold with an inner lease is kept alive, and lost for all of its leases at once.
func TestInnerIsLostWithOuter(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		outer := t.must(a.Mutex("x"))
		ctx := outer.Context(t.Context())
		inner := t.got(t.lock(ctx, a.Mutex("x")))
		waiting := t.lock(ctx, a.Mutex("x"))
		time.Sleep(time.Hour)
		want(t, "inner", inner.Err(), error(nil))
		t.store.Expire("x")
		wantIs(t, t.ended(waiting).err, pawl.ErrLost)
		wantIs(t, inner.Err(), pawl.ErrLost)
		wantIs(t, outer.Unlock(), pawl.ErrLost)
		wantIs(t, inner.Unlock(), pawl.ErrLost)
	})
}

// Re-entry needs a lease of the same name, client and family; another client over the same store is a stranger.
func TestNoReentry(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		ctx := l.Context(t.Context())
		_, err := b.Mutex("x").TryLock(ctx)
		wantIs(t, err, pawl.ErrHeld)
		if strings.Contains(err.Error(), "Lease.Context") {
			t.Errorf("%v: it does carry the context", err)
		}
		_, err = a.RWMutex("x").TryLock(ctx)
		wantIs(t, err, pawl.ErrMismatch)
		other, err := a.Mutex("y").TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		other.Unlock()
		fair, err := a.FairMutex("x").TryLock(ctx) // of one family
		if err != nil {
			t.Fatal(err)
		}
		fair.Unlock()
		other, err = a.With(pawl.Options{TTL: time.Minute}).Mutex("x").TryLock(ctx) // another policy of one client
		if err != nil {
			t.Fatal(err)
		}
		other.Unlock()
		l.Unlock()
		_, err = a.Mutex("x").TryLock(ctx) // the lease has ended, and ctx with it
		wantIs(t, err, pawl.ErrNotHeld)
	})
}

// Options.Wait bounds the wait for a sibling too.
func TestWaitForASibling(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{Wait: time.Second})
		outer := t.must(a.Mutex("x"))
		ctx := outer.Context(t.Context())
		inner := t.got(t.lock(ctx, a.Mutex("x")))
		begin := time.Now()
		_, err := a.Mutex("x").Lock(ctx)
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "waited", time.Since(begin), time.Second)
		inner.Unlock()
		outer.Unlock()
	})
}
