package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/goredis"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}

// single is a client of one server. A pool for each driver, as each process has one.
func single(t testing.TB, s *redistest.Server, opts redis.Options) *redis.Client {
	opts.Addr = s.Addr
	c := redis.NewClient(&opts)
	t.Cleanup(func() { c.Close() })
	return c
}

func over(t testing.TB, c redis.UniversalClient, opts *redislock.Options) *redislock.Driver {
	d := goredis.New(c, opts)
	t.Cleanup(func() { d.Close() })
	return d
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	raw := single(t, s, redis.Options{})
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return over(t, single(t, s, redis.Options{}), nil) },
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
		Delete: func(t testing.TB, name string) {
			keys, err := raw.Keys(t.Context(), "*"+name+"*").Result()
			if err == nil {
				err = raw.Del(t.Context(), keys...).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
	})
}

// The same with RESP2, a prefix, and a pool of one connection.
func TestConformanceWithAPoolOfOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			return over(t, single(t, s, redis.Options{Protocol: 2, PoolSize: 1}), &redislock.Options{Prefix: "app:"})
		},
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
	})
}

func TestClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	clienttest.Run(t, clienttest.Harness{
		Open:  func(t testing.TB) driver.Driver { return over(t, single(t, s, redis.Options{}), nil) },
		Kinds: everyKind,
		Freeze: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
		Kill: func(testing.TB) func() {
			s.Kill()
			return sync.OnceFunc(s.Restart)
		},
	})
}

func sentinels(t testing.TB, s *redistest.Sentinel) *redis.Client {
	var addrs []string
	for _, x := range s.Sentinels {
		addrs = append(addrs, x.Addr)
	}
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: addrs})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConformanceOverSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return over(t, sentinels(t, s), nil) },
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
	})
}

func nodes(t testing.TB, c *redistest.Cluster) *redis.ClusterClient {
	var addrs []string
	for _, x := range c.Primaries {
		addrs = append(addrs, x.Addr)
	}
	x := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { x.Close() })
	// As a client that is in use knows the cluster; on a busy machine that takes longer than a short TTL.
	if err := x.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() }); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestConformanceOverACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return redistest.Slottable(over(t, nodes(t, c), nil)) },
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

// What both libraries leave in the store is the same, key by key, and each sees the other's holders and waiters.
func TestSameLayout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	raw := single(t, s, redis.Options{})
	theirs, err := redislock.Open(t.Context(), s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	ours := over(t, single(t, s, redis.Options{}), nil)
	look := func(d driver.Driver, kind driver.Kind) []string {
		t.Helper()
		raw.FlushAll(t.Context())
		h := driver.Hold{Kind: kind, Name: "orders", ID: "11111111-2222-4333-8444-555555555555:1", Permits: 1, TTL: 30 * time.Second}
		r := driver.Request{Hold: h, Limit: 3, Wait: true, Value: []byte("v"), Notify: func(driver.Signal) {}}
		p, err := d.Enter(t.Context(), r)
		if err == nil {
			_, err = p.Try(t.Context(), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.ID = "66666666-2222-4333-8444-555555555555:2"
		if kind == driver.Read {
			r.Kind = driver.Write
		}
		r.Permits, r.Limit = 1, 3
		if kind == driver.Permits {
			r.Permits = 3
		}
		if p, err = d.Enter(t.Context(), r); err == nil {
			_, err = p.Try(t.Context(), 1)
		}
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("%s: a rival: %v", kind, err)
		}
		var out []string
		keys, _ := raw.Keys(t.Context(), "*").Result()
		slices.Sort(keys)
		for _, k := range keys {
			if strings.HasPrefix(k, "pawl_who:") { // posted, so that it may come later
				continue
			}
			what := raw.Type(t.Context(), k).Val()
			switch what {
			case "hash":
				what += fmt.Sprint(raw.HKeys(t.Context(), k).Val())
			case "zset":
				what += fmt.Sprint(len(raw.ZRange(t.Context(), k, 0, -1).Val()))
			}
			out = append(out, k+" "+what)
		}
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		p.Leave(t.Context())
		return out
	}
	for _, kind := range everyKind {
		if a, b := look(theirs, kind), look(ours, kind); !slices.Equal(a, b) || len(a) == 0 {
			t.Errorf("%s: rueidis leaves\n%q\nand go-redis\n%q", kind, a, b)
		}
	}
	raw.FlushAll(t.Context())
	lease, err := pawl.New(ours).Mutex("orders").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pawl.New(theirs).Mutex("orders").TryLock(t.Context()); !errors.Is(err, pawl.ErrHeld) {
		t.Errorf("over rueidis beside a holder over go-redis: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		got <- pawl.New(theirs).Mutex("orders").Do(t.Context(), func(context.Context) error { return nil })
	}()
	eventually(t, "a waiter", func() bool {
		r, err := ours.Inspect(t.Context(), "orders")
		return err == nil && r.Waiters == 1
	})
	lease.Unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

func request(name string) driver.Request {
	return driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: "11111111-2222-4333-8444-555555555555:1", Permits: 1,
		TTL: 10 * time.Second}, Notify: func(driver.Signal) {}}
}

func try(d driver.Driver, ctx context.Context, name string) error {
	p, err := d.Enter(ctx, request(name))
	if err == nil {
		_, err = p.Try(ctx, 1)
	}
	return err
}

// A client that no lock can be kept with is refused by every call, in words.
func TestBadClients(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	var none *redis.Client
	var noCluster *redis.ClusterClient
	for _, c := range []struct {
		client redis.UniversalClient
		want   string
	}{{ring, "Ring"}, {nil, "nil"}, {none, "nil"}, {noCluster, "nil"}, {struct{ redis.UniversalClient }{ring}, "*redis.ClusterClient"}} {
		d := goredis.New(c.client, nil)
		_, err := d.Enter(t.Context(), request("orders"))
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v; it should say %q", c.client, err, c.want)
		}
		if err := d.Renew(t.Context(), []driver.Hold{request("orders").Hold})[0]; !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%T: Renew: %v", c.client, err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%T: Close: %v", c.client, err)
		}
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := single(t, s, redis.Options{})
	before := *c.Options()
	d := over(t, c, nil)
	if err := try(d, t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("Close of the driver closed the client: %v", err)
	}
	o := c.Options()
	if o.MaxRetries != before.MaxRetries || o.ContextTimeoutEnabled != before.ContextTimeoutEnabled || o.ReadTimeout != before.ReadTimeout ||
		o.WriteTimeout != before.WriteTimeout {
		t.Errorf("the driver changed the client's options: %+v", o)
	}
	d = over(t, c, nil)
	c.Close()
	if err := try(d, t.Context(), "invoices"); !errors.Is(err, driver.ErrNotDone) || !strings.Contains(err.Error(), "go-redis client was closed") {
		t.Errorf("Try over a client that was closed: %v", err)
	}
	if err := d.Renew(t.Context(), []driver.Hold{request("orders").Hold})[0]; !errors.Is(err, driver.ErrNotDone) || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew over a client that was closed: %v", err)
	}
}

// Somebody else has the only connection: pawl's request was not sent, and says what to do. A call that ends before is
// prompt.
func TestNoFreeConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := single(t, s, redis.Options{PoolSize: 1, PoolTimeout: 300 * time.Millisecond})
	d := over(t, c, nil)
	hog := c.Conn()
	if err := hog.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := try(d, t.Context(), "orders"); !errors.Is(err, driver.ErrNotDone) || !strings.Contains(err.Error(), "PoolSize") {
		t.Errorf("Try without a free connection: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := try(d, ctx, "orders"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Try whose context ended: %v", err)
	}
	cancel()
	if err := try(d, ctx, "orders"); !errors.Is(err, driver.ErrNotDone) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Try whose context had ended: %v", err)
	}
	hog.Close()
	eventually(t, "a lock with the connection that came back", func() bool { return try(d, t.Context(), "orders") == nil })
}

// A server that is not there was not asked.
func TestNoServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := single(t, s, redis.Options{})
	d := over(t, c, nil)
	s.Kill()
	for i := range 3 {
		err := try(d, t.Context(), fmt.Sprint("orders", i))
		if !errors.Is(err, driver.ErrNotDone) && !strings.Contains(fmt.Sprint(err), "EOF") && !strings.Contains(fmt.Sprint(err), "reset") {
			t.Errorf("Try without a server: %v", err)
		}
	}
	s.Restart()
	eventually(t, "a lock", func() bool { return try(d, t.Context(), "invoices") == nil })
}
