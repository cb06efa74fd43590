// Package ensemble tests zklock on three servers, and with several processes.
package ensemble

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// three is shared by the tests that do not harm it.
var three zktest.Ensemble

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		os.Exit(child())
	}
	flag.Set("test.parallel", "8") // the tests hardly compute; they wait
	flag.Parse()
	os.Exit(func() int {
		var err error
		if three, err = zktest.NewEnsemble(3, zktest.Config{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer three.Close()
		return m.Run()
	}())
}

const patience = 30 * time.Second

func fresh() string { return "t-" + rand.Text()[:12] }

func open(t testing.TB, addrs string, session time.Duration) *zklock.Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := zklock.Open(ctx, "zookeeper://"+addrs+"/locks", &zklock.Options{SessionTimeout: session})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func client(t testing.TB, addrs string, session time.Duration) *pawl.Client {
	c := pawl.New(open(t, addrs, session))
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return open(t, three.Addrs(), 6*time.Second) },
		Kinds:       []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader},
		MinTTL:      time.Second,
		WriterFirst: true,
	})
}

// TestLeaderKilled: a hundred holders keep their locks while another leader is elected, and their keepalive goes on.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3, zktest.Config{})
	var clients []*pawl.Client
	for range 5 {
		clients = append(clients, client(t, e.Addrs(), 20*time.Second))
	}
	var leases []*pawl.Lease
	var names []string
	for i := range 100 {
		name := fresh()
		lease, err := clients[i%5].With(pawl.Options{TTL: 12 * time.Second}).Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases, names = append(leases, lease), append(names, name)
	}
	leader := e.Leader()
	if leader == nil {
		t.Fatal("there is no leader")
	}
	leader.Kill()
	killed := time.Now()
	// A new lock works as soon as there is a leader again.
	var back time.Duration
	for {
		lease, err := clients[0].Mutex(fresh()).Lock(t.Context())
		if err == nil {
			back = time.Since(killed)
			lease.Unlock()
			break
		}
		if time.Since(killed) > patience {
			t.Fatalf("no lock %v after the leader's death: %v", time.Since(killed), err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Until(killed.Add(13 * time.Second))) // longer than the TTL from before
	rival := client(t, e.Addrs(), 20*time.Second)
	for i, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Errorf("holder %d lost its lock: %v", i, err)
			continue
		}
		if i%10 == 0 {
			if _, err := rival.Mutex(names[i]).TryLock(t.Context()); !errors.Is(err, pawl.ErrHeld) {
				t.Errorf("a rival of holder %d: %v", i, err)
			}
		}
		if err := lease.Unlock(); err != nil {
			t.Errorf("Unlock of holder %d: %v", i, err)
		}
	}
	t.Logf("the first new lock was had %v after the leader's death", back.Round(time.Millisecond))
}

// TestRollingRestart: one server after the other restarts, and no lease is lost.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3, zktest.Config{})
	locks := client(t, e.Addrs(), 20*time.Second)
	var leases []*pawl.Lease
	for i := range 20 {
		var l pawl.Locker = locks.Mutex(fresh())
		if i%2 == 0 {
			l = locks.Semaphore(fresh(), 2)
		}
		lease, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	for _, s := range e {
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	for i, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
		if err := lease.Unlock(); err != nil {
			t.Errorf("Unlock %d: %v", i, err)
		}
	}
}

// TestMemberHangs: a frozen member does not cost its clients their session, since there are others.
func TestMemberHangs(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3, zktest.Config{})
	leader := e.Leader()
	if leader == nil {
		t.Fatal("there is no leader")
	}
	var followers []string
	for _, s := range e {
		if s != leader {
			followers = append(followers, s.Addr)
		}
	}
	locks := client(t, strings.Join(followers, ","), 20*time.Second)
	lease, err := locks.With(pawl.Options{TTL: 13 * time.Second}).Mutex(fresh()).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	frozen := 0
	for _, s := range e {
		if s != leader && strings.Contains(s.Ask("srvr"), "Connections: 2") { // ours, and the one that asks
			s.Stop()
			defer s.Cont()
			frozen++
		}
	}
	if frozen != 1 {
		t.Fatalf("%d members have the client's connection", frozen)
	}
	time.Sleep(14 * time.Second)
	if err := lease.Err(); err != nil {
		t.Errorf("a hanging member cost a lease: %v", err)
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestMinority: servers without a quorum are told apart from those that are down.
func TestMinority(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"false": "not part of a quorum", "true": "read-only"} {
		t.Run("readonlymode "+mode, func(t *testing.T) {
			t.Parallel()
			e := zktest.StartEnsemble(t, 3, zktest.Config{Java: []string{"-Dreadonlymode.enabled=" + mode}})
			locks := client(t, e.Addrs(), 8*time.Second)
			lease, err := locks.Mutex("a").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e[0].Kill()
			e[1].Kill()
			for end := time.Now().Add(patience); mode == "true" && e[2].Mode() != "read-only"; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the server does not become read-only")
				}
			}
			time.Sleep(2 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			d, err := zklock.Open(ctx, "zookeeper://"+e[2].Addr+"/locks", nil)
			if err == nil {
				d.Close()
				t.Fatal("Open on a minority succeeds")
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error should say %q: %v", want, err)
			}
			select {
			case <-lease.Done():
			case <-time.After(patience):
				t.Error("a holder on the side of a minority is not told of its loss")
			}
		})
	}
}

// TestReleaseIsSeenEverywhere: members lag behind, but who asks after a release is never told of the old holder.
func TestReleaseIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	var clients []*pawl.Client
	for _, s := range three {
		clients = append(clients, client(t, s.Addr, 20*time.Second))
	}
	names := []string{fresh(), fresh()}
	for i := range 300 {
		var l pawl.Locker = clients[i%3].Mutex(names[0])
		if i%2 == 0 {
			l = clients[i%3].Semaphore(names[1], 1)
		}
		lease, err := l.TryLock(t.Context())
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExclusionOnThree: many clients on all members, one counter.
func TestExclusionOnThree(t *testing.T) {
	t.Parallel()
	name := fresh()
	var inside, last atomic.Int64
	var wg sync.WaitGroup
	for i := range 9 {
		locks := client(t, three[i%3].Addr, 20*time.Second)
		wg.Go(func() {
			for range 20 {
				lease, err := locks.Mutex(name).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				if old := last.Swap(lease.Token()); old >= lease.Token() {
					t.Errorf("token %d follows %d", lease.Token(), old)
				}
				inside.Add(-1)
				if err := lease.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func connect(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, 20*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
