// Package sentineltest tests package redislock over Sentinels: fail-overs that keep a lock, and those that lose it.
package sentineltest

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func open(t testing.TB, url string, opts *redislock.Options) *redislock.Driver {
	t.Helper()
	d, err := redislock.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func client(t testing.TB, s *redistest.Sentinel, ttl time.Duration) *pawl.Client {
	t.Helper()
	return pawl.New(open(t, s.URL, nil)).With(pawl.Options{TTL: ttl})
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

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return open(t, s.URL, nil) },
		Kinds: []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader,
			driver.Once},
		MinTTL:      time.Second,
		WriterFirst: true,
	})
}

// The primary fails under a holder and under waiters of other processes. Once killed, once frozen and come back: then it is
// a replica and must not be listened to.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "frozen"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := redistest.NewSentinel(t)
			const ttl = time.Minute // longer than a fail-over on a busy machine
			holder := client(t, s, ttl)
			lease := lock(t, holder, "orders")
			elsewhere := client(t, s, ttl)
			var inside, most, last atomic.Int64
			last.Store(lease.Token())
			var wg sync.WaitGroup
			for range 3 { // each a process of its own
				c := client(t, s, ttl)
				for range 2 {
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
			}
			eventually(t, "all wait", func() bool {
				r, err := elsewhere.Inspect(t.Context(), "orders")
				return err == nil && r.Waiters == 3 // one of each process is in line
			})
			old := s.Primary()
			old.InStep()
			if how == "killed" {
				old.Kill()
			} else {
				old.Stop()
			}
			began := time.Now()
			lock(t, elsewhere, "invoices").Unlock()
			t.Logf("%s: another name was granted after %v", how, time.Since(began).Round(10*time.Millisecond))
			if s.Primary() == old {
				t.Error("there was no fail-over")
			}
			if how == "frozen" {
				old.Cont()
				// Until a Sentinel has told it, it takes requests as a primary, and loses what they did.
				eventually(t, "a replica of the new primary", func() bool { return old.Is("slave") })
			}
			if l, err := elsewhere.Mutex("orders").TryLock(t.Context()); err == nil {
				t.Errorf("the name was granted beside its holder, with token %d after %d", l.Token(), lease.Token())
				l.Unlock()
			}
			if err := lease.Err(); err != nil {
				t.Errorf("the lease did not outlive the fail-over: %v", err)
			}
			began = time.Now()
			if err := lease.Unlock(); err != nil {
				t.Errorf("Unlock after the fail-over: %v", err)
			}
			wg.Wait()
			if took := time.Since(began); took > ttl/2 {
				t.Errorf("six waiters took %v: they were not woken", took)
			}
			if most.Load() != 1 {
				t.Errorf("%d were inside at once", most.Load())
			}
		})
	}
}

// A fail-over to a replica that has not got the lock loses it: two hold the name at once, and neither knows. No lock can
// prevent that. But the second token is larger, and whoever asks the resource with the first one is refused.
func TestFailoverThatLosesTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	first, second := client(t, s, 30*time.Second), client(t, s, 30*time.Second)
	lock(t, first, "warm").Unlock()
	old := s.Primary()
	s.CutOff(old)
	a := lock(t, first, "orders")
	old.Kill()
	b := lock(t, second, "orders")
	if err := a.Err(); err != nil {
		t.Fatalf("the first holder should still trust its lease, or nothing is seen: %v", err)
	}
	if b.Token() <= a.Token() {
		t.Errorf("token %d follows %d", b.Token(), a.Token())
	}
	var guard fence.Gate
	if err := guard.Claim("stock", b); err != nil {
		t.Errorf("the second holder's claim: %v", err)
	}
	var stale *fence.StaleError
	if err := guard.Claim("stock", a); !errors.As(err, &stale) {
		t.Errorf("the first holder's claim after the second's: %v", err)
	}
	// The first one finds out when it renews or unlocks: not by a request that the dead server may have carried out.
	for range 5 { // until none of its connections is the dead one's
		lock(t, first, "elsewhere").Unlock()
		time.Sleep(100 * time.Millisecond)
	}
	if err := a.Unlock(); !errors.Is(err, pawl.ErrLost) {
		t.Errorf("Unlock of the lost lease: %v", err)
	}
	if err := b.Unlock(); err != nil {
		t.Errorf("Unlock by the second holder: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	primary, acl := s.Primary(), redistest.DocumentedACL(t, "../doc.go", "behind Sentinels")
	primary.Do(append([]string{"ACL", "SETUSER", "worker", "reset", "on", ">s3same", "~*"}, append(acl, "+select")...)...)
	server, hosts := s.Servers[0].Addr, strings.TrimSuffix(strings.TrimPrefix(s.URL, "redis+sentinel://"), "/mymaster")
	for _, c := range []struct{ url, want string }{
		{"redis+sentinel://worker:s3same@" + hosts, "does not name what the Sentinels watch"},
		{"redis+sentinel://worker:s3same@" + hosts + "/yourmaster", "watch nothing of that name"},
		{"redis+sentinel://worker:s3same@" + hosts + "/mymaster?db=orders", "should be a number"},
		{"redis+sentinel://worker:s3same@" + hosts + "/mymaster?x=1", "parameters"},
		{"redis+sentinel://worker:s3same@" + hosts + ",/mymaster", "host number 4"},
		{"redis+sentinel://worker:s3same@," + hosts + "/mymaster", "host number 1"},
		{"redis+sentinel://worker:wrong@" + hosts + "/mymaster", "wrong user name or password"},
		{"redis+sentinel://worker:s3same@" + server + "/mymaster?sentinel_user=worker&sentinel_password=s3same", "this is no Sentinel"},
		{"redis://" + s.Sentinels[0].Addr, "is a Sentinel"},
		{"redis://worker:s3same@" + hosts, "several hosts"},
	} {
		d, err := redislock.Open(t.Context(), c.url, nil)
		if err == nil {
			d.Close()
			t.Errorf("Open of %q should fail with %q", c.url, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("Open of %q: %v; it should say %q, and no password", c.url, err, c.want)
		}
	}
	defer func() {
		msg, _ := primary.Command("ACL", "LOG")
		if entries, _ := msg.ToArray(); len(entries) > 0 {
			e, _ := entries[0].AsStrMap()
			t.Errorf("denied: %q", e)
		}
	}()
	primary.Do("ACL", "LOG", "RESET") // of the wrong passwords above
	d := open(t, fmt.Sprintf("redis+sentinel://worker:%s@%s/mymaster?db=3", url.QueryEscape("s3same"), hosts), nil)
	if _, _, err := d.Incarnation(t.Context()); err != nil {
		t.Error(err)
	}
	p, err := d.Enter(t.Context(), driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "orders", ID: "test:1", Permits: 1,
		TTL: time.Second}, Notify: func(driver.Signal) {}})
	if err == nil {
		_, err = p.Try(t.Context(), 1)
	}
	if err != nil {
		t.Error(err)
	}
}
