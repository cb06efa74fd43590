// Package clustertest tests package redislock over Redis Clusters.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}

func open(t testing.TB, url string, opts *redislock.Options) *redislock.Driver {
	t.Helper()
	d, err := redislock.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestConformance(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return redistest.Slottable(open(t, c.URL, nil)) },
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
		Stall: func(testing.TB) func() {
			for _, s := range c.Primaries {
				s.Stop()
			}
			return func() {
				for _, s := range c.Primaries {
					s.Cont()
				}
			}
		},
	})
}

func client(t testing.TB, c *redistest.Cluster, ttl time.Duration) *pawl.Client {
	t.Helper()
	return pawl.New(open(t, c.URL, nil)).With(pawl.Options{TTL: ttl})
}

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

// crowd are waiters in processes of their own. Each holds the name for a moment when it gets it.
type crowd struct {
	t            testing.TB
	wg           sync.WaitGroup
	inside, most atomic.Int64
	last         atomic.Int64 // token
	got          atomic.Int64
}

func gather(t testing.TB, c *redistest.Cluster, n int, name string, lease *pawl.Lease, ttl time.Duration) *crowd {
	w := &crowd{t: t}
	w.last.Store(lease.Token())
	for range n {
		d := client(t, c, ttl)
		w.wg.Go(func() {
			l := lock(t, d, name)
			w.most.Store(max(w.most.Load(), w.inside.Add(1)))
			if before := w.last.Swap(l.Token()); before >= l.Token() {
				t.Errorf("token %d follows %d", l.Token(), before)
			}
			w.inside.Add(-1)
			w.got.Add(1)
			if err := l.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
	return w
}

// passes waits until all had their turn, which is to take less than limit.
func (w *crowd) passes(limit time.Duration) {
	w.t.Helper()
	began := time.Now()
	w.wg.Wait()
	if took := time.Since(began); took > limit {
		w.t.Errorf("the waiters took %v: they were not woken", took)
	} else {
		w.t.Logf("%d waiters had their turn in %v", w.got.Load(), took.Round(time.Millisecond))
	}
	if w.most.Load() != 1 {
		w.t.Errorf("%d were inside at once", w.most.Load())
	}
}

// A slot moves to another node, key by key, under a holder and fifty waiters: nothing is lost.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	const ttl = 20 * time.Second
	lease := lock(t, client(t, c, ttl), "orders")
	w := gather(t, c, 50, "orders", lease, ttl)
	other := client(t, c, ttl)
	waiting := func() int {
		r, err := other.Inspect(t.Context(), "orders")
		if err != nil {
			return -1
		}
		return r.Waiters
	}
	eventually(t, "fifty waiters", func() bool { return waiting() == 50 })
	slot, from := c.Slot("orders")
	to := c.Primaries[0]
	if to == from {
		to = c.Primaries[1]
	}
	c.Migrate(slot, from, to, func() { time.Sleep(100 * time.Millisecond) })
	if err := lease.Err(); err != nil {
		t.Errorf("the lease after the move: %v", err)
	}
	if l, err := other.Mutex("orders").TryLock(t.Context()); err == nil {
		t.Errorf("granted beside the holder, with token %d after %d", l.Token(), lease.Token())
	}
	if n := waiting(); n != 50 {
		t.Errorf("%d waiters are there after the move, want 50", n)
	}
	if err := lease.Unlock(); err != nil {
		t.Errorf("Unlock after the move: %v", err)
	}
	w.passes(ttl)

	// A move that takes long: whoever asks meanwhile waits for its end, or is told that nothing was done.
	lease = lock(t, other, "orders")
	var unlock, grab error
	var wg sync.WaitGroup
	wg.Go(func() { c.Migrate(slot, to, from, func() { time.Sleep(300 * time.Millisecond) }) })
	time.Sleep(150 * time.Millisecond)
	wg.Go(func() { unlock = lease.Unlock() })
	wg.Go(func() {
		var l *pawl.Lease
		if l, grab = client(t, c, ttl).Mutex("orders").Lock(t.Context()); grab == nil {
			grab = l.Unlock()
		}
	})
	wg.Wait()
	if unlock != nil || grab != nil {
		t.Errorf("during a move: Unlock: %v; Lock: %v", unlock, grab)
	}
}

// The primary of a name is killed under its holder and waiters, and its replica takes over.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, true, 2000)
	const ttl = 30 * time.Second // longer than a fail-over on a busy machine
	lease := lock(t, client(t, c, ttl), "orders")
	w := gather(t, c, 5, "orders", lease, ttl)
	other := client(t, c, ttl)
	eventually(t, "five waiters", func() bool {
		r, err := other.Inspect(t.Context(), "orders")
		return err == nil && r.Waiters == 5
	})
	_, owner := c.Slot("orders")
	owner.InStep()
	owner.Kill()
	began := time.Now()
	eventually(t, "an answer by the replica", func() bool {
		l, err := other.Mutex("orders").TryLock(t.Context())
		if err == nil {
			t.Fatalf("granted beside the holder, with token %d after %d", l.Token(), lease.Token())
		}
		return errors.Is(err, pawl.ErrHeld)
	})
	t.Logf("the replica answered after %v", time.Since(began).Round(10*time.Millisecond))
	if err := lease.Err(); err != nil {
		t.Errorf("the lease after the fail-over: %v", err)
	}
	if err := lease.Unlock(); err != nil {
		t.Errorf("Unlock after the fail-over: %v", err)
	}
	w.passes(ttl)
}

// A node that does not answer delays nobody whose names are at the others.
func TestFrozenNode(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	d := client(t, c, 10*time.Second)
	names := map[*redistest.Server]string{}
	for i := 0; len(names) < 3; i++ {
		name := fmt.Sprint("orders", i)
		_, owner := c.Slot(name)
		names[owner] = name
	}
	for _, name := range names {
		lock(t, d, name).Unlock()
	}
	frozen := c.Primaries[1]
	frozen.Stop()
	defer frozen.Cont()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	stuck := make(chan error, 1)
	wg.Go(func() {
		_, err := d.Mutex(names[frozen]).Lock(ctx)
		stuck <- err
	})
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	for owner, name := range names {
		if owner == frozen {
			continue
		}
		for range 20 {
			if err := d.Mutex(name).Do(ctx, func(context.Context) error { return nil }); err != nil {
				t.Fatalf("a name at a node that works: %v", err)
			}
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("names at nodes that work took %v", took)
	}
	cancel()
	began = time.Now()
	wg.Wait()
	if err := <-stuck; err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("Lock at the frozen node: %v, %v after its context had ended", err, time.Since(began))
	}
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// Clients of another make are woken whether they listen to plain messages, at any node, or to sharded ones; and they wake
// pawl's waiters by either.
func TestPeers(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{c.Primaries[0].Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	do := func(args ...string) {
		t.Helper()
		cmd := raw.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()
		if err := raw.Do(t.Context(), cmd).Error(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	d := client(t, c, 30*time.Second)
	const channel = "redisson_lock__channel:{orders}"

	heard := map[string]chan string{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	listen := func(what string, c rueidis.Client, sharded bool) {
		t.Helper()
		ch, on := make(chan string, 10), make(chan struct{}, 10)
		heard[what] = ch
		cmd := c.B().Subscribe().Channel(channel).Build()
		if sharded {
			cmd = c.B().Ssubscribe().Channel(channel).Build()
		}
		wg.Go(func() {
			hook := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { on <- struct{}{} })
			c.Receive(hook, cmd, func(m rueidis.PubSubMessage) { ch <- m.Message })
		})
		select {
		case <-on:
		case <-time.After(20 * time.Second):
			t.Fatalf("no subscription at %s", what)
		}
	}
	for addr, node := range raw.Nodes() {
		listen("plain at "+addr, node, false)
	}
	listen("sharded", raw, true)
	lock(t, d, "orders").Unlock()
	for what, ch := range heard {
		select {
		case m := <-ch:
			if m != "0" {
				t.Errorf("%s heard %q, want 0", what, m)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s did not hear of a release", what)
		}
	}
	stop()
	wg.Wait()

	for _, publish := range []string{"PUBLISH", "SPUBLISH"} {
		do("HSET", "orders", "0a0b:1", "1") // as a Java client holds it
		do("PEXPIRE", "orders", "60000")
		got := make(chan *pawl.Lease, 1)
		waiter := client(t, c, 30*time.Second)
		go func() {
			l, _ := waiter.Mutex("orders").Lock(t.Context())
			got <- l
		}()
		eventually(t, "a waiter", func() bool {
			r, err := d.Inspect(t.Context(), "orders")
			return err == nil && r.Waiters == 1
		})
		time.Sleep(time.Second) // its subscriptions
		do("DEL", "orders")
		if publish == "PUBLISH" { // at whatever node
			for _, node := range raw.Nodes() {
				if err := node.Do(t.Context(), node.B().Publish().Channel(channel).Message("0").Build()).Error(); err != nil {
					t.Fatal(err)
				}
				break
			}
		} else {
			do("SPUBLISH", channel, "0")
		}
		select {
		case l := <-got:
			l.Unlock()
		case <-time.After(20 * time.Second):
			t.Fatalf("%s did not wake the waiter", publish)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	single := redistest.Start(t)
	for _, x := range []struct{ url, want string }{
		{"redis+cluster://" + single.Addr, "single server"},
		{"redis+cluster://" + single.Addr + "," + single.Addr, "single server"},
		{c.URL + "/3", "one database"},
		{"redis+cluster://worker:s3same@" + c.Primaries[0].Addr, "wrong user name or password"},
		{"redis+cluster://worker:s3same@" + c.Primaries[0].Addr + ",", "host number 2"},
		{"redis://" + c.Primaries[0].Addr, "write redis+cluster://"},
	} {
		d, err := redislock.Open(t.Context(), x.url, nil)
		if err == nil {
			d.Close()
			t.Errorf("Open of %q should fail with %q", x.url, x.want)
			continue
		}
		if !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("Open of %q: %v; it should say %q, and no password", x.url, err, x.want)
		}
	}
	d := open(t, c.URL, nil)
	for _, name := range []string{"}", "{}", "{}a", "a}b", "a{b", "{", "}{a}"} {
		_, err := d.Enter(t.Context(), driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: "test:1", Permits: 1,
			TTL: time.Second}, Notify: func(driver.Signal) {}})
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "braces") {
			t.Errorf("%q, which no cluster can slot: %v", name, err)
		}
	}
	if _, _, err := d.Incarnation(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Incarnation of a cluster: %v", err)
	}
}

// The ACL in the package documentation is enough on every node.
func TestDocumentedACL(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	acl := redistest.DocumentedACL(t, "../doc.go", "in a cluster")
	for _, s := range c.Primaries {
		s.Do(append([]string{"ACL", "SETUSER", "pawl", "reset", "on", ">s3same", "~*"}, acl...)...)
	}
	url := strings.Replace(c.URL, "://", "://pawl:s3same@", 1)
	d := open(t, url, nil)
	one, two := pawl.New(d), pawl.New(open(t, url, nil))
	for i := range 6 { // at all nodes
		name := fmt.Sprint("orders", i)
		lease := lock(t, one, name)
		got := make(chan error, 1)
		go func() { got <- two.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }) }()
		eventually(t, "a waiter", func() bool {
			r, err := d.Inspect(t.Context(), name)
			return err == nil && r.Waiters == 1
		})
		lease.Unlock()
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	lock(t, one, "held")
	n := 0
	for _, err := range d.List(t.Context(), "held") {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d names are listed, want 1", n)
	}
	for _, s := range c.Primaries {
		if log := s.Do("ACL", "LOG"); strings.Contains(log, "pawl") {
			t.Errorf("denied: %s", log)
		}
	}
}
