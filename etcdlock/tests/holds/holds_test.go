// Package holds tests what the conformance suite cannot know of etcdlock: that a hold ends with its own TTL although its
// session lives on, that sessions and leases are not left behind, and that the driver ends all that it starts.
package holds

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

const patience = 20 * time.Second

// A hold without keepalive ends at its TTL, and not before, although another hold of the same session is renewed.
func TestNoKeepalive(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	d := suite.Open(t, c.URL, nil)
	locks := pawl.New(d)
	defer locks.Close()
	kept := locks.With(pawl.Options{TTL: 3 * time.Second})
	fixed := kept.With(pawl.Options{NoKeepalive: true})
	other := pawl.New(suite.Open(t, c.URL, nil))
	defer other.Close()
	for round := range 2 {
		a, err := kept.Mutex("kept").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		b, err := fixed.Mutex("fixed").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		trust := b.Deadline()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		next, err := other.Mutex("fixed").Lock(ctx)
		cancel()
		if err != nil {
			t.Fatalf("the name of a hold that nobody renews is not free: %v", err)
		}
		if now := time.Now(); now.Before(trust) {
			t.Errorf("the name was free %v before the trust in it ended", trust.Sub(now))
		}
		if !errors.Is(b.Err(), pawl.ErrLost) {
			t.Errorf("the old lease: %v", b.Err())
		}
		t.Logf("round %d: free after %v", round, time.Since(begun))
		if err := a.Err(); err != nil {
			t.Errorf("the lease that was renewed: %v", err)
		}
		next.Unlock()
		b.Unlock()
		if err := a.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// The TTL that counts is the one that the cluster granted: at least two seconds, whole seconds, rounded up.
func TestGrantedTTL(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	d := suite.Open(t, c.URL, nil)
	for i, want := range map[time.Duration]time.Duration{
		time.Millisecond: 2 * time.Second, 300 * time.Millisecond: 2 * time.Second, 2 * time.Second: 2 * time.Second,
		2001 * time.Millisecond: 3 * time.Second, 30 * time.Second: 30 * time.Second,
	} {
		g, _ := take(t, d, fmt.Sprint("ttl ", i), i)
		if g.TTL != want {
			t.Errorf("asked for %v, granted are %v, right would be %v", i, g.TTL, want)
		}
	}
}

var ids atomic.Int64

func take(t *testing.T, d driver.Driver, name string, ttl time.Duration) (driver.Grant, driver.Hold) {
	t.Helper()
	p, r := enter(t, d, name, ttl)
	g, err := p.Try(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Hold.Token = g.Token
	return g, r.Hold
}

func enter(t *testing.T, d driver.Driver, name string, ttl time.Duration) (driver.Place, driver.Request) {
	t.Helper()
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: fmt.Sprintf("aaaaaaaa-bbbb-4ccc-8ddd-%012d:1", ids.Add(1)), Permits: 1, TTL: ttl},
		Notify: func(driver.Signal) {}}
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// A thousand failed acquires leave neither a lease nor a key, and Close revokes the session.
func TestNothingLeft(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	keys(t, raw, "") // its connection has goroutines too
	goroutines := runtime.NumGoroutine()
	holder, d := suite.Open(t, c.URL, nil), suite.Open(t, c.URL, nil)
	_, h := take(t, holder, "taken", 30*time.Second)
	before := leases(t, raw)
	if before != 1 {
		t.Fatalf("%d leases, right would be 1", before)
	}
	for i := range 1000 {
		p, _ := enter(t, d, "taken", 30*time.Second)
		ctx, cancel := t.Context(), func() {}
		if i%3 == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Microsecond)
		}
		if _, err := p.Try(ctx, 1); err == nil {
			t.Fatal("granted")
		} else if !errors.Is(err, driver.ErrHeld) {
			if err := p.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
	}
	if n := leases(t, raw); n > before+1 {
		t.Errorf("%d leases after a thousand failures, %d before", n, before)
	}
	if n := keys(t, raw, "taken/"); n != 1 {
		t.Errorf("%d keys are left of a name with one holder", n)
	}
	if err := holder.Release(t.Context(), h, driver.End{}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	holder.Close()
	if n := leases(t, raw); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if n := keys(t, raw, ""); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before there were %d:\n%s", runtime.NumGoroutine(), goroutines, buf[:runtime.Stack(buf, true)])
		}
	}
}

func leases(t *testing.T, raw *clientv3.Client) int {
	t.Helper()
	r, err := raw.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Leases)
}

func keys(t *testing.T, raw *clientv3.Client, prefix string) int64 {
	t.Helper()
	r, err := raw.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return r.Count
}

// Many holds cost one session, a few requests a renewal and no goroutine each.
func TestManyHolds(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	d := suite.Open(t, c.URL, nil)
	const n = 1000
	hs := make([]driver.Hold, n)
	for i := range hs {
		_, hs[i] = take(t, d, fmt.Sprintf("many/%d", i), 30*time.Second)
	}
	if n := leases(t, raw); n != 1 {
		t.Errorf("%d leases", n)
	}
	time.Sleep(time.Second) // until they have a watch
	if g := runtime.NumGoroutine(); g > 100 {
		t.Errorf("%d goroutines", g)
	}
	for i, err := range d.Renew(t.Context(), hs) {
		if err != nil {
			t.Fatalf("hold %d: %v", i, err)
		}
	}
	if _, err := raw.Delete(t.Context(), "many/7/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	for i, err := range d.Renew(t.Context(), hs) {
		if (i == 7) != errors.Is(err, driver.ErrNotHeld) || i != 7 && err != nil {
			t.Errorf("hold %d: %v", i, err)
		}
	}
}

// Several contenders of one process at one name have a key each, the first one the plain key.
func TestSeats(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	d := suite.Open(t, c.URL, &etcdlock.Options{Prefix: "locks/"})
	var wg sync.WaitGroup
	locks := pawl.New(d)
	defer locks.Close()
	held, err := locks.FairMutex("seats").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wg.Go(func() {
			l, err := locks.FairMutex("seats").Lock(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			l.Unlock()
		})
	}
	for end := time.Now().Add(patience); keys(t, raw, "locks/seats/") < 4; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d keys", keys(t, raw, "locks/seats/"))
		}
	}
	r, err := raw.Get(t.Context(), "locks/seats/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for i, kv := range r.Kvs {
		rest := strings.TrimPrefix(string(kv.Key), fmt.Sprintf("locks/seats/%x", kv.Lease))
		if (rest == "") != (i == 0) || i > 0 && !strings.HasPrefix(rest, "/x") {
			t.Errorf("key %d is %q", i, kv.Key)
		}
	}
	held.Unlock()
	wg.Wait()
}

// A driver with PeerToken and one without cannot number the same name.
func TestTokensDoNotMix(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	own, peer := suite.Open(t, c.URL, nil), suite.Open(t, c.URL, &etcdlock.Options{PeerToken: true})
	for _, two := range [][2]*etcdlock.Driver{{own, peer}, {peer, own}} {
		_, h := take(t, two[0], "mixed", 10*time.Second)
		p, _ := enter(t, two[1], "mixed", 10*time.Second)
		if _, err := p.Try(t.Context(), 1); !errors.Is(err, driver.ErrMismatch) {
			t.Errorf("the other numbering: %v", err)
		}
		if err := two[0].Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A place whose Leave failed does not stay in line for as long as its session lives.
func TestLeaveThatFailed(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	holder, d := suite.Open(t, c.URL, nil), suite.Open(t, c.URL, nil)
	_, h := take(t, holder, "left", 30*time.Second)
	_, other := take(t, d, "other", 30*time.Second) // keeps the session alive
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "left", ID: fmt.Sprintf("aaaaaaaa-bbbb-4ccc-8ddd-%012d:1", ids.Add(1)), Permits: 1, TTL: 30 * time.Second},
		Wait: true, Notify: func(driver.Signal) {}}
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Try(t.Context(), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try answers %v", err)
	}
	c.Members[0].Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	err = p.Leave(ctx)
	cancel()
	c.Members[0].Cont()
	if err == nil {
		t.Fatal("Leave answers nil although nobody answered it")
	}
	if err := holder.Release(t.Context(), h, driver.End{}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); keys(t, raw, "left/") > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the place is still in line")
		}
	}
	if err := d.Renew(t.Context(), []driver.Hold{other})[0]; err != nil {
		t.Error(err)
	}
}

// counting is a client that counts its requests by method.
func counting(t *testing.T, c *etcdtest.Cluster) (*clientv3.Client, func() map[string]int) {
	t.Helper()
	var mu sync.Mutex
	n := map[string]int{}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Members[0].Addr}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, resp any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			mu.Lock()
			n[method]++
			mu.Unlock()
			return next(ctx, method, req, resp, cc, opts...)
		})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		old := n
		n = map[string]int{}
		return old
	}
}

// What the store is asked: a free name costs two messages a cycle, a refused TryLock one, and a thousand goroutines at a
// name that somebody else has cost one place in line.
func TestMessages(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	cli, count := counting(t, c)
	d := etcdlock.New(cli, nil)
	locks := pawl.New(d)
	defer locks.Close()
	m, name := locks.Mutex("counted"), "counted"
	cycle := func() {
		t.Helper()
		l, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	cycle() // makes the session
	count()
	const rounds = 100
	for range rounds {
		cycle()
	}
	if n := count(); len(n) != 1 || n[pb.KV_Txn_FullMethodName] != 2*rounds {
		t.Errorf("%d cycles took %v", rounds, n)
	}

	_, h := take(t, suite.Open(t, c.URL, nil), name, 30*time.Second)
	other := suite.Open(t, c.URL, nil)
	defer func() {
		if err := other.Release(context.Background(), h, driver.End{}); err != nil {
			t.Error(err)
		}
	}()
	for range rounds {
		if _, err := m.TryLock(t.Context()); !errors.Is(err, pawl.ErrHeld) {
			t.Fatal(err)
		}
	}
	if n := count(); len(n) != 1 || n[pb.KV_Txn_FullMethodName] != rounds {
		t.Errorf("%d refusals took %v", rounds, n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for end := time.Now().Add(patience); keys(t, raw, name+"/") < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	time.Sleep(300 * time.Millisecond) // all the others too
	if n := keys(t, raw, name+"/"); n != 2 {
		t.Errorf("1,000 waiters and a holder have %d keys", n)
	}
	if n := count(); n[pb.KV_Txn_FullMethodName] > 10 {
		t.Errorf("1,000 waiters took %v", n)
	}
	cancel()
	wg.Wait()
}

// A waiter whose key was deleted by hand does not hold the name when the one in front goes: it gets a new key first.
func TestWaiterDeleted(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	holder, d := suite.Open(t, c.URL, nil), suite.Open(t, c.URL, nil)
	_, h := take(t, holder, "front", 30*time.Second)
	told := make(chan struct{}, 16)
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "front", ID: fmt.Sprintf("aaaaaaaa-bbbb-4ccc-8ddd-%012d:1", ids.Add(1)), Permits: 1, TTL: 30 * time.Second},
		Wait: true, Notify: func(driver.Signal) { told <- struct{}{} }}
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Try(t.Context(), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try answers %v", err)
	}
	line := func() []*mvccpb.KeyValue {
		r, err := raw.Get(t.Context(), "front/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			t.Fatal(err)
		}
		return r.Kvs
	}
	was := line()
	if len(was) != 2 {
		t.Fatalf("%d keys", len(was))
	}
	if _, err := raw.Delete(t.Context(), string(was[1].Key)); err != nil {
		t.Fatal(err)
	}
	if err := holder.Release(t.Context(), h, driver.End{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("the waiter was not told")
	}
	g, err := p.Try(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	now := line()
	if len(now) != 1 || now[0].CreateRevision <= was[1].CreateRevision || g.Token != now[0].CreateRevision<<8 {
		t.Errorf("token %d with the keys %v; the deleted one was %v", g.Token, now, was[1])
	}
}
