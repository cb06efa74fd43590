package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	raw := connect(t, s)
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return open(t, s.URL, nil) },
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
		Wanted:      true,
		Delete: func(t testing.TB, name string) {
			found := do(t, raw, "KEYS", "*"+name+"*")
			keys, err := found.AsStrSlice()
			if err != nil || len(keys) == 0 {
				t.Fatalf("nothing to delete of %q: %v", name, err)
			}
			do(t, raw, append([]string{"DEL"}, keys...)...)
		},
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
	})
}

// The same over a client of the caller's that speaks RESP2, with a prefix, and with Redisson's counter.
func TestConformanceOverRESP2(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return newOverRESP2(t, s) },
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
	})
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

func open(t testing.TB, url string, opts *redislock.Options) *redislock.Driver {
	t.Helper()
	d, err := redislock.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
