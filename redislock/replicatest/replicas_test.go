// Package replicatest tests redislock.Options.Replicas.
package replicatest

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
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

// lock gets the lock, even if the replicas take long for once.
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

// pair is a primary and its only replica.
func pair(t testing.TB) (primary, replica *redistest.Server) {
	t.Helper()
	primary = redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica = redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	for end := time.Now().Add(time.Minute); !strings.Contains(primary.Do("INFO", "replication"), "state=online"); {
		if time.Now().After(end) {
			t.Fatal("the replica does not get in step")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return primary, replica
}

// oneByOne hides that the driver could take several names in one step: it does not with replicas.
func oneByOne(d *redislock.Driver) driver.Driver {
	return struct {
		driver.Driver
		driver.Attacher
		driver.Inspector
		driver.Raiser
		driver.Watcher
	}{d, d, d, d, d}
}

func TestConformanceWithReplicas(t *testing.T) {
	t.Parallel()
	primary, _ := pair(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			return oneByOne(open(t, primary.URL, &redislock.Options{Replicas: 1}))
		},
		Kinds: []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader,
			driver.Once},
		MinTTL:      time.Second,
		WriterFirst: true,
	})
}

// A hold that too few replicas have got is given back, and a renewal of that sort is none.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	both := open(t, s.URL, &redislock.Options{Replicas: 2})
	c := pawl.New(both).With(pawl.Options{TTL: 3 * time.Second})
	lease := lock(t, c, "orders")
	three := pawl.New(open(t, s.URL, &redislock.Options{Replicas: 3}))
	_, err := three.Mutex("invoices").TryLock(t.Context())
	if err == nil || !strings.Contains(err.Error(), "only 2 of 3 replicas") || !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("with two of three replicas: %v", err)
	}
	if r, err := both.Inspect(t.Context(), "invoices"); err != nil || len(r.Holds) > 0 {
		t.Errorf("after an acquisition that was not confirmed: %+v, %v", r, err)
	}
	s.CutOff(s.Primary())
	if _, err := c.Mutex("invoices").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "only 0 of 2 replicas") {
		t.Errorf("without a replica: %v", err)
	}
	select {
	case <-lease.Done():
		if !errors.Is(lease.Err(), pawl.ErrLost) {
			t.Errorf("the lease ended with %v", lease.Err())
		}
	case <-time.After(30 * time.Second):
		t.Error("a lease that no replica knows was renewed")
	}
}

// The primary dies right after it granted, and its replica is promoted: how often is the lock lost?
func TestReplicasOverFailovers(t *testing.T) {
	t.Parallel()
	const rounds = 3
	for _, n := range []int{0, 1} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			lost := 0
			for range rounds {
				primary, replica := pair(t)
				d := open(t, primary.URL, &redislock.Options{Replicas: n})
				lease := lock(t, pawl.New(d), "orders")
				primary.Kill()
				replica.Do("REPLICAOF", "NO", "ONE")
				second, err := pawl.New(open(t, replica.URL, nil)).Mutex("orders").TryLock(t.Context())
				if err == nil {
					lost++
					if second.Token() <= lease.Token() {
						t.Errorf("token %d follows %d", second.Token(), lease.Token())
					}
				} else if !errors.Is(err, pawl.ErrHeld) {
					t.Fatal(err)
				}
				replica.Kill()
			}
			t.Logf("%d of %d fail-overs lost the lock", lost, rounds)
			if n > 0 && lost > 0 {
				t.Errorf("a hold that %d replica has confirmed was lost", n)
			}
		})
	}
}
