package torture_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
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
func bubble(t *testing.T, f func(t *world)) {
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
func (t *world) process(os ...pawl.Options) (*pawl.Client, *wire) {
	p := &proc{name: string(rune('a' + len(t.procs))), wire: newWire(string(rune('a'+len(t.procs))), t.store.Share(), t.ledger)}
	p.client = pawl.New(p.wire).With(pawl.Options{Holder: p.name, Logger: slog.New(slog.DiscardHandler)})
	t.procs = append(t.procs, p)
	c := p.client
	for _, o := range os {
		c = c.With(o)
	}
	return c, p.wire
}

// must is a lock that has to be had at once.
func (t *world) must(k pawl.Locker) *pawl.Lease {
	t.Helper()
	l, err := k.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// steal lets c steal the only hold of name.
func (t *world) steal(c *pawl.Client, name string) {
	t.Helper()
	i, err := c.Inspect(t.Context(), name)
	if err != nil || len(i.Holders) != 1 {
		t.Fatalf("holders %v, %v", i.Holders, err)
	}
	if err := c.Steal(context.WithValue(t.Context(), stealing{}, true), name, i.Holders[0]); err != nil {
		t.Fatal(err)
	}
}

// answer is what a Lock in the background said.
type answer struct {
	l   *pawl.Lease
	err error
}

// lock asks in the background and returns when the call waits or has ended.
func (t *world) lock(ctx context.Context, k interface {
	Lock(context.Context) (*pawl.Lease, error)
}) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		l, err := k.Lock(ctx)
		ch <- answer{l, err}
	}()
	synctest.Wait()
	return ch
}

// waits fails unless the call is still under way.
func (t *world) waits(ch <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-ch:
		t.Fatalf("it does not wait: lease %v, error %v", a.l, a.err)
	default:
	}
}

// got is the lease of a call that has to be over by now.
func (t *world) got(ch <-chan answer) *pawl.Lease {
	t.Helper()
	a := t.ended(ch)
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.l
}

// ended is the answer of a call that has to be over by now.
func (t *world) ended(ch <-chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-ch:
		return a
	default:
		t.Fatal("it still waits")
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

var errDeadline = context.DeadlineExceeded

func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, s := range parts {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("got %v, want it to say %q", err, s)
		}
	}
}
