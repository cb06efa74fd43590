// Programs that a user of pawl might write, numbered as in the notes on the API that they come from; those that need a SQL
// database are in module torture.
package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

// bubble runs a program in fake time over a fresh store; clients made from the store contend like processes.
func bubble(t *testing.T, f func(t *testing.T, store *memlock.Driver, locks *pawl.Client)) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		locks := pawl.New(store)
		f(t, store, locks)
		if err := locks.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func want(t *testing.T, what string, got, exp any) {
	t.Helper()
	if got != exp {
		t.Errorf("%s: got %v, want %v", what, got, exp)
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, x := range targets {
		if !errors.Is(err, x) {
			t.Errorf("got %v, want it to match %v", err, x)
		}
	}
}

// 01. Flash sale: who does not get the lock leaves at once.
// design: locks.Mutex("stock:"+id, nil).TryLock(ctx): the nil says nothing.
// Mistake made easy: `if err != nil { soldOut() }` turns a dead store into "sold out". No signature cures it without a
// bool; the doc snippet must show both branches, and vet must flag an err that is not told apart after TryLock.
func Test01FlashSale(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		stock, sold, busy := 10, 0, 0
		buy := func(ctx context.Context) (int, error) {
			lease, err := locks.Mutex("stock:1001").TryLock(ctx)
			if errors.Is(err, pawl.ErrHeld) {
				return http.StatusTooManyRequests, nil
			}
			if err != nil {
				return http.StatusServiceUnavailable, err
			}
			defer lease.Unlock()
			if stock == 0 {
				return http.StatusGone, nil
			}
			s := stock
			time.Sleep(time.Millisecond)
			stock = s - 1
			return http.StatusOK, nil
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Microsecond)
				code, err := buy(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				switch code {
				case http.StatusOK:
					sold++
				case http.StatusTooManyRequests:
					busy++
				}
			})
		}
		wg.Wait()
		want(t, "sold", sold, 10)
		if busy == 0 {
			t.Error("nobody was turned away")
		}
		store.Break(errors.New("connection refused"))
		code, _ := buy(t.Context())
		want(t, "store down", code, http.StatusServiceUnavailable)
		store.Break(nil)
	})
}

// 02. A cron job on one of three nodes, whatever the cron library.
// Right at once: TryDo takes the existing func(ctx) error. design's Do(ctx, func(ctx, *Lease)) needs a closure around it.
// Mistake: a 1 ms job frees the name before the other nodes' clocks tick: MinHold. The name is only found by reading;
// hence Schedule, whose period is a required argument.
func Test02CronOneNode(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, _ *pawl.Client) {
		var runs atomic.Int32
		sendInvoices := func(ctx context.Context) error { runs.Add(1); return nil }
		cron := pawl.Options{MinHold: 30 * time.Second, MaxHold: 10 * time.Minute}
		var wg sync.WaitGroup
		for node := range 3 {
			wg.Go(func() {
				locks := pawl.New(store.Share()).With(cron)
				defer locks.Close()
				time.Sleep(time.Duration(node) * 200 * time.Millisecond) // clocks differ
				for range 4 {
					err := locks.Mutex("cron:invoices").TryDo(t.Context(), sendInvoices)
					if err != nil && !errors.Is(err, pawl.ErrHeld) {
						t.Error(err)
					}
					time.Sleep(time.Minute)
				}
			})
		}
		wg.Wait()
		want(t, "runs", runs.Load(), int32(4))
	})
}

// 03. A function that locks calls another that takes the same lock.
// Right with Do (ctx is shadowed). With Lock the mistake is to keep passing the old ctx: it waits for itself. pawl cannot
// see goroutines, but it sees that the holder is a lease of this client and says so in the error.
func Test03Reentry(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		acct := func() *pawl.Mutex { return locks.Mutex("acct:7") }
		audit := func(ctx context.Context) error { return acct().Do(ctx, func(context.Context) error { return nil }) }
		if err := acct().Do(t.Context(), audit); err != nil {
			t.Fatal(err)
		}
		want(t, "store round trips", store.Calls("Try"), 1)

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		lease, _ := acct().Lock(ctx)
		defer lease.Unlock()
		err := audit(ctx) // the mistake: should be lease.Context(ctx)
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "Lease.Context") {
			t.Errorf("the error does not help: %v", err)
		}
		ctx = lease.Context(t.Context())
		inner, err := acct().Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "same token", inner.Token(), lease.Token())
		inner.Unlock()
		wantIs(t, inner.Unlock(), pawl.ErrNotHeld) // a handle counts once: the outer hold survives a double unlock
		want(t, "outer", lease.Err(), error(nil))
	})
}

// 04. Work with a deadline. Do(ctx) means: wait and work end with ctx. That is what everybody expects of it.
func Test04Deadline(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		err := locks.Mutex("report").Do(ctx, func(ctx context.Context) error {
			select {
			case <-time.After(time.Hour):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		wantIs(t, err, context.DeadlineExceeded)
		want(t, "took", time.Since(start), 5*time.Second)
		l, err := locks.Mutex("report").TryLock(t.Context()) // given back although ctx has ended
		want(t, "free", err, error(nil))
		l.Unlock()
	})
}

// 05. HTTP handler. design: lease.Context() without parent has to choose. Child of Lock's ctx: a wait limit kills the
// work (21). Not a child: the client's disconnect, the request's deadline and its trace are gone and, with renewal on, a
// hung call holds the lock for ever. Context(parent) makes the reader see which; `lease.Context()` does not compile.
func Test05HTTPHandler(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		charged := make(chan error, 1)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lease, err := locks.Mutex("cart:" + r.PathValue("id")).Lock(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			defer lease.Unlock()
			ctx := lease.Context(r.Context())
			select {
			case <-ctx.Done():
				charged <- context.Cause(ctx)
			case <-time.After(time.Minute):
				charged <- nil
			}
		})
		ctx, hangUp := context.WithCancel(t.Context())
		r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
		r.SetPathValue("id", "9")
		time.AfterFunc(time.Second, hangUp)
		h.ServeHTTP(httptest.NewRecorder(), r)
		wantIs(t, <-charged, context.Canceled)
		i, _ := locks.Inspect(t.Context(), "cart:9")
		want(t, "holders", len(i.Holders), 0)
	})
}

// 06. A long job that must not hold for ever. MaxHold ends the context, stops renewing, frees nothing by itself while
// fn may still write; others get in after MaxHold + TTL at most, or as soon as fn returns.
func Test06MaxHold(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		long := locks.With(pawl.Options{MaxHold: time.Hour})
		start := time.Now()
		err := long.Mutex("rebuild").Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			want(t, "stopped after", time.Since(start), time.Hour)
			return ctx.Err()
		})
		lost, ok := errors.AsType[*pawl.LostError](err)
		if !ok || lost.Reason != pawl.TooLong {
			t.Errorf("got %v", err)
		}
		// a function that ignores its context
		go long.Mutex("stuck").Do(t.Context(), func(context.Context) error { time.Sleep(3 * time.Hour); return nil })
		synctest.Wait()
		start = time.Now()
		other := pawl.New(store.Share())
		lease, err := other.Mutex("stuck").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > time.Hour+30*time.Second {
			t.Errorf("got in after %v", d)
		}
		lease.Unlock()
		other.Close()
		time.Sleep(3 * time.Hour)
	})
}

// 10. At most five renders at once, in the whole fleet. Same four verbs as Mutex; Weight for heavy ones. With
// Acquire(ctx, n) the n would be the first thing to get wrong (limit and weight side by side in two calls).
func Test10Semaphore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		slots := locks.Semaphore("render", 5)
		var now, most atomic.Int32
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				err := slots.Do(t.Context(), func(ctx context.Context) error {
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(time.Second)
					now.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want(t, "most", most.Load(), int32(5))
		big, err := slots.Weight(4).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = slots.Weight(2).TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		_, err = locks.Semaphore("render", 6).TryLock(t.Context())
		wantIs(t, err, pawl.ErrMismatch)
		big.Unlock()
		_, err = slots.Weight(6).TryLock(t.Context())
		want(t, "6 of 5 is refused at once", err != nil && !errors.Is(err, pawl.ErrHeld), true)
	})
}

// 11. Read-mostly configuration: sync's names (RLock, TryRLock, RLocker), guessed right the first time.
// Mistake: upgrading. Refused at once, not a self-deadlock.
func Test11ReadMostly(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		cfg := locks.RWMutex("config")
		a, err := cfg.RLock(t.Context())
		b, err2 := cfg.RLock(t.Context())
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		_, err = cfg.TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		_, err = cfg.Lock(a.Context(t.Context()))
		wantIs(t, err, pawl.ErrMismatch)
		a.Unlock()
		b.Unlock()
		err = cfg.Do(t.Context(), func(ctx context.Context) error { // write, and read inside
			return cfg.RLocker().Do(ctx, func(context.Context) error { return nil })
		})
		want(t, "read inside write", err, error(nil))
	})
}

// 12. Lock here, unlock in another goroutine. A hold is a value: nothing to think about.
func Test12UnlockElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		jobs := make(chan *pawl.Lease)
		done := make(chan struct{})
		go func() {
			for l := range jobs {
				time.Sleep(time.Second)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
			close(done)
		}()
		for range 3 {
			l, err := locks.Mutex("printer").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			jobs <- l
		}
		close(jobs)
		<-done
	})
}

// 13. The lease is lost in the middle. Do says so even if fn noticed nothing and answered nil. With Lock, `defer
// lease.Unlock()` throws the news away: hence the second pattern, as with sql.Tx and os.File.
func Test13Lost(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		err := locks.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			store.Expire("x")
			return nil // deaf
		})
		wantIs(t, err, pawl.ErrLost)

		work := func() error {
			lease, err := locks.Mutex("x").Lock(t.Context())
			if err != nil {
				return err
			}
			defer lease.Unlock()
			time.AfterFunc(time.Second, func() { store.Expire("x") })
			for {
				select {
				case <-lease.Done():
					return lease.Err()
				case <-time.After(300 * time.Millisecond):
				}
			}
		}
		wantIs(t, work(), pawl.ErrLost)

		tail := func() error {
			lease, err := locks.Mutex("x").Lock(t.Context())
			if err != nil {
				return err
			}
			defer lease.Unlock()
			store.Expire("x")
			return lease.Unlock()
		}
		wantIs(t, tail(), pawl.ErrLost)

		// the store is gone for good: lost before the TTL is over, by our own clock
		lease, err := locks.Mutex("y").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		store.Break(io.ErrUnexpectedEOF)
		<-lease.Done()
		if d := time.Since(start); d >= 30*time.Second {
			t.Errorf("told after %v", d)
		}
		wantIs(t, lease.Err(), pawl.ErrLost, io.ErrUnexpectedEOF)
		store.Break(nil)
		lease.Unlock()
	})
}

// 14. Who holds it? From the error, from Inspect, as a list; and taking it from the dead.
func Test14WhoHolds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ci := pawl.New(store.Share()).With(pawl.Options{Holder: "ci-3", Note: "deploy #812"})
		lease, _ := ci.Mutex("deploy:prod").Lock(t.Context())
		_, err := locks.Mutex("deploy:prod").TryLock(t.Context())
		if held, ok := errors.AsType[*pawl.HeldError](err); !ok || held.Holder.Label != "ci-3" {
			t.Errorf("got %v", err)
		}
		t.Log(err)
		names := []string{}
		for i, err := range locks.List(t.Context(), "deploy:") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, i.Name)
		}
		want(t, "names", strings.Join(names, ","), "deploy:prod")
		i, _ := locks.Inspect(t.Context(), "deploy:prod")
		if err := locks.Steal(t.Context(), "deploy:prod", i.Holders[0]); err != nil {
			t.Fatal(err)
		}
		mine, err := locks.Mutex("deploy:prod").TryLock(t.Context())
		if err != nil || mine.Token() <= lease.Token() {
			t.Fatal(err, mine.Token(), lease.Token())
		}
		wantIs(t, locks.Steal(t.Context(), "deploy:prod", i.Holders[0]), pawl.ErrNotHeld) // the old hold, not the new
		time.Sleep(11 * time.Second)                                                      // next renewal
		wantIs(t, lease.Err(), pawl.ErrLost)
		lease.Unlock()
		mine.Unlock()
		ci.Close()
	})
}

// Sale is user code under test in 15.
type Sale struct {
	Locks *pawl.Client
	Stock int
}

func (s *Sale) Buy(ctx context.Context) error {
	return s.Locks.With(pawl.Options{Wait: time.Second}).Mutex("stock").Do(ctx, func(ctx context.Context) error {
		time.Sleep(400 * time.Millisecond)
		s.Stock--
		return nil
	})
}

// 15. Testing user code: a concrete *pawl.Client over memlock; no interface, no mock; time is fake.
func Test15UserTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sale{Locks: pawl.New(memlock.New()), Stock: 10}
		var wg sync.WaitGroup
		var waited atomic.Int32
		for range 5 {
			wg.Go(func() {
				if errors.Is(s.Buy(t.Context()), pawl.ErrHeld) {
					waited.Add(1)
				}
			})
		}
		wg.Wait()
		want(t, "stock", s.Stock, 7)
		want(t, "gave up", waited.Load(), int32(2))
		// no Close: nothing is held, so nothing runs, and the bubble ends
	})
}

// 16. Passing a lease to a goroutine: pass lease.Context. It ends with the lease, so the goroutine cannot go on guarded
// after Unlock. Surprise to document: rows, bodies and calls made with it die at Unlock (as with errgroup after Wait).
func Test16PassToGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		lease, _ := locks.Mutex("feed").Lock(t.Context())
		got := make(chan error)
		go func(ctx context.Context) { <-ctx.Done(); got <- context.Cause(ctx) }(lease.Context(t.Context()))
		time.Sleep(time.Minute)
		lease.Unlock()
		wantIs(t, <-got, pawl.ErrNotHeld)
		// detached on purpose: keeps values, loses the end; a nested Lock is then a stranger, not a ghost re-entry
		lease, _ = locks.Mutex("feed").Lock(t.Context())
		loose := context.WithoutCancel(lease.Context(t.Context()))
		lease.Unlock()
		again, err := locks.Mutex("feed").Lock(loose)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "fresh hold", again.Token() > lease.Token(), true)
		again.Unlock()
	})
}

// 17. Graceful shutdown. design: "Close releases what it holds": under a worker that is still writing, that is a second
// holder made by ourselves. Close must end contexts and wait for Unlock (sql.DB.Close waits too).
func Test17Shutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		locks, other := pawl.New(store.Share()), pawl.New(store.Share())
		var writing atomic.Bool
		worker := make(chan error, 1)
		go func() {
			worker <- locks.Mutex("w").Do(t.Context(), func(ctx context.Context) error {
				writing.Store(true)
				<-ctx.Done()
				time.Sleep(2 * time.Second) // the last page
				writing.Store(false)
				return nil
			})
		}()
		synctest.Wait()
		go other.Mutex("w").Do(t.Context(), func(context.Context) error {
			if writing.Load() {
				t.Error("two writers")
			}
			return nil
		})
		waiter := make(chan error, 1)
		go func() { _, err := locks.Mutex("w").Lock(t.Context()); waiter <- err }()
		synctest.Wait()
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		err := <-worker
		wantIs(t, err, pawl.ErrLost, pawl.ErrClosed)
		wantIs(t, <-waiter, pawl.ErrClosed)
		_, err = locks.Mutex("w").TryLock(t.Context())
		wantIs(t, err, pawl.ErrClosed)
		other.Close()
		// a leaked lease: Close says so after the trust deadline, and frees nothing
		leaky := pawl.New(store.Share())
		leaky.Mutex("leak").Lock(t.Context())
		err = leaky.Close()
		if err == nil || !strings.Contains(err.Error(), `"leak"`) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// 18. errgroup. design: everybody who carries the lease's context re-enters, so two goroutines of one group that call a
// function which locks "to be safe" run at once: exclusion lost in silence. With one nested hold at a time (Moss 1981:
// all other holders must be ancestors) siblings exclude each other and nested calls still pass.
func Test18Errgroup(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		var in, most atomic.Int32
		addLine := func(ctx context.Context) error {
			return locks.Mutex("doc:1").Do(ctx, func(ctx context.Context) error {
				most.Store(max(most.Load(), in.Add(1)))
				time.Sleep(10 * time.Millisecond)
				in.Add(-1)
				return locks.Mutex("doc:1").Do(ctx, func(context.Context) error { return nil }) // deeper still
			})
		}
		err := locks.Mutex("doc:1").Do(t.Context(), func(ctx context.Context) error {
			var g sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				g.Go(func() { errs[i] = addLine(ctx) })
			}
			g.Wait()
			return errors.Join(errs...)
		})
		want(t, "err", err, error(nil))
		want(t, "at once", most.Load(), int32(1))
	})
}

// 19. Middleware: one request per user at a time. r.WithContext carries the lease; handlers re-enter.
func Test19Middleware(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		exclusive := func(next http.Handler) http.Handler {
			locks := locks.With(pawl.Options{Wait: 500 * time.Millisecond, Group: "user:{id}"})
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := locks.Mutex("user:"+r.Header.Get("User")).Do(r.Context(), func(ctx context.Context) error {
					next.ServeHTTP(w, r.WithContext(ctx))
					return nil
				})
				switch {
				case errors.Is(err, pawl.ErrHeld):
					http.Error(w, "one at a time", http.StatusConflict)
				case errors.Is(err, pawl.ErrLost): // the response is written already: log, metrics
				case err != nil:
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
				}
			})
		}
		h := exclusive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := locks.Mutex("user:u1").Do(r.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}))
		codes := make(chan int, 2)
		for range 2 {
			go func() {
				w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
				r.Header.Set("User", "u1")
				h.ServeHTTP(w, r.WithContext(t.Context()))
				codes <- w.Code
			}()
		}
		want(t, "codes", (<-codes)+(<-codes), http.StatusOK+http.StatusConflict)
	})
}

// 21. Wait at most 2 s, TTL 30 s. With Lock, a ctx with timeout does it, and must not shorten the work. With Do, the
// same idiom limits the work too: that is why Wait exists. design has no Wait.
func Test21Wait2s(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		wait, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		lease, err := locks.Mutex("x").Lock(wait)
		if err != nil {
			t.Fatal(err)
		}
		work := lease.Context(t.Context())
		time.Sleep(time.Hour)
		want(t, "work", work.Err(), error(nil))
		want(t, "lease", lease.Err(), error(nil))
		cancel()

		start := time.Now()
		quick := locks.With(pawl.Options{Wait: 2 * time.Second})
		err = quick.Mutex("x").Do(t.Context(), func(context.Context) error { return nil })
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "waited", time.Since(start), 2*time.Second)
		lease.Unlock()
		err = quick.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		want(t, "work outlives the wait limit", err, error(nil))
	})
}

// 22. Panic inside Do: released, and the panic goes on. Also t.FailNow (Goexit).
func Test22Panic(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		func() {
			defer func() { want(t, "panic", recover(), any("boom")) }()
			locks.Mutex("p").Do(t.Context(), func(context.Context) error { panic("boom") })
		}()
		l, err := locks.Mutex("p").TryLock(t.Context())
		want(t, "free", err, error(nil))
		l.Unlock()
	})
}

// 23. Coming from elsewhere.
//
//	redsync   m := rs.NewMutex("x", redsync.WithExpiry(8*time.Second)); m.LockContext(ctx); defer m.UnlockContext(ctx)
//	bsm       l, err := locker.Obtain(ctx, "x", 8*time.Second, nil); defer l.Release(ctx); l.Refresh(ctx, …) in a loop
//	etcd      s, _ := concurrency.NewSession(cli); m := concurrency.NewMutex(s, "x"); m.Lock(ctx); defer m.Unlock(ctx); <-s.Done()
//	Redisson  lock.tryLock(10, 30, SECONDS)                       -> With(Options{Wait: 10s, TTL: 30s}), and it IS renewed
//	x/sync    sem.Acquire(ctx, 2); defer sem.Release(2)           -> Semaphore("s", 5).Weight(2).Lock(ctx); defer l.Unlock()
//
// What they type by habit and what happens: lease.Unlock(ctx), lease.Release(ctx), m.Unlock(): do not compile. TTL as
// "how long my work takes": harmless, since it is renewed.
func Test23Migrate(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ctx := t.Context()
		// redsync, bsm: a fixed term and no renewal, if that is really wanted
		fixed := locks.With(pawl.Options{TTL: 8 * time.Second, NoKeepalive: true})
		l, err := fixed.Mutex("x").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		wantIs(t, l.Unlock(), pawl.ErrLost) // they answer "lock not held" here, or nothing
		// etcd: <-session.Done()
		l, _ = locks.Mutex("x").Lock(ctx)
		select {
		case <-l.Done():
			t.Error("ended")
		default:
		}
		l.Unlock()
	})
}

// 27. Habits from sync: a zero Mutex and a nil Lease answer, they do not crash. (A nil *Mutex crashes, as in sync.)
func Test27NilAndZero(t *testing.T) {
	_, err := new(pawl.Mutex).TryLock(t.Context())
	want(t, "zero mutex", err != nil, true)
	var l *pawl.Lease
	wantIs(t, l.Unlock(), pawl.ErrNotHeld)
	wantIs(t, context.Cause(l.Context(t.Context())), pawl.ErrNotHeld)
	<-l.Done()
	locks := pawl.New(memlock.New())
	_, err = locks.With(pawl.Options{TTL: 30}).Mutex("x").Lock(t.Context()) // 30 ns: a unit is missing
	want(t, "unit slip", err != nil, true)
	t.Log(err)
	_, err = locks.Mutex("").Lock(t.Context())
	want(t, "empty name", err != nil, true)
	fmt.Fprint(io.Discard, err)
}

// 28. Locked by the web process, worked on and unlocked by a queue worker (asked for by redis-py, redsync, bsm users).
func Test28Detach(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, web *pawl.Client) {
		lease, err := web.Mutex("upload:5").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := lease.Detach()
		if err != nil {
			t.Fatal(err)
		}
		worker := pawl.New(store.Share())
		defer worker.Close()
		time.Sleep(20 * time.Second) // in the queue
		l, err := worker.Attach(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "token", l.Token(), lease.Token())
		time.Sleep(time.Hour)
		_, err = web.Mutex("upload:5").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		want(t, "unlock", l.Unlock(), error(nil))
		_, err = worker.Attach(t.Context(), ticket)
		wantIs(t, err, pawl.ErrNotHeld)
	})
}

// 29. TryDo, and a lock inside fn that is busy: errors.Is(err, ErrHeld) alone reads "skipped" where the job failed half
// way. HeldError.Name tells them apart; the doc of TryDo has to say so.
func Test29WhoseHeld(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		l, _ := locks.Mutex("inner").Lock(t.Context())
		err := locks.Mutex("job").TryDo(t.Context(), func(ctx context.Context) error {
			_, err := locks.Mutex("inner").TryLock(ctx)
			return err
		})
		wantIs(t, err, pawl.ErrHeld)
		held, _ := errors.AsType[*pawl.HeldError](err)
		want(t, "name", held.Name, "inner")
		l.Unlock()
	})
}
