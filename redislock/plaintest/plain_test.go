// Package plaintest tests the layout of plain string keys.
package plaintest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func open(t testing.TB, url string, opts *redislock.PlainOptions) *redislock.Plain {
	t.Helper()
	p, err := redislock.OpenPlain(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// untold is a Plain without tokens, which cannot raise any.
type untold struct{ *redislock.Plain }

func (untold) Raise() {}

func conform(t *testing.T, s *redistest.Server, open func(t testing.TB) driver.Driver) {
	drivertest.Run(t, drivertest.Harness{
		Open:   open,
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: time.Second,
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
		Delete: func(t testing.TB, name string) { s.Do("DEL", name) },
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	conform(t, s, func(t testing.TB) driver.Driver { return untold{open(t, s.URL, nil)} })
}

func TestConformanceFenced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	conform(t, s, func(t testing.TB) driver.Driver {
		return open(t, s.URL+"?layout=string", &redislock.PlainOptions{Fenced: true})
	})
}

// blind makes a user whom the server does not tell of changes, and answers a URL for it.
func blind(s *redistest.Server) string {
	s.Do("ACL", "SETUSER", "blind", "on", ">sesame", "~*", "&*", "+@all", "-client|tracking")
	return "redis://blind:sesame@" + s.Addr
}

// Over a client of the caller's that speaks RESP2, in which a server cannot tell: waiters poll.
func TestConformanceOverRESP2(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	conform(t, s, func(t testing.TB) driver.Driver {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true,
			DisableRetry: true, AlwaysRESP2: true})
		if err != nil {
			t.Fatal(err)
		}
		p := redislock.NewPlain(c, nil)
		t.Cleanup(func() {
			p.Close()
			c.Close()
		})
		return untold{p}
	})
}

func TestClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	clienttest.Run(t, clienttest.Harness{
		Open:  func(t testing.TB) driver.Driver { return open(t, s.URL, &redislock.PlainOptions{Fenced: true}) },
		Kinds: []driver.Kind{driver.Exclusive},
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

// Spring's waiters sleep until they are told the key, on one channel or another.
func TestSpringIsTold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := pawl.New(open(t, s.URL, &redislock.PlainOptions{SpringRegistry: "registry"}))
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	heard, on := make(chan rueidis.PubSubMessage, 10), make(chan struct{}, 10)
	hook := rueidis.WithOnSubscriptionHook(t.Context(), func(rueidis.PubSubSubscription) { on <- struct{}{} })
	go c.Receive(hook, c.B().Psubscribe().Pattern("registry-channel*").Build(), func(m rueidis.PubSubMessage) { heard <- m })
	<-on
	if err := locks.Mutex("orders").Do(t.Context(), func(context.Context) error {
		if len(s.Do("GET", "registry:orders")) != 49 {
			t.Error("the lock is under another key than Spring's")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, channel := range []string{"registry-channel", "registry-channel:registry:orders"} {
		select {
		case m := <-heard:
			if m.Channel != channel || m.Message != "registry:orders" {
				t.Errorf("%q on %q, want registry:orders on %q", m.Message, m.Channel, channel)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("nothing came on %s", channel)
		}
	}
}

// Whoever sets the same key if absent is excluded, and excludes; nobody's value is touched by the other side.
func TestForeignClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := pawl.New(open(t, s.URL, &redislock.PlainOptions{Prefix: "mutex:"})).With(pawl.Options{TTL: 3 * time.Second})
	const compareAndDelete = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

	lease, err := locks.Mutex("orders").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Do("SET", "mutex:orders", "theirs", "NX", "PX", "60000"); got == "OK" {
		t.Error("another client took what pawl holds")
	}
	if n := len(s.Do("GET", "mutex:orders")); n != 49 {
		t.Errorf("the value has %d characters", n)
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := s.Do("SET", "mutex:orders", "theirs", "NX", "PX", "60000"); got != "OK" {
		t.Errorf("a free lock: %q", got)
	}
	if _, err := locks.Mutex("orders").TryLock(t.Context()); err == nil {
		t.Error("pawl took what another client holds")
	}
	got := make(chan error, 1)
	go func() {
		l, err := locks.Mutex("orders").Lock(t.Context())
		if err == nil {
			lease = l
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("pawl did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.Do("EVAL", compareAndDelete, "1", "mutex:orders", "theirs")
	if err := <-got; err != nil {
		t.Fatal(err)
	}

	// A client that deletes and takes what is not its own, as ShedLock may: the holder is told at its next renewal.
	s.Do("SET", "mutex:orders", "thief", "PX", "60000")
	select {
	case <-lease.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the theft was not noticed")
	}
	lease.Unlock()
	if got := s.Do("GET", "mutex:orders"); got != "thief" {
		t.Errorf("the key holds %q, want the thief's value", got)
	}
	s.Do("SET", "mutex:forever", "x")
	if _, err := locks.Mutex("forever").TryLock(t.Context()); err == nil {
		t.Error("a key without expiry is held")
	}
	s.Do("HSET", "mutex:hash", "a", "1")
	if _, err := locks.Mutex("hash").TryLock(t.Context()); err == nil {
		t.Error("a hash is no lock of this layout")
	}
}

// connect is a client that knows nothing of pawl.
func connect(t testing.TB, s *redistest.Server) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func do(t testing.TB, c rueidis.Client, args ...string) rueidis.RedisMessage {
	t.Helper()
	msg, err := c.Do(t.Context(), c.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%q: %v", args, err)
	}
	return msg
}
