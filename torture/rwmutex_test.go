package torture_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// Readers of one process that come within the slice share one hold and its token.
func TestReadersShareAGrant(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		var rs []*pawl.Lease
		for range 10 {
			rs = append(rs, t.must(a.RWMutex("x").RLocker()))
			time.Sleep(400 * time.Microsecond)
		}
		want(t, "tries", wire.Calls("Try"), 1)
		time.Sleep(2 * time.Millisecond) // over: a new reader stands behind whoever queues in the store
		late := t.must(a.RWMutex("x").RLocker())
		want(t, "tries", wire.Calls("Try"), 2)
		if late.ID() == rs[0].ID() || late.Token() <= rs[0].Token() {
			t.Errorf("late reader: token %d of %s", late.Token(), late.ID())
		}
		for _, r := range rs {
			want(t, "token", r.Token(), rs[0].Token())
			want(t, "releases", wire.Calls("Release"), 0)
			r.Unlock()
		}
		want(t, "releases", wire.Calls("Release"), 1)
		late.Unlock()
	})
}

// Readers of other policies do not share, since the store keeps a TTL and a note a hold.
func TestReadersOfOtherPoliciesDoNotShare(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		all := []*pawl.Client{a, a.With(pawl.Options{TTL: time.Minute}), a.With(pawl.Options{Note: "why"}),
			a.With(pawl.Options{MaxHold: time.Minute}), a.With(pawl.Options{NoKeepalive: true})}
		ids := map[string]bool{}
		for _, c := range all {
			l := t.must(c.RWMutex("x").RLocker())
			ids[l.ID()] = true
			defer l.Unlock()
		}
		want(t, "holds", len(ids), len(all))
		want(t, "tries", wire.Calls("Try"), len(all))
	})
}

// A waiting writer keeps new readers out, in its own process and in others, and readers that came before it in.
func TestWriterFirst(t *testing.T) {
	for _, far := range []bool{false, true} {
		t.Run(map[bool]string{false: "one process", true: "two processes"}[far], func(t *testing.T) {
			bubble(t, func(t *world) {
				a, _ := t.process()
				b := a
				if far {
					b, _ = t.process()
				}
				early := t.must(a.RWMutex("x").RLocker())
				writer := t.lock(t.Context(), b.RWMutex("x"))
				time.Sleep(10 * time.Millisecond)
				reader := t.lock(t.Context(), a.RWMutex("x").RLocker())
				_, err := b.RWMutex("x").TryRLock(t.Context())
				wantIs(t, err, pawl.ErrHeld)
				t.waits(writer)
				t.waits(reader)
				early.Unlock()
				w := t.got(writer)
				if w.Token() <= early.Token() {
					t.Errorf("writer %d after reader %d", w.Token(), early.Token())
				}
				t.waits(reader)
				w.Unlock()
				r := t.got(reader)
				if r.Token() <= w.Token() {
					t.Errorf("reader %d after writer %d", r.Token(), w.Token())
				}
				r.Unlock()
			})
		})
	}
}

// All readers that wait behind a writer come in together when it leaves.
func TestReadersComeInTogether(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process()
		w := t.must(a.RWMutex("x"))
		var in, most atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, err := []*pawl.Client{a, b}[i%2].RWMutex("x").RLock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), in.Add(1)))
				time.Sleep(time.Second)
				in.Add(-1)
				l.Unlock()
			})
		}
		synctest.Wait()
		want(t, "waiters in the store", waiters(t), 1) // of b; a's know by themselves
		w.Unlock()
		time.Sleep(500 * time.Millisecond)
		want(t, "readers at once", most.Load(), int32(20))
		wg.Wait()
	})
}

// Nobody can starve a writer by reading again and again in the same process.
func TestReadersMakeWayForAWriter(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Microsecond)
				for ctx.Err() == nil {
					l, err := a.RWMutex("x").RLock(ctx)
					if err != nil {
						wantIs(t, err, context.Canceled)
						return
					}
					time.Sleep(time.Millisecond)
					l.Unlock()
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		for _, c := range []*pawl.Client{a, b} {
			begin := time.Now()
			l, err := c.RWMutex("x").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin); d > 20*time.Millisecond {
				t.Errorf("the writer waited %v", d)
			}
			l.Unlock()
		}
		stop()
		wg.Wait()
	})
}

// Reading inside writing is re-entry; writing inside reading would wait for itself and is refused at once.
func TestUpgrade(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		m := a.RWMutex("x")
		w := t.must(m)
		in, err := m.RLock(w.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		want(t, "token", in.Token(), w.Token())
		w.Unlock()
		wantIs(t, in.Err(), pawl.ErrNotHeld) // no downgrade: it ends with the outer one
		want(t, "releases", wire.Calls("Release"), 0)
		in.Unlock()
		want(t, "releases", wire.Calls("Release"), 1)

		r := t.must(m.RLocker())
		for _, f := range []func(context.Context) (*pawl.Lease, error){m.Lock, m.TryLock} {
			_, err := f(r.Context(t.Context()))
			wantIs(t, err, pawl.ErrMismatch)
			wantText(t, err, "unlock it before writing")
		}
		again, err := m.RLock(r.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		again.Unlock()
		r.Unlock()
	})
}
