package torture_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// Options that cannot work are told by every acquire, before the store is asked; the others are taken as they are.
func TestOptions(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name string
		o    pawl.Options
		bad  string // part of the error; empty: fine
	}{
		{"none", pawl.Options{}, ""},
		{"smallest TTL", pawl.Options{TTL: 6 * time.Millisecond}, ""},
		{"rounded up to the smallest TTL", pawl.Options{TTL: 5*time.Millisecond + 1}, ""},
		{"too small a TTL", pawl.Options{TTL: 5 * time.Millisecond}, "Options.TTL is 5ms: at least 6ms"},
		{"unit missing", pawl.Options{TTL: 30}, "Options.TTL is 30ns, below 1ms: is a unit missing?"},
		{"negative TTL", pawl.Options{TTL: -time.Second}, "Options.TTL is negative: -1s"},
		{"large TTL", pawl.Options{TTL: 30 * day}, ""},
		{"wait", pawl.Options{Wait: time.Millisecond}, ""},
		{"wait without unit", pawl.Options{Wait: 2}, "Options.Wait is 2ns"},
		{"negative wait", pawl.Options{Wait: -1}, "Options.Wait is negative"},
		{"max hold without unit", pawl.Options{MaxHold: 10}, "Options.MaxHold is 10ns"},
		{"negative max hold", pawl.Options{MaxHold: -1}, "Options.MaxHold is negative"},
		{"max hold below the TTL", pawl.Options{MaxHold: time.Millisecond}, ""},
		{"min hold without unit", pawl.Options{MinHold: 10}, "Options.MinHold is 10ns"},
		{"negative min hold", pawl.Options{MinHold: -1}, "Options.MinHold is negative"},
		{"min hold above the TTL", pawl.Options{MinHold: day}, ""},
		{"linger without unit", pawl.Options{Linger: 50}, "Options.Linger is 50ns"},
		{"negative linger", pawl.Options{Linger: -time.Minute}, "Options.Linger is negative"},
		{"negative span", pawl.Options{Span: -1}, "Options.Span is -1: 1 to 1024"},
		{"too large a span", pawl.Options{Span: 1025}, "Options.Span is 1025: 1 to 1024"},
		{"slice without unit", pawl.Options{Slice: 5}, "Options.Slice is 5ns"},
		{"min above max", pawl.Options{MinHold: time.Minute, MaxHold: time.Second}, "Options.MinHold (1m0s) exceeds MaxHold (1s)"},
		{"min equals max", pawl.Options{MinHold: time.Second, MaxHold: time.Second}, ""},
		{"two wrong", pawl.Options{TTL: -1, Wait: -1}, "Options.TTL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				with := a.With(c.o)
				for kind, k := range lockers(with) {
					for _, f := range []func(context.Context) (*pawl.Lease, error){k.Lock, k.TryLock} {
						l, err := f(t.Context())
						if c.bad == "" {
							if err != nil {
								t.Fatalf("%s: %v", kind, err)
							}
							l.Unlock()
							t.store.Expire("x") // what MinHold keeps
							continue
						}
						wantIs(t, err, pawl.ErrInvalid)
						wantText(t, err, c.bad)
					}
				}
				if c.bad != "" {
					want(t, "calls", wire.Calls("Enter"), 0)
					_, err := with.Attach(t.Context(), "{}")
					wantIs(t, err, pawl.ErrInvalid)
				}
				t.must(a.Mutex("y")).Unlock() // the client that it was made from is not touched
			})
		})
	}
}

// A client made by With has what it does not name from the one that it was made from, and shares queues and closing.
func TestWith(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{TTL: 10 * time.Second, Note: "one", Wait: time.Second})
		b := a.With(pawl.Options{Note: "two"}).With(pawl.Options{Holder: "me"})
		l := t.must(b.Mutex("x"))
		if d := time.Until(l.Deadline()); d > 10*time.Second {
			t.Errorf("TTL: %v", d)
		}
		i, err := a.Inspect(t.Context(), "x")
		if err != nil || i.Holders[0].Note != "two" || i.Holders[0].Label != "me" {
			t.Errorf("got %+v, %v", i, err)
		}
		begin := time.Now()
		_, err = a.Mutex("x").Lock(t.Context())
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "waited", time.Since(begin), time.Second)
		inner, err := a.Mutex("x").TryLock(l.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		inner.Unlock()
		l.Unlock()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		_, err = a.Mutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrClosed)
	})
}
