package torture_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// What the state machine or a look at the code has found, as small as it gets.

// The tokens of a hold that had been handed on were given out again after a steal.
func TestStealKeepsTokensRising(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{Linger: time.Second})
		b, _ := t.process()
		var last int64
		for range 5 { // one grant of the store, five tokens
			l := t.must(a.Mutex("x"))
			last = l.Token()
			l.Unlock()
		}
		i, err := b.Inspect(t.Context(), "x")
		if err != nil || len(i.Holders) != 1 {
			t.Fatalf("holders %v, %v", i.Holders, err)
		}
		if err := b.Steal(t.Context(), "x", i.Holders[0]); err != nil {
			t.Fatal(err)
		}
		l := t.must(b.Mutex("x"))
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		l.Unlock()
	})
}

// A reader joined a grant that was being given back: it held nothing, for ever, and nothing told it.
func TestNoReaderJoinsADrainingGrant(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		first := t.must(a.RWMutex("x").RLocker())
		wire.next("Release", fault{After: 2 * time.Millisecond})
		go first.Unlock()
		time.Sleep(time.Millisecond)
		second := t.must(a.RWMutex("x").RLocker())
		time.Sleep(2 * time.Millisecond)
		_, err := b.RWMutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		second.Unlock()
		t.must(b.RWMutex("x")).Unlock()
	})
}

// A reader inside a writer took the lock to write, beside the other readers inside that writer.
func TestNoWriterInsideAnInnerReader(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		m := a.RWMutex("x")
		outer := t.must(m)
		ctx := outer.Context(t.Context())
		r1, err1 := m.TryRLock(ctx)
		r2, err2 := m.TryRLock(ctx)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, r := range []*pawl.Lease{r1, r2} {
			_, err := m.TryLock(r.Context(ctx))
			wantIs(t, err, pawl.ErrMismatch)
		}
		inner, err := m.TryRLock(r1.Context(ctx)) // reading deeper still is fine, but no way around the rule
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.TryLock(inner.Context(ctx))
		wantIs(t, err, pawl.ErrMismatch)
		inner.Unlock()
		r1.Unlock()
		r2.Unlock()
		w, err := m.TryLock(ctx) // the outer lease writes: so may what is nested in it
		if err != nil {
			t.Fatal(err)
		}
		w.Unlock()
		outer.Unlock()
	})
}

// All gave the end of one of its own short waits as the reason why the caller's wait had ended.
func TestAllSaysWhatEndedTheWait(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		held := t.must(b.Mutex("2"))
		ctx, cancel := context.WithCancelCause(t.Context())
		answer := make(chan error, 1)
		wire.next("Release", fault{After: time.Second})
		go func() {
			_, err := pawl.All(a.Mutex("1"), a.Mutex("2")).Lock(ctx)
			answer <- err
		}()
		time.Sleep(500 * time.Millisecond) // it has given up on 2 for now and gives 1 back, to wait for 2 first
		cancel(errGaveUp)
		wantIs(t, <-answer, pawl.ErrHeld, errGaveUp)
		held.Unlock()
	})
}
