// Package guardtest is the suite that every guard of package fence passes: a register that only the newest holder may
// write. Those who write a guard of their own can run it too.
package guardtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/memlock"
)

// Register is a number at a guarded resource. It is used concurrently.
type Register interface {
	// Read claims the resource for l, then reads.
	Read(ctx context.Context, l fence.Lease) (int, error)
	// ReadShared does the same with a shared claim.
	ReadShared(ctx context.Context, l fence.Lease) (int, error)
	// Write claims the resource for l and writes; nothing can come between the two.
	Write(ctx context.Context, l fence.Lease, v int) error
}

// Case is one rule. It answers how a guard breaks it.
type Case struct {
	Name string // what the rule says, for go test -run
	Why  string
	run  func(ctx context.Context, open func(resource string) Register) error
}

// Check runs the case against a guard. Registers of different resources are independent and begin with 0; one that is
// opened again is the same one. A guard that answers no claim for a minute fails.
func (c Case) Check(ctx context.Context, open func(resource string) Register) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := c.run(ctx, open); err != nil {
		return fmt.Errorf("%w\nthe rule: %s", err, c.Why)
	}
	return nil
}

// Run runs all cases as subtests. Resource names begin with the case's name.
func Run(t *testing.T, open func(resource string) Register) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Check(t.Context(), func(resource string) Register { return open(c.Name + ":" + resource) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Cases are the rules.
func Cases() []Case {
	return []Case{
		{"order", "a smaller token is refused, and so is an equal one of another hold; the same hold may repeat itself", order},
		{"numbers", "tokens are numbers of 63 bits: neither text nor floating point", numbers},
		{"ended", "an ended lease, no lease and a lease without token are refused, and change nothing", ended},
		{"shared", "a shared claim is not older than the newest exclusive one, an exclusive claim not older than any", shared},
		{"names", "each resource has a mark of its own, whatever the bytes of its name", names},
		{"holds", "holds are told apart whatever their names are", holds},
		{"pause", "a holder that was paused between its read and its write is refused once a newer one has read", pause},
		{"torture", "no update is lost while holders are paused past their lease at random", torture},
	}
}

// Shown is a lease of a process that does not know yet that it may have ended: just what it would send.
type Shown struct {
	Lock, Hold string
	Number     int64
	Ended      error
}

func (s Shown) Name() string { return s.Lock }
func (s Shown) ID() string   { return s.Hold }
func (s Shown) Token() int64 { return s.Number }
func (s Shown) Err() error   { return s.Ended }

// Freeze is what l shows, from now on whatever happens to l: a process that is paused after it has looked at its lease.
func Freeze(l *pawl.Lease) Shown { return Shown{Lock: l.Name(), Hold: l.ID(), Number: l.Token()} }

func by(hold string, token int64) Shown { return Shown{Lock: "lock", Hold: hold, Number: token} }

// step is one claim and what must come of it.
type step struct {
	do   string // read, shared, or write
	l    fence.Lease
	v    int   // written, or read
	seen int64 // of the *StaleError; 0: passes
}

func play(ctx context.Context, r Register, steps []step) error {
	for i, s := range steps {
		var got int
		var err error
		switch s.do {
		case "read":
			got, err = r.Read(ctx, s.l)
		case "shared":
			got, err = r.ReadShared(ctx, s.l)
		case "write":
			got, err = s.v, r.Write(ctx, s.l, s.v)
		}
		what := fmt.Sprintf("step %d, %s %d by token %d of %.20s", i, s.do, s.v, s.l.Token(), s.l.(Shown).Hold)
		if s.seen == 0 {
			if err != nil || got != s.v {
				return fmt.Errorf("%s: got %d, %v", what, got, err)
			}
			continue
		}
		stale, ok := errors.AsType[*fence.StaleError](err)
		if !ok || !errors.Is(err, fence.ErrStale) || stale.Token != s.l.Token() || stale.Seen != s.seen {
			return fmt.Errorf("%s: got %v, want a StaleError with %d seen", what, err, s.seen)
		}
	}
	return nil
}

func order(ctx context.Context, open func(string) Register) error {
	return play(ctx, open("r"), []step{
		{"read", by("a:1", 5), 0, 0},
		{"write", by("a:1", 5), 1, 0},
		{"write", by("a:1", 5), 2, 0},
		{"read", by("b:1", 5), 0, 5},
		{"write", by("b:1", 5), 3, 5},
		{"write", by("b:1", 4), 3, 5},
		{"read", by("a:1", 5), 2, 0},
		{"read", by("b:2", 6), 2, 0},
		{"write", by("a:1", 5), 4, 6},
		{"write", by("b:2", 6), 5, 0},
		{"write", by("c:1", 7), 6, 0}, // claims by writing
		{"read", by("b:2", 6), 0, 7},
		{"read", by("c:1", 7), 6, 0},
	})
}

func numbers(ctx context.Context, open func(string) Register) error {
	return play(ctx, open("r"), []step{
		{"write", by("a", 9), 1, 0},
		{"write", by("b", 10), 2, 0},
		{"write", by("a", 9), 3, 10},
		{"write", by("c", 99999), 3, 0},
		{"write", by("d", 100000), 4, 0},
		{"write", by("e", 1<<53), 5, 0},
		{"write", by("f", 1<<53+1), 6, 0},
		{"write", by("e", 1<<53), 7, 1<<53 + 1},
		{"write", by("g", math.MaxInt64-1), 8, 0},
		{"write", by("h", math.MaxInt64), 9, 0},
		{"write", by("g", math.MaxInt64-1), 7, math.MaxInt64},
		{"shared", by("i", math.MaxInt64-1), 7, math.MaxInt64},
		{"read", by("h", math.MaxInt64), 9, 0},
	})
}

var errOver = errors.New("over")

func ended(ctx context.Context, open func(string) Register) error {
	r := open("r")
	over := by("a", 9)
	over.Ended = errOver
	for _, c := range []struct {
		what string
		l    fence.Lease
		want error
	}{{"an ended lease", over, fence.ErrStale}, {"no lease", nil, fence.ErrStale}, {"a nil lease", (*pawl.Lease)(nil), fence.ErrStale},
		{"token 0", by("a", 0), fence.ErrNoToken}, {"token -1", by("a", -1), fence.ErrNoToken}} {
		if _, err := r.Read(ctx, c.l); !errors.Is(err, c.want) {
			return fmt.Errorf("read with %s: got %v, want %v", c.what, err, c.want)
		}
		if _, err := r.ReadShared(ctx, c.l); !errors.Is(err, c.want) {
			return fmt.Errorf("shared read with %s: got %v, want %v", c.what, err, c.want)
		}
		if err := r.Write(ctx, c.l, 1); !errors.Is(err, c.want) {
			return fmt.Errorf("write with %s: got %v, want %v", c.what, err, c.want)
		}
	}
	return play(ctx, r, []step{{"read", by("b", 1), 0, 0}})
}

func shared(ctx context.Context, open func(string) Register) error {
	for name, steps := range map[string][]step{
		"first shared": {
			{"shared", by("r1", 5), 0, 0},
			{"shared", by("r2", 4), 0, 0}, // readers do not disturb one another
			{"write", by("w1", 4), 1, 5},
			{"read", by("w1", 3), 0, 5},
			{"write", by("w2", 6), 1, 0},
			{"shared", by("r1", 5), 0, 6},
		},
		"among writers": {
			{"write", by("w1", 5), 1, 0},
			{"shared", by("r1", 4), 0, 5},
			{"shared", by("r1", 5), 0, 5}, // the same number of another hold
			{"shared", by("w1", 5), 1, 0}, // a reader inside the writer
			{"write", by("w1", 5), 2, 0},
			{"shared", by("r2", 8), 2, 0},
			{"shared", by("r3", 7), 2, 0},
			{"shared", by("r4", 8), 2, 0}, // readers that joined share a number
			{"write", by("w1", 5), 3, 8},
			{"write", by("w2", 7), 3, 8},
			{"write", by("w3", 9), 3, 0},
			{"shared", by("r2", 8), 0, 9},
			{"read", by("w3", 9), 3, 0},
		},
		"one hold": {
			{"shared", by("w", 5), 0, 0},
			{"write", by("w", 5), 1, 0},
			{"shared", by("w", 5), 1, 0},
			{"write", by("w", 5), 2, 0},
		},
	} {
		if err := play(ctx, open(name), steps); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func names(ctx context.Context, open func(string) Register) error {
	all := []string{"a", "A", "a ", " a", "a:b", "ä", "a\u0308", "'\"`;-- %s", "{a}", "{a}b", "a/b", "a//b", "a\nb", strings.Repeat("x", 900), strings.Repeat("x", 899) + "y"}
	for i, n := range all {
		if err := open(n).Write(ctx, by("h", int64(len(all)-i)), i+1); err != nil {
			return fmt.Errorf("%.20q: %w", n, err)
		}
	}
	for i, n := range all {
		if v, err := open(n).Read(ctx, by("h", int64(len(all)-i))); err != nil || v != i+1 {
			return fmt.Errorf("%.20q: got %d, %w, want %d", n, v, err, i+1)
		}
	}
	return nil
}

func holds(ctx context.Context, open func(string) Register) error {
	all := []string{"a", "A", "a ", " a", "", "0", "00", "a+b", "a%2Bb", "ä", "a\u0308", "a\x00", "\xff", "\xfe", "a\nb", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 255) + "y"}
	r := open("r")
	for i, h := range all {
		token := int64(i + 1)
		if err := r.Write(ctx, by(h, token), i); err != nil {
			return fmt.Errorf("%.20q: %w", h, err)
		}
		if err := r.Write(ctx, by(h, token), i); err != nil {
			return fmt.Errorf("%.20q again: %w", h, err)
		}
		for j, o := range all {
			if err := r.Write(ctx, by(o, token), i); (err == nil) != (i == j) || err != nil && !errors.Is(err, fence.ErrStale) {
				return fmt.Errorf("the token of %.20q, shown by %.20q: got %v", h, o, err)
			}
		}
	}
	return nil
}

// pause is what a check at the write alone gets wrong: the late write comes before the new holder's first.
func pause(ctx context.Context, open func(string) Register) error {
	return withLock(ctx, func(store *memlock.Driver, locks [2]*pawl.Client) error {
		r := open("r")
		a, err := locks[0].Mutex("lock").Lock(ctx)
		if err != nil {
			return err
		}
		defer a.Unlock()
		if err := r.Write(ctx, a, 10); err != nil {
			return fmt.Errorf("the first holder: %w", err)
		}
		old, err := r.Read(ctx, a)
		if err != nil {
			return err
		}
		asleep := Freeze(a)
		store.Expire("lock")
		b, err := locks[1].Mutex("lock").Lock(ctx)
		if err != nil {
			return err
		}
		defer b.Unlock()
		now, err := r.Read(ctx, b)
		if err != nil || now != 10 {
			return fmt.Errorf("the new holder reads %d, %w, want 10", now, err)
		}
		if err := r.Write(ctx, asleep, old-2); !errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("the late write, after the new holder's read: got %v, want ErrStale", err)
		}
		if err := r.Write(ctx, b, now-1); err != nil {
			return fmt.Errorf("the new holder's write: %w", err)
		}
		if err := r.Write(ctx, asleep, old-2); !errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("the late write, after the new holder's: got %v, want ErrStale", err)
		}
		if v, err := r.ReadShared(ctx, b); err != nil || v != 9 {
			return fmt.Errorf("at the end: got %d, %w, want 9", v, err)
		}
		return nil
	})
}

func withLock(ctx context.Context, f func(*memlock.Driver, [2]*pawl.Client) error) error {
	store := memlock.New()
	var locks [2]*pawl.Client
	for i, d := range []*memlock.Driver{store, store.Share()} {
		c := pawl.New(d)
		defer c.Close()
		locks[i] = c.With(pawl.Options{Logger: slog.New(slog.DiscardHandler)}) // losses are what is wanted here
	}
	return f(store, locks)
}

// torture lets workers of two clients add to a register under a lock that keeps breaking: now and then a holder's lease
// ends between its read and its write, without its knowledge, and it goes on when others have worked, or at once. It
// runs until enough was refused, so it needs a guard that refuses.
func torture(ctx context.Context, open func(string) Register) error {
	return withLock(ctx, func(store *memlock.Driver, locks [2]*pawl.Client) error {
		const workers, rounds = 6, 25
		r := open("r")
		var mu sync.Mutex
		written, refused := 0, 0
		count := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				written++
			} else {
				refused++
			}
		}
		work := func(n int, rng *rand.Rand) error {
			l, err := locks[n%2].Mutex("lock").Lock(ctx)
			if err != nil {
				return err
			}
			defer l.Unlock()
			mine := Freeze(l)
			v, err := r.Read(ctx, mine)
			if err == nil {
				think := time.Duration(rng.Int64N(int64(time.Millisecond)))
				switch rng.IntN(6) {
				case 0: // wakes up while a newer holder works
					store.Expire("lock")
					think *= 3
				case 1: // goes on while the newer holder comes
					store.Expire("lock")
					think = 0
				}
				time.Sleep(think)
				err = r.Write(ctx, mine, v+1)
			}
			if err != nil && !errors.Is(err, fence.ErrStale) {
				return err
			}
			count(err)
			return nil
		}
		seed := rand.Uint64()
		errs := make(chan error, workers)
		for n := range workers {
			go func() {
				rng := rand.New(rand.NewPCG(seed, uint64(n)))
				for range rounds {
					if err := work(n, rng); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		var failed error
		for range workers {
			failed = errors.Join(failed, <-errs)
		}
		if failed != nil {
			return fmt.Errorf("seed %d: %w", seed, failed)
		}
		l, err := locks[0].Mutex("lock").Lock(ctx)
		if err != nil {
			return err
		}
		defer l.Unlock()
		got, err := r.Read(ctx, l)
		if err != nil || got != written {
			return fmt.Errorf("seed %d: the register has %d, %w, after %d accepted additions (%d were refused)", seed, got, err, written, refused)
		}
		if refused == 0 {
			return fmt.Errorf("seed %d: %d additions, and none was refused", seed, written)
		}
		return nil
	})
}
