package torture_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

// world is a store in fake time and the processes that use it.
type world struct {
	*testing.T
	store  *memlock.Driver
	ledger *ledger
	procs  []*proc
}

// bubble runs f in fake time over a fresh store. The ledger watches that the clients keep to the rules of the seam.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		w := &world{T: t, store: store, ledger: newLedger(store)}
		f(w)
		for _, p := range w.procs {
			p.client.Close()
			p.wire.settle()
		}
		if s := w.ledger.report(100); s != "" {
			t.Error(s)
		}
	})
}

// process starts one more process. Options may be given for its client.
func (w *world) process(os ...pawl.Options) (*pawl.Client, *wire) {
	p := &proc{name: string(rune('a' + len(w.procs))), wire: newWire(string(rune('a'+len(w.procs))), w.store.Share(), w.ledger)}
	p.client = pawl.New(p.wire).With(pawl.Options{Holder: p.name, Logger: slog.New(slog.DiscardHandler)})
	w.procs = append(w.procs, p)
	c := p.client
	for _, o := range os {
		c = c.With(o)
	}
	return c, p.wire
}

// must is a lock that has to be had at once.
func (w *world) must(k pawl.Locker) *pawl.Lease {
	w.Helper()
	l, err := k.TryLock(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// answer is what a Lock in the background said.
type answer struct {
	l   *pawl.Lease
	err error
}

// lock asks in the background and returns when the call waits or has ended.
func (w *world) lock(ctx context.Context, k pawl.Locker) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		l, err := k.Lock(ctx)
		ch <- answer{l, err}
	}()
	synctest.Wait()
	return ch
}

// waits fails unless the call is still under way.
func (w *world) waits(ch <-chan answer) {
	w.Helper()
	synctest.Wait()
	select {
	case a := <-ch:
		w.Fatalf("it does not wait: lease %v, error %v", a.l, a.err)
	default:
	}
}

// got is the lease of a call that has to be over by now.
func (w *world) got(ch <-chan answer) *pawl.Lease {
	w.Helper()
	a := w.ended(ch)
	if a.err != nil {
		w.Fatal(a.err)
	}
	return a.l
}

// ended is the answer of a call that has to be over by now.
func (w *world) ended(ch <-chan answer) answer {
	w.Helper()
	synctest.Wait()
	select {
	case a := <-ch:
		return a
	default:
		w.Fatal("it still waits")
		return answer{}
	}
}

func sortBy[T any, K cmp.Ordered](xs []T, key func(T) K) {
	slices.SortFunc(xs, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}

func want(t testing.TB, what string, got, exp any) {
	t.Helper()
	if got != exp {
		t.Errorf("%s: got %v, want %v", what, got, exp)
	}
}

func wantIs(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, x := range targets {
		if !errors.Is(err, x) {
			t.Errorf("got %v, want it to match %v", err, x)
		}
	}
}
