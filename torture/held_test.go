package torture_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// A HeldError says who holds the lock, for how long, how many wait, and whether it is this very client.
func TestHeldError(t *testing.T) {
	host, _ := os.Hostname()
	pid := strconv.Itoa(os.Getpid())
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process(pawl.Options{Note: "deploy #812", TTL: 10 * time.Second})
		l := t.must(b.Mutex("x"))
		time.Sleep(time.Second)
		text := `pawl: "x": held by b (pid ` + pid + `, host ` + host + `) "deploy #812"`

		_, err := a.Mutex("x").TryLock(t.Context())
		he, _ := errors.AsType[*pawl.HeldError](err)
		want(t, "text", err.Error(), text)
		want(t, "token", he.Holder.Token, l.Token())
		want(t, "id", he.Holder.ID, l.ID())
		want(t, "remaining", he.Remaining, 9*time.Second)
		want(t, "waiters", he.Waiters, 0)
		want(t, "here", he.Here, false)
		want(t, "since", time.Since(he.Holder.Since), time.Second)
		if errors.Unwrap(err) != nil {
			t.Errorf("a TryLock has no wait to end: %v", errors.Unwrap(err))
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Mutex("x").Lock(ctx)
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "text of a wait", err.Error(), text+": gave up: context deadline exceeded")

		const here = `pawl: "x": held by another lease of this client (to re-enter, pass the ctx of Lease.Context)`
		for _, k := range []pawl.Locker{b.Mutex("x"), b.FairMutex("x"), b.With(pawl.Options{Note: "other"}).Mutex("x")} {
			_, err = k.TryLock(t.Context())
			he, _ = errors.AsType[*pawl.HeldError](err)
			want(t, "text here", err.Error(), here)
			want(t, "here", he.Here, true)
			want(t, "note", he.Holder.Note, "deploy #812")
		}
		_, err = b.With(pawl.Options{Wait: time.Second}).Mutex("x").Lock(t.Context())
		want(t, "text of a wait here", err.Error(), here+": gave up: context deadline exceeded")

		inner := t.got(t.lock(l.Context(t.Context()), b.Mutex("x")))
		_, err = b.Mutex("x").TryLock(l.Context(t.Context()))
		wantIs(t, err, pawl.ErrHeld)
		inner.Unlock()
		l.Unlock()
	})
}

// No error of a lock is about another outcome too.
func TestErrorsAreDistinct(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{TTL: 3 * time.Second})
		b, _ := t.process()
		sentinels := map[string]error{"held": pawl.ErrHeld, "mismatch": pawl.ErrMismatch, "invalid": pawl.ErrInvalid,
			"not held": pawl.ErrNotHeld, "lost": pawl.ErrLost, "unknown": pawl.ErrUnknown, "closed": pawl.ErrClosed}
		check := func(what string, err error, is ...string) {
			t.Helper()
			if err == nil || !strings.HasPrefix(err.Error(), "pawl: ") {
				t.Errorf("%s: got %v, want an error of pawl", what, err)
			}
			for name, s := range sentinels {
				exp := false
				for _, i := range is {
					exp = exp || i == name
				}
				if errors.Is(err, s) != exp {
					t.Errorf("%s: %v: matches %q: %v", what, err, name, !exp)
				}
			}
		}
		held := t.must(b.Mutex("x"))
		_, err := a.Mutex("x").TryLock(t.Context())
		check("held", err, "held")
		_, err = a.RWMutex("x").TryLock(t.Context())
		check("mismatch", err, "mismatch")
		_, err = a.Mutex("").TryLock(t.Context())
		check("invalid", err, "invalid")
		held.Unlock()
		check("unlocked twice", held.Unlock(), "not held")
		l := t.must(a.Mutex("x"))
		t.store.Expire("x")
		check("lost", l.Err(), "lost")
		check("unlock of a lost one", l.Unlock(), "lost")
		check("lost and unlocked twice", l.Unlock(), "not held")
		check("lost and unlocked", l.Err(), "lost")
		wire.next("Try", fault{Lost: true})
		_, err = a.Mutex("x").TryLock(t.Context())
		check("unknown lock", err, "unknown")
		time.Sleep(time.Second)
		l = t.must(a.Mutex("x"))
		wire.all("Release", fault{Never: true})
		check("unknown unlock", l.Unlock(), "unknown")
		wire.heal()
		time.Sleep(5 * time.Second)
		wire.cut(errBroken)
		_, err = a.Mutex("x").TryLock(t.Context())
		check("store down", err, "unknown")
		wire.cut(errCertain)
		_, err = a.Mutex("x").TryLock(t.Context())
		check("never sent", err)
		wire.mend()
		l = t.must(a.Mutex("y"))
		a.Close()
		check("closing", l.Err(), "lost", "closed")
		l.Unlock()
		_, err = a.Mutex("x").TryLock(t.Context())
		check("closed", err, "closed")
	})
}
