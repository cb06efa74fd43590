// Package quorumtest tests package redlock over Redis servers.
package quorumtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/redlock"
)

func servers(t testing.TB, n int) []*redistest.Server {
	t.Helper()
	var out []*redistest.Server
	for range n {
		out = append(out, redistest.Start(t))
	}
	return out
}

// quorum is one more process's view of the servers.
func quorum(t testing.TB, servers []*redistest.Server, opts redlock.Options) *redlock.Driver {
	t.Helper()
	var members []driver.Driver
	for _, s := range servers {
		d, err := redislock.Open(t.Context(), s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, d)
	}
	q := redlock.New(members, &opts)
	t.Cleanup(func() { q.Close() })
	return q
}

// lock waits until enough members vote: those that have just started do not.
func lock(t testing.TB, c *pawl.Client, name string) *pawl.Lease {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		l, err := c.Mutex(name).Lock(t.Context())
		if err == nil {
			return l
		}
		if time.Now().After(end) {
			t.Fatalf("%q was not granted for a minute: %v", name, err)
		}
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := servers(t, n)
			drivertest.Run(t, drivertest.Harness{
				Open: func(t testing.TB) driver.Driver {
					return quorum(t, s, redlock.Options{Durable: true, NodeTimeout: time.Second})
				},
				Kinds:  []driver.Kind{driver.Exclusive, driver.Read, driver.Write, driver.Permits, driver.Once},
				MinTTL: 3 * time.Second,
			})
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := []*redistest.Server{
		redistest.Start(t), // keeps nothing, has a replica
		redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"),
		redistest.Start(t, "--appendonly", "yes"),
	}
	replica := redistest.Start(t)
	raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{replica.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	host, port, _ := strings.Cut(s[0].Addr, ":")
	if err := raw.Do(t.Context(), raw.B().Arbitrary("REPLICAOF", host, port).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	q := quorum(t, s, redlock.Options{})
	warned := func(q *redlock.Driver, what string) bool {
		return slices.ContainsFunc(q.Warnings(t.Context()), func(w string) bool { return strings.Contains(w, what) })
	}
	for end := time.Now().Add(30 * time.Second); !warned(q, "member 1 has replicas (1)"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no word of the replica: %q", q.Warnings(t.Context()))
		}
	}
	for _, what := range []string{"members 1 and 2 are on one host", "members 1 and 3 are on one host", "member 1 keeps nothing on disk"} {
		if !warned(q, what) {
			t.Errorf("no %q in %q", what, q.Warnings(t.Context()))
		}
	}
	for _, what := range []string{"member 2 has", "member 2 keeps", "member 3 keeps", "Durable"} {
		if warned(q, what) {
			t.Errorf("%q in %q", what, q.Warnings(t.Context()))
		}
	}
	durable := quorum(t, s, redlock.Options{Durable: true})
	if !warned(durable, "Options.Durable is set, but member 3") || !warned(durable, "Options.Durable is set, but member 1") ||
		warned(durable, "Options.Durable is set, but member 2") {
		t.Errorf("durable: %q", durable.Warnings(t.Context()))
	}
	s[1].Kill()
	if got := q.Warnings(t.Context()); !slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, "member 2 ") }) {
		t.Errorf("no word of the member that is down: %q", got)
	}
}

// Of five members two are killed, one is paused and one restarts empty. What a majority still stands for works; what it
// does not is refused and lost, never held twice.
func TestMembersFail(t *testing.T) {
	t.Parallel()
	const maxTTL = 4 * time.Second
	s := servers(t, 5)
	opts := redlock.Options{MaxTTL: maxTTL, NodeTimeout: time.Second}
	options := pawl.Options{TTL: maxTTL}
	one, two := pawl.New(quorum(t, s, opts)).With(options), pawl.New(quorum(t, s, opts)).With(options)

	began := time.Now()
	lock(t, two, "warm").Unlock()
	lease := lock(t, one, "orders")
	if waited := time.Since(began); waited < maxTTL/2 {
		t.Errorf("servers that have just started voted after %v", waited)
	}
	time.Sleep(maxTTL) // all vote, and the lease is renewed at all
	s[0].Kill()
	s[1].Kill()
	for _, name := range []string{"a", "b", "c"} {
		lock(t, two, name).Unlock()
	}
	excluded := func(when string) {
		t.Helper()
		if l, err := two.Mutex("orders").TryLock(t.Context()); err == nil {
			t.Errorf("%s it was granted twice, with tokens %d and %d", when, lease.Token(), l.Token())
		}
	}
	excluded("with two of five killed")
	time.Sleep(maxTTL + maxTTL/2)
	if err := lease.Err(); err != nil {
		t.Errorf("three of five should keep a lease alive: %v", err)
	}
	excluded("over one TTL later")

	s[2].Stop() // a minority is left
	excluded("with a minority left")
	select {
	case <-lease.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("a lease outlived its majority")
	}
	if !errors.Is(lease.Err(), pawl.ErrLost) {
		t.Errorf("the lease ended with %v", lease.Err())
	}
	s[2].Cont()
	s[0].Restart()
	after := lock(t, two, "orders")
	if after.Token() <= lease.Token() {
		t.Errorf("token %d follows %d", after.Token(), lease.Token())
	}
	if err := after.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// A member that restarted empty does not vote before the longest TTL is over: a client that saw it before knows, and so
// does one that did not.
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	const maxTTL = 12 * time.Second
	s := servers(t, 3)
	opts := redlock.Options{MaxTTL: maxTTL, NodeTimeout: 2 * time.Second}
	one, other := pawl.New(quorum(t, s, opts)), pawl.New(quorum(t, s, opts))
	keep := pawl.Options{TTL: maxTTL}
	lease := lock(t, one.With(keep), "orders")
	lock(t, other.With(keep), "elsewhere").Unlock()
	s[0].Restart()
	s[1].Restart()
	fresh := pawl.New(quorum(t, s, opts))
	for who, c := range map[string]*pawl.Client{"the holder's client": one, "a client that knew them": other, "a new client": fresh} {
		if _, err := c.With(keep).Mutex("orders").TryLock(t.Context()); err == nil {
			t.Errorf("two of three restarted empty, and %s got the name beside its holder", who)
		}
		for end := time.Now().Add(maxTTL / 2); ; time.Sleep(50 * time.Millisecond) { // connections are made again
			l, err := c.With(keep).Mutex("invoices").TryLock(t.Context())
			if err == nil {
				t.Errorf("%s: two of three restarted empty and voted, for token %d", who, l.Token())
				break
			}
			if strings.Contains(err.Error(), "restarted") {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s: %v, want an error that says why", who, err)
				break
			}
		}
	}
	<-lease.Done() // only a minority remembers it
	later := lock(t, other.With(keep), "orders")
	defer later.Unlock()
	if later.Token() <= lease.Token() {
		t.Errorf("token %d follows %d", later.Token(), lease.Token())
	}
}

func TestIncarnation(t *testing.T) {
	t.Parallel()
	s := servers(t, 2)
	life := func(s *redistest.Server) (string, time.Duration) {
		t.Helper()
		d, err := redislock.Open(t.Context(), s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		id, age, err := d.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id, age
	}
	first, young := life(s[0])
	time.Sleep(1500 * time.Millisecond)
	same, old := life(s[0])
	if first != same || old <= young || old > time.Minute {
		t.Errorf("one life: %q of %v, then %q of %v", first, young, same, old)
	}
	other, _ := life(s[1])
	s[0].Restart()
	again, age := life(s[0])
	if ids := []string{first, other, again}; len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 3 || age > time.Minute {
		t.Errorf("three lives: %q, the last of %v", ids, age)
	}

	// A promoted replica runs for long, but is the primary only now.
	raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s[1].Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	host, port, _ := strings.Cut(s[0].Addr, ":")
	for _, args := range [][]string{{"REPLICAOF", host, port}, {"REPLICAOF", "NO", "ONE"}} {
		if err := raw.Do(t.Context(), raw.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); args[1] != "NO"; time.Sleep(20 * time.Millisecond) {
			info, _ := raw.Do(t.Context(), raw.B().Arbitrary("INFO", "replication").Build()).ToString()
			if strings.Contains(info, "master_link_status:up") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the replica does not get in touch:\n%s", info)
			}
		}
	}
	if promoted, age := life(s[1]); promoted == other || age != 0 {
		t.Errorf("before the promotion %q, after it %q of %v", other, promoted, age)
	}
}
