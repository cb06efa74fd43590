package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// lock gets the lock, over the errors of a fail-over.
func lock(t testing.TB, c *pawl.Client, name string) *pawl.Lease {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		l, err := c.Mutex(name).Lock(t.Context())
		if err == nil {
			return l
		}
		if time.Now().After(end) {
			t.Fatalf("%q was not granted for a minute: %v", name, err)
		}
	}
}

const ttl = time.Minute // longer than a fail-over on a busy machine

// underWaiters lets processes wait behind a holder, has something happen, and wants all to get through, one at a time, with
// rising tokens, and woken.
func underWaiters(t *testing.T, n int, open func() redis.UniversalClient, happens func()) {
	t.Helper()
	with := func() *pawl.Client { return pawl.New(over(t, open(), nil)).With(pawl.Options{TTL: ttl}) }
	holder, watcher := with(), with()
	lease := lock(t, holder, "orders")
	var inside, most, last atomic.Int64
	last.Store(lease.Token())
	var wg sync.WaitGroup
	for range n {
		c := with()
		wg.Go(func() {
			l := lock(t, c, "orders")
			most.Store(max(most.Load(), inside.Add(1)))
			if before := last.Swap(l.Token()); before >= l.Token() {
				t.Errorf("token %d follows %d", l.Token(), before)
			}
			inside.Add(-1)
			if err := l.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
	eventually(t, "all wait", func() bool {
		r, err := watcher.Inspect(t.Context(), "orders")
		return err == nil && r.Waiters == n
	})
	happens()
	eventually(t, "an answer", func() bool {
		l, err := watcher.Mutex("orders").TryLock(t.Context())
		if err == nil {
			t.Fatalf("granted beside the holder, with token %d after %d", l.Token(), lease.Token())
		}
		return errors.Is(err, pawl.ErrHeld)
	})
	if err := lease.Err(); err != nil {
		t.Errorf("the lease did not outlive it: %v", err)
	}
	began := time.Now()
	if err := lease.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	wg.Wait()
	if took := time.Since(began); took > ttl/2 {
		t.Errorf("%d waiters took %v: they were not woken", n, took)
	} else {
		t.Logf("%d waiters had their turn in %v", n, took.Round(time.Millisecond))
	}
	if most.Load() != 1 {
		t.Errorf("%d were inside at once", most.Load())
	}
}

// The primary fails under a holder and under waiters. Killed; frozen for good, so that its connections look alive; frozen and
// come back as a replica.
func TestFailoverOverSentinels(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "frozen", "frozen and back"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := redistest.NewSentinel(t)
			underWaiters(t, 5, func() redis.UniversalClient { return sentinels(t, s) }, func() {
				old := s.Primary()
				old.InStep()
				if how == "killed" {
					old.Kill()
				} else {
					old.Stop()
				}
				if s.Primary() == old {
					t.Error("there was no fail-over")
				}
				if how == "frozen and back" {
					old.Cont()
					// Until a Sentinel has told it, it takes requests as a primary, and loses what they did.
					eventually(t, "a replica of the new primary", func() bool { return old.Is("slave") })
				}
			})
		})
	}
}

func TestFailoverInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, true, 2000)
	underWaiters(t, 5, func() redis.UniversalClient { return nodes(t, c) }, func() {
		_, owner := c.Slot("orders")
		owner.InStep()
		owner.Kill()
	})
}

func TestSlotMigration(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	slot, from := c.Slot("orders")
	to := c.Primaries[0]
	if to == from {
		to = c.Primaries[1]
	}
	underWaiters(t, 10, func() redis.UniversalClient { return nodes(t, c) }, func() {
		c.Migrate(slot, from, to, func() { time.Sleep(100 * time.Millisecond) })
	})
	// Whoever asks during a move waits for its end.
	d := over(t, nodes(t, c), nil)
	locks := pawl.New(d)
	lease := lock(t, locks, "orders")
	var unlock, grab error
	var wg sync.WaitGroup
	wg.Go(func() { c.Migrate(slot, to, from, func() { time.Sleep(300 * time.Millisecond) }) })
	time.Sleep(150 * time.Millisecond)
	wg.Go(func() { unlock = lease.Unlock() })
	wg.Go(func() {
		grab = pawl.New(over(t, nodes(t, c), nil)).Mutex("orders").Do(t.Context(), func(context.Context) error { return nil })
	})
	wg.Wait()
	if unlock != nil || grab != nil {
		t.Errorf("during a move: Unlock: %v; Lock: %v", unlock, grab)
	}
}

// A node that does not answer delays nobody whose names are at the others.
func TestFrozenNode(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	locks := pawl.New(over(t, nodes(t, c), nil))
	names := map[*redistest.Server]string{}
	for i := 0; len(names) < 3; i++ {
		name := fmt.Sprint("orders", i)
		_, owner := c.Slot(name)
		names[owner] = name
	}
	for _, name := range names {
		lock(t, locks, name).Unlock()
	}
	frozen := c.Primaries[1]
	frozen.Stop()
	defer frozen.Cont()
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan error, 1)
	go func() {
		_, err := locks.Mutex(names[frozen]).Lock(ctx)
		stuck <- err
	}()
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	for owner, name := range names {
		for range 20 {
			if owner == frozen {
				break
			}
			if err := locks.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatalf("a name at a node that works: %v", err)
			}
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("names at nodes that work took %v", took)
	}
	began = time.Now()
	cancel()
	if err := <-stuck; !errors.Is(err, context.Canceled) || time.Since(began) > 5*time.Second {
		t.Errorf("Lock at the frozen node: %v, %v after its context had ended", err, time.Since(began))
	}
}

// Options.Replicas: WAIT goes by the connection that asked, also with a pool of one.
func TestReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	eventually(t, "a replica in step", func() bool { return strings.Contains(primary.Do("INFO", "replication"), "state=online") })
	one := over(t, single(t, primary, redis.Options{PoolSize: 1}), &redislock.Options{Replicas: 1})
	lease := lock(t, pawl.New(one), "orders")
	if r, err := one.Inspect(t.Context(), "orders"); err != nil || len(r.Holds) != 1 {
		t.Errorf("Inspect: %+v, %v", r, err)
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
	two := pawl.New(over(t, single(t, primary, redis.Options{}), &redislock.Options{Replicas: 2}))
	_, err := two.Mutex("invoices").TryLock(t.Context())
	if err == nil || !strings.Contains(err.Error(), "only 1 of 2 replicas") || !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("with one of two replicas: %v", err)
	}
	if r, err := one.Inspect(t.Context(), "invoices"); err != nil || len(r.Holds) > 0 {
		t.Errorf("after an acquisition that was not confirmed: %+v, %v", r, err)
	}
}

// Whatever pool and hooks do, scripts that the server forgets are sent again, and a dead subscription is made again.
func TestServerForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	raw := single(t, s, redis.Options{})
	a, b := pawl.New(over(t, single(t, s, redis.Options{}), nil)), pawl.New(over(t, single(t, s, redis.Options{}), nil))
	for range 5 {
		lease := lock(t, a, "orders")
		got := make(chan error, 1)
		go func() { got <- b.Mutex("orders").Do(t.Context(), func(context.Context) error { return nil }) }()
		eventually(t, "a waiter", func() bool {
			r, err := a.Inspect(t.Context(), "orders")
			return err == nil && r.Waiters == 1
		})
		raw.ScriptFlush(t.Context())
		raw.ClientKillByFilter(t.Context(), "TYPE", "pubsub")
		eventually(t, "a new subscription", func() bool {
			return strings.Contains(raw.ClientList(t.Context()).Val(), " sub=1 ")
		})
		lease.Unlock()
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}
