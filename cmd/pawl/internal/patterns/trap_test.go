package patterns

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

type work = func(context.Context) error

var errWork = errors.New("the work failed")

func nothing(context.Context) error { return nil }

func failing(context.Context) error { return errWork }

// during runs first, and second while the first's work is under way; it answers second's error, then first's.
func during(t *testing.T, first func(work) error, second func() error) (error, error) {
	t.Helper()
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- first(func(context.Context) error {
			close(in)
			<-out
			return nil
		})
	}()
	select {
	case <-in:
	case err := <-done:
		t.Fatalf("the first did not come to its work: %v", err)
	}
	err := second()
	close(out)
	return err, <-done
}

func is(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// soon calls f until it answers nil.
func soon(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestTrap01OneLockForAll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	err, _ := during(t, func(w work) error { return payCoarse(ctx, "a", "17", w) }, func() error { return payCoarse(ctx, "b", "18", nothing) })
	is(t, "wrong: another order", err, errBusy) // though nobody works on it
	err, first := during(t, func(w work) error { return pay(ctx, "17", w) }, func() error { return pay(ctx, "18", nothing) })
	is(t, "right: another order", errors.Join(err, first), nil)
	err, _ = during(t, func(w work) error { return pay(ctx, "17", w) }, func() error { return pay(ctx, "17", nothing) })
	is(t, "right: the same order", err, pawl.ErrHeld)
}

func TestTrap02ShorterThanTheWork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	during(t, func(w work) error { return reportShort(ctx, "a", w) }, func() error {
		soon(t, "wrong: a second one gets in", func() error { return reportShort(ctx, "b", nothing) })
		return nil
	})
	err, first := during(t, func(w work) error { return report(ctx, w) }, func() error {
		time.Sleep(700 * time.Millisecond) // more than two TTLs
		return report(ctx, nothing)
	})
	if !errors.Is(first, pawl.ErrLost) { // a machine that stands still for a TTL loses the lease, and says so
		is(t, "right: a second one", err, pawl.ErrHeld)
		is(t, "right: the first", first, nil)
	}
}

func TestTrap03NotInFinally(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb.do(t, "DEL", "lock:import") // what an earlier run has leaked
	is(t, "wrong: the work", importLeaky(ctx, "a", failing), errWork)
	is(t, "wrong: the next", importLeaky(ctx, "b", nothing), errBusy) // for an hour
	is(t, "right: the work", importAll(ctx, failing), errWork)
	is(t, "right: the next", importAll(ctx, nothing), nil)
	func() {
		defer func() { recover() }()
		importAll(ctx, func(context.Context) error { panic("out of ink") })
	}()
	is(t, "right: after a panic", importAll(ctx, nothing), nil)
	gone, cancel := context.WithCancel(ctx)
	importAll(gone, func(context.Context) error { cancel(); return nil })
	is(t, "right: after its ctx has ended", importAll(ctx, nothing), nil)
}

func TestTrap04ResultNotChecked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	err, _ := during(t, func(w work) error { return shipBlind(ctx, "a", w) }, func() error { return shipBlind(ctx, "b", nothing) })
	is(t, "wrong: both ship", err, nil)
	err, first := during(t, func(w work) error { return ship(ctx, w) }, func() error { return ship(ctx, nothing) })
	is(t, "right: the second", err, errBusy)
	is(t, "right: the first", first, nil)

	// Who goes on without a lease has a context that has ended, and a guard that refuses.
	held, err := locks.Mutex("ship").Lock(ctx)
	is(t, "lock", err, nil)
	defer held.Unlock()
	none, _ := locks.Mutex("ship").TryLock(ctx)
	is(t, "the context of no lease", context.Cause(none.Context(ctx)), pawl.ErrNotHeld)
	is(t, "a guard, shown no lease", new(fence.Gate).Claim("ship", none), fence.ErrStale)
}

func TestTrap05DeletesAnothersLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb.do(t, "DEL", "lock:sync")
	var second, third error
	done := make(chan struct{})
	_, _ = during(t, func(w work) error { return syncRude(ctx, "a", w) }, func() error {
		soon(t, "the first one's key runs out", func() error {
			if rdb.there(t, "lock:sync") {
				return errBusy
			}
			return nil
		})
		ok, err := rdb.SetNX(ctx, "lock:sync", "b", time.Hour) // the second one works for long
		if !ok {
			second = errors.Join(err, errBusy)
		}
		go func() {
			defer close(done)
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && rdb.there(t, "lock:sync"); {
				time.Sleep(time.Millisecond)
			}
			third = syncRude(ctx, "c", nothing)
		}()
		return nil
	})
	<-done
	is(t, "wrong: the second, while the first still works", second, nil)
	is(t, "wrong: the third, while the second still works", third, nil)

	short := locks.With(pawl.Options{TTL: 200 * time.Millisecond, NoKeepalive: true})
	a, err := short.Mutex("sync").Lock(ctx)
	is(t, "lock", err, nil)
	b, err := locks.Mutex("sync").Lock(ctx) // gets it when a has run out
	is(t, "lock", err, nil)
	defer b.Unlock()
	is(t, "right: the first unlocks", a.Unlock(), pawl.ErrLost)
	is(t, "right: the third", syncAll(ctx, nothing), pawl.ErrHeld)
	is(t, "right: the second", b.Err(), nil)
}

func TestTrap06Failover(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	p, r := dial(t, primary), dial(t, replica)
	open := func(s *redistest.Server) *pawl.Client {
		d, err := redislock.Open(ctx, s.URL, nil)
		is(t, "open", err, nil)
		return pawl.New(d)
	}
	before := open(primary)
	defer before.Close()
	r.do(t, "REPLICAOF", "127.0.0.1", port(primary))
	soon(t, "the replica follows", func() error {
		if s, _ := r.do(t, "ROLE").ToArray(); len(s) > 3 {
			if state, _ := s[3].ToString(); state == "connected" {
				return nil
			}
		}
		return errBusy
	})
	r.do(t, "REPLICAOF", "127.0.0.1", "1") // the link breaks just before the locks are taken
	ok, err := p.SetNX(ctx, "lock:account", "a", time.Hour)
	is(t, "lock", err, nil)
	lease, err := before.Mutex("account").Lock(ctx)
	is(t, "lock", err, nil)
	defer lease.Unlock() // nobody answers that
	primary.Kill()
	r.do(t, "REPLICAOF", "NO", "ONE")
	again, err := r.SetNX(ctx, "lock:account", "b", time.Hour)
	if !ok || !again {
		t.Errorf("wrong: both have the lock: got %v and %v, %v", ok, again, err)
	}

	after := open(replica)
	defer after.Close()
	newer, err := after.Mutex("account").TryLock(ctx)
	is(t, "pawl's lock, too, is lost with the primary", err, nil)
	defer newer.Unlock()
	if lease.Err() != nil || newer.Token() <= lease.Token() {
		t.Errorf("tokens %d and then %d, the first lease %v: want it alive and the number to rise", lease.Token(), newer.Token(), lease.Err())
	}
	balance := 100
	withdrawTrusting(&balance, 100)
	withdrawTrusting(&balance, 100)
	if balance != -100 {
		t.Errorf("wrong: got %d, want an overdrawn account", balance)
	}
	var gate fence.Gate
	balance = 100
	is(t, "right: the newer holder", withdraw(&gate, newer, &balance, 100), nil)
	is(t, "right: the older holder", withdraw(&gate, lease, &balance, 100), fence.ErrStale)
	if balance != 0 {
		t.Errorf("right: got %d, want 0", balance)
	}
}

func TestTrap07NoTimeout(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	rdb.do(t, "SET", "lock:migrate", "a process that crashed")
	done := make(chan error, 1)
	go func() { done <- migrateForever(ctx, "b", nothing) }()
	select {
	case err := <-done:
		t.Errorf("wrong: it got in: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	end()
	<-done

	ctx = t.Context()
	crashed, err := locks.With(pawl.Options{TTL: 300 * time.Millisecond, NoKeepalive: true}).Mutex("migrate").Lock(ctx)
	is(t, "lock", err, nil)
	is(t, "right: after a crash", migrate(ctx, nothing), nil)
	crashed.Unlock()
	busy, err := locks.Mutex("migrate").Lock(ctx)
	is(t, "lock", err, nil)
	defer busy.Unlock()
	err = locks.With(pawl.Options{Wait: 50 * time.Millisecond}).Mutex("migrate").Do(ctx, nothing) // as migrate, but shorter
	is(t, "right: the wait is over", err, pawl.ErrHeld)
	is(t, "right: the wait is over", err, context.DeadlineExceeded)
}

func TestTrap08Polling(t *testing.T) {
	// Not parallel: it counts what the server is asked.
	asked := func(f func()) int64 {
		rdb.do(t, "CONFIG", "RESETSTAT")
		f()
		s, err := rdb.do(t, "INFO", "commandstats").ToString()
		is(t, "info", err, nil)
		return calls(s)
	}
	const waiters = 20
	crowd := func(f func(work) error) func() {
		return func() {
			var in atomic.Int32
			var wg sync.WaitGroup
			_, _ = during(t, f, func() error {
				for range waiters {
					wg.Go(func() { is(t, "a waiter", f(func(context.Context) error { in.Add(1); return nil }), nil) })
				}
				time.Sleep(time.Second)
				return nil
			})
			wg.Wait()
			if n := in.Load(); n != waiters {
				t.Errorf("%d of %d got in", n, waiters)
			}
		}
	}
	polling := asked(crowd(func(w work) error { return buildPolling(t.Context(), "x", w) }))
	events := asked(crowd(func(w work) error { return build(t.Context(), w) }))
	t.Logf("%d waiters for a second: polling asks %d times, pawl %d times", waiters, polling, events)
	if polling < 5*events {
		t.Errorf("polling asked %d times, pawl %d times: want far fewer", polling, events)
	}
}

func TestTrap09UncommittedAtUnlock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := openShop(t, "deferred")
	var stale int
	db.commits = func() { // the next holder is quicker than the commit
		db.commits = nil
		is(t, "the next holder", locks.Mutex("stock").TryDo(ctx, func(context.Context) error {
			stale = db.left(t)
			return nil
		}), nil)
	}
	is(t, "wrong: the sale", sellUncommitted(ctx, db), nil)
	if stale != 5 || db.left(t) != 4 {
		t.Errorf("wrong: the next holder read %d, and then there were %d: want 5 and 4", stale, db.left(t))
	}

	db = openShop(t, "immediate")
	db.commits = func() {
		is(t, "right: the next holder, before the commit", locks.With(pawl.Options{Wait: time.Millisecond}).Mutex("stock").TryDo(ctx, nothing), pawl.ErrHeld)
	}
	for range 5 {
		is(t, "right: a sale", sell(ctx, db), nil)
	}
	if n := db.left(t); n != 0 {
		t.Errorf("right: %d left, want 0", n)
	}
}
