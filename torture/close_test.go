package torture_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// Close ends every kind of wait with ErrClosed, at once, and nothing of them is left in the store.
func TestCloseEndsWaits(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		held := t.must(b.Mutex("x"))
		heldToo := t.must(b.Semaphore("s", 1))
		mine := t.must(a.Mutex("mine"))
		inner := t.got(t.lock(mine.Context(t.Context()), a.Mutex("mine")))
		waits := map[string]<-chan answer{
			"in the store's line": t.lock(t.Context(), a.Mutex("x")),
			"in the local queue":  t.lock(t.Context(), a.Mutex("x")),
			"fair":                t.lock(t.Context(), a.FairMutex("x")),
			"permit":              t.lock(t.Context(), a.Semaphore("s", 1)),
			"behind my own lease": t.lock(t.Context(), a.Mutex("mine")),
			"for a sibling":       t.lock(mine.Context(t.Context()), a.Mutex("mine")),
			"election": func() <-chan answer {
				l := t.got(t.lock(t.Context(), campaign{b.Election("e")}))
				t.Cleanup(func() { l.Unlock() })
				return t.lock(t.Context(), campaign{a.Election("e")})
			}(),
		}
		wire.next("Try", fault{Never: true, Hang: true})
		waits["for an answer of the store"] = t.lock(t.Context(), a.Mutex("y"))
		multi := make(chan answer, 1)
		go func() {
			ls, err := pawl.All(a.Mutex("x"), a.Mutex("z")).Lock(t.Context())
			if err == nil {
				ls.Unlock()
			}
			multi <- answer{nil, err}
		}()
		waits["for several"] = multi
		for name, ch := range waits {
			select {
			case a := <-ch:
				t.Fatalf("%s: it does not wait: %v", name, a.err)
			default:
			}
		}
		begin := time.Now()
		time.AfterFunc(time.Second, func() {
			inner.Unlock()
			mine.Unlock()
		})
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 5*time.Second+100*time.Millisecond { // a request that nobody answers may cost 4 s
			t.Errorf("close took %v", d)
		}
		for name, ch := range waits {
			t.Log(name)
			wantIs(t, t.ended(ch).err, pawl.ErrClosed)
		}
		for _, name := range []string{"x", "s", "mine", "e"} {
			r, err := t.store.Inspect(t.Context(), name)
			if err != nil || r.Waiters != 0 {
				t.Errorf("%q: %d waiters, %v", name, r.Waiters, err)
			}
		}
		for _, f := range []func(context.Context) (*pawl.Lease, error){a.Mutex("n").Lock, a.Mutex("n").TryLock, a.RWMutex("n").RLock} {
			_, err := f(t.Context())
			wantIs(t, err, pawl.ErrClosed)
		}
		_, err := a.Attach(t.Context(), "{}")
		if err == nil {
			t.Error("attached")
		}
		want(t, "second close", a.Close(), error(nil))
		held.Unlock()
		heldToo.Unlock()
	})
}

// campaign makes an election look like a lock.
type campaign struct{ *pawl.Election }

func (c campaign) Lock(ctx context.Context) (*pawl.Lease, error) { return c.Campaign(ctx, "me") }

// Close waits for the work under its leases, whose contexts it ends, and frees each when its holder says so.
func TestCloseWaitsForUnlocks(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		var wg sync.WaitGroup
		for _, work := range []time.Duration{0, 2 * time.Second, 5 * time.Second} {
			l := t.must(a.Mutex("x" + work.String()))
			ctx := l.Context(t.Context())
			wg.Go(func() {
				<-ctx.Done()
				wantIs(t, context.Cause(ctx), pawl.ErrLost, pawl.ErrClosed)
				wantIs(t, l.Err(), pawl.ErrLost, pawl.ErrClosed)
				time.Sleep(work)
				_, err := b.Mutex(l.Name()).TryLock(t.Context())
				wantIs(t, err, pawl.ErrHeld)
				wantIs(t, l.Unlock(), pawl.ErrLost, pawl.ErrClosed)
				t.must(b.Mutex(l.Name())).Unlock()
			})
		}
		synctest.Wait()
		begin := time.Now()
		want(t, "close", a.Close(), error(nil))
		want(t, "close took", time.Since(begin), 5*time.Second)
		wg.Wait()
		want(t, "releases", wire.Calls("Release"), 3)
	})
}

// Leases that nobody unlocks are named, are not freed, and run out.
func TestCloseNamesWhatIsLeft(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{TTL: 10 * time.Second})
		b, _ := t.process()
		t.must(a.Mutex("leak"))
		t.must(a.Semaphore("leak too", 2))
		good := t.must(a.Mutex("good"))
		time.AfterFunc(time.Second, func() { good.Unlock() })
		begin := time.Now()
		err := a.Close()
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("close took %v", d)
		}
		wantText(t, err, `"leak"`, `"leak too"`)
		if strings.Contains(err.Error(), "good") {
			t.Errorf("got %v", err)
		}
		want(t, "releases", wire.Calls("Release"), 1)
		_, err = b.Mutex("leak").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		time.Sleep(time.Until(begin.Add(10 * time.Second)))
		t.must(b.Mutex("leak")).Unlock()
	})
}

// Close on a store that does not answer ends too.
func TestCloseOfABrokenStore(t *testing.T) {
	for _, f := range []fault{{Never: true, Err: errBroken}, {Never: true, Hang: true}} {
		t.Run(map[bool]string{false: "refused", true: "silent"}[f.Hang], func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process(pawl.Options{Linger: time.Hour})
				b, _ := t.process()
				l := t.must(a.Mutex("x"))
				t.must(a.Mutex("idle")).Unlock()
				held := t.must(b.Mutex("y"))
				waiting := t.lock(t.Context(), a.Mutex("y"))
				for _, m := range []string{"Try", "Leave", "Renew", "Release"} {
					wire.all(m, f)
				}
				time.Sleep(5 * time.Second)
				begin := time.Now()
				time.AfterFunc(time.Second, func() { l.Unlock() })
				a.Close()
				if d := time.Since(begin); d > 12*time.Second {
					t.Errorf("close took %v", d)
				}
				wantIs(t, t.ended(waiting).err, pawl.ErrClosed)
				held.Unlock()
			})
		})
	}
}

// Many Closes and Unlocks at once.
func TestCloseInTheMiddle(t *testing.T) {
	bubble(t, func(t *world) {
		for range 20 {
			a, _ := t.process()
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for {
						l, err := a.Mutex("x").Lock(t.Context())
						if err != nil {
							wantIs(t, err, pawl.ErrClosed)
							return
						}
						if i%2 == 0 {
							time.Sleep(300 * time.Microsecond)
						}
						if err := l.Unlock(); err != nil {
							wantIs(t, err, pawl.ErrLost, pawl.ErrClosed)
						}
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					time.Sleep(5 * time.Millisecond)
					want(t, "close", a.Close(), error(nil))
				})
			}
			wg.Wait()
			r, _ := t.store.Inspect(t.Context(), "x")
			want(t, "holds and waiters", len(r.Holds)+r.Waiters, 0)
		}
	})
}
