// Package faults tests pawl on clusters that lose members, revisions and leases.
package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
)

// patience is generous: the machine may be busy.
const patience = 30 * time.Second

// client is one process's pawl, connected to some members of a cluster.
func client(t *testing.T, c *etcdtest.Cluster, ttl time.Duration, members ...*etcdtest.Member) *pawl.Client {
	t.Helper()
	url := c.URL
	if len(members) > 0 {
		url = "etcd://"
		for i, m := range members {
			if i > 0 {
				url += ","
			}
			url += m.Addr
		}
	}
	d, err := etcdlock.Open(context.Background(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	locks := pawl.New(d)
	t.Cleanup(func() { locks.Close(); d.Close() })
	return locks.With(pawl.Options{TTL: ttl})
}

// lock takes a lock. A Lock that finds the cluster without a leader fails after a while; it is then repeated.
func lock(t *testing.T, l pawl.Locker) *pawl.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		lease, err := l.Lock(ctx)
		if err == nil {
			return lease
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

func hundred(t *testing.T, locks *pawl.Client) []*pawl.Lease {
	t.Helper()
	leases := make([]*pawl.Lease, 100)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			var err error
			if leases[i], err = locks.Mutex(fmt.Sprintf("hundred/%d", i)).Lock(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

// mustOutlive wants every lease to be renewed after since, and none to be lost.
func mustOutlive(t *testing.T, leases []*pawl.Lease, ttl time.Duration, since time.Time) {
	t.Helper()
	want := since.Add(ttl - time.Second) // a deadline later than this comes from a renewal later than since
	for end := time.Now().Add(ttl + patience); ; time.Sleep(100 * time.Millisecond) {
		renewed := 0
		for i, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("lease %d: %v", i, err)
			}
			if l.Deadline().After(want) {
				renewed++
			}
		}
		if renewed == len(leases) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d leases were renewed", renewed, len(leases))
		}
	}
}

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	holder, other := client(t, c, ttl), client(t, c, ttl)
	leases := hundred(t, holder)
	waits := make(chan *pawl.Lease, 1)
	go func() {
		l, err := other.Mutex("hundred/7").Lock(context.Background())
		if err != nil {
			t.Error(err)
		}
		waits <- l
	}()
	waitContenders(t, c, "hundred/7", 2)
	leader := c.Leader()
	leader.Kill()
	killed := time.Now()
	mustOutlive(t, leases, ttl, killed)
	select {
	case <-waits:
		t.Fatal("the waiter got in while the name was held")
	default:
	}
	token := leases[7].Token()
	for _, l := range leases {
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case l := <-waits:
		if l.Token() <= token {
			t.Errorf("token %d follows %d", l.Token(), token)
		}
		l.Unlock()
	case <-time.After(patience):
		t.Fatal("the waiter was not let in")
	}
	leader.Restart()
	lock(t, other.Mutex("hundred/8")).Unlock()
}

func waitContenders(t *testing.T, c *etcdtest.Cluster, name string, n int64) {
	t.Helper()
	cli := c.Client()
	defer cli.Close()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		r, err := cli.Get(ctx, name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		cancel()
		if err == nil && r.Count >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d contenders are at %q, not %d: %v", r.Count, name, n, err)
		}
	}
}

// A member that stands still, leader or not, costs neither a lease nor, for long, a lock. It stands still for less than the
// TTL: see docs/etcd.md for what etcd's old leader may do otherwise.
func TestPausedMember(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	locks, other := client(t, c, ttl), client(t, c, ttl)
	leases := hundred(t, locks)
	var begun time.Time
	for _, what := range []string{"follower", "leader"} {
		m := c.Leader()
		if what == "follower" {
			for _, f := range c.Members {
				if f != m {
					m = f
					break
				}
			}
		}
		m.Stop()
		begun = time.Now()
		for i := range 4 {
			name := fmt.Sprintf("paused %s/%d", what, i)
			l := lock(t, other.Mutex(name))
			got := make(chan error, 1)
			go func() {
				w, err := locks.Mutex(name).Lock(context.Background())
				got <- err
				w.Unlock()
			}()
			time.Sleep(10 * time.Millisecond)
			if err := l.Unlock(); err != nil {
				t.Fatalf("while the %s stands still: %v", what, err)
			}
			select {
			case err := <-got:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(patience):
				t.Fatalf("while the %s stands still, nobody wakes the waiter", what)
			}
		}
		t.Logf("4 cycles beside a %s that stood still took %v", what, time.Since(begun))
		m.Cont()
	}
	mustOutlive(t, leases, ttl, begun)
	for _, l := range leases {
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that reaches only a member without the quorum loses its leases by its own clock, before the others get the
// names; and is told what is wrong.
func TestMinority(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	c := etcdtest.Start(t, etcdtest.Options{Members: 3, Cuttable: true})
	old := c.Leader()
	var rest []*etcdtest.Member
	for _, m := range c.Members {
		if m != old {
			rest = append(rest, m)
		}
	}
	minority, majority := client(t, c, ttl, old), client(t, c, ttl, rest...)
	leases := hundred(t, minority)
	var lost sync.Map
	var wg sync.WaitGroup
	for i, l := range leases {
		wg.Go(func() {
			<-l.Done()
			lost.Store(i, time.Now())
		})
	}
	old.Cut()
	var got [3]time.Time
	for i := range got {
		l := lock(t, majority.Mutex(fmt.Sprintf("hundred/%d", i)))
		got[i] = time.Now()
		defer l.Unlock()
		if l.Token() <= leases[i].Token() {
			t.Errorf("token %d follows %d", l.Token(), leases[i].Token())
		}
	}
	wg.Wait()
	for i, l := range leases {
		if !errors.Is(l.Err(), pawl.ErrLost) {
			t.Errorf("lease %d: %v", i, l.Err())
		}
	}
	for i, at := range got {
		if v, _ := lost.Load(i); v.(time.Time).After(at) {
			t.Errorf("lease %d was lost %v after the next one got its name", i, v.(time.Time).Sub(at))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	begun := time.Now()
	_, err := minority.Mutex("new").TryLock(ctx)
	if err == nil {
		t.Fatal("a lock was granted without a quorum")
	}
	if took := time.Since(begun); took > 2*time.Second+patience/2 {
		t.Errorf("TryLock with a ctx of 2 s took %v", took)
	}
	t.Logf("without a quorum: %v", err)
	old.Heal()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		l, err := minority.Mutex("new").TryLock(context.Background())
		if err == nil {
			l.Unlock()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the cut was healed: %v", err)
		}
	}
}

// Waiters outlive a compaction of everything, also when their watch is lost behind it.
func TestCompaction(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	a, b := client(t, c, 20*time.Second), client(t, c, 20*time.Second)
	for _, restart := range []bool{false, true} {
		name := fmt.Sprintf("compacted/%v", restart)
		l := lock(t, a.Mutex(name))
		got := make(chan error, 1)
		go func() {
			w, err := b.Mutex(name).Lock(context.Background())
			got <- err
			w.Unlock()
		}()
		waitContenders(t, c, name, 2)
		compact(t, raw)
		if restart {
			c.Members[0].Restart()
			compact(t, raw)
		}
		select {
		case err := <-got:
			t.Fatalf("the waiter got in while the name was held: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("restart=%v: the waiter was in after %v", restart, time.Since(released))
		case <-time.After(patience):
			t.Fatal("the waiter was not woken")
		}
	}
}

func compact(t *testing.T, raw *clientv3.Client) {
	t.Helper()
	var rev int64
	for i := range 500 {
		r, err := raw.Put(t.Context(), "other", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		rev = r.Header.Revision
	}
	if _, err := raw.Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// A lease that is revoked from outside: the holder is told at once, and so is a waiter, which goes on at the end of the
// line with a new session.
func TestRevoked(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	c := etcdtest.Start(t, etcdtest.Options{})
	raw := c.Client()
	a, b, third := client(t, c, ttl), client(t, c, ttl), client(t, c, ttl)

	l := lock(t, a.Mutex("revoked"))
	revoke(t, raw, "revoked/", 0)
	begun := time.Now()
	select {
	case <-l.Done():
		if !errors.Is(l.Err(), pawl.ErrLost) {
			t.Errorf("the lease ended with %v", l.Err())
		}
		t.Logf("the holder was told after %v", time.Since(begun))
	case <-time.After(ttl / 6): // a third of the TTL would be the next renewal
		t.Fatal("the holder was not told")
	}
	if err := l.Unlock(); err == nil {
		t.Error("Unlock of a lost lease answers nil")
	}

	l = lock(t, a.Mutex("revoked"))
	order := make(chan string, 2)
	for i, w := range []*pawl.Client{b, third} {
		go func() {
			l, err := w.Mutex("revoked").Lock(context.Background())
			if err != nil {
				t.Error(err)
			}
			order <- []string{"revoked", "third"}[i]
			l.Unlock()
		}()
		waitContenders(t, c, "revoked", int64(i+2))
	}
	revoke(t, raw, "revoked/", 1)
	waitContenders(t, c, "revoked", 3)
	select {
	case who := <-order:
		t.Fatalf("%s got in while the name is held", who)
	default:
	}
	l.Unlock()
	for _, want := range []string{"third", "revoked"} {
		select {
		case who := <-order:
			if who != want {
				t.Errorf("%s got in, right would be %s", who, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s did not get in", want)
		}
	}
}

// revoke ends the lease of the i-th contender.
func revoke(t *testing.T, raw *clientv3.Client, prefix string, i int) {
	t.Helper()
	r, err := raw.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil || len(r.Kvs) <= i {
		t.Fatalf("%d contenders, %v", len(r.Kvs), err)
	}
	if _, err := raw.Revoke(t.Context(), clientv3.LeaseID(r.Kvs[i].Lease)); err != nil {
		t.Fatal(err)
	}
}

// A wait that is cancelled while all members are down ends at once.
func TestCancelWhileDown(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	a, b := client(t, c, 10*time.Second), client(t, c, 10*time.Second)
	lock(t, a.Mutex("down"))
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() {
		_, err := b.Mutex("down").Lock(ctx)
		got <- err
	}()
	waitContenders(t, c, "down", 2)
	c.Members[0].Stop()
	cancel()
	begun := time.Now()
	select {
	case err := <-got:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Lock answers %v", err)
		}
		t.Logf("Lock was back after %v", time.Since(begun))
	case <-time.After(patience / 2):
		t.Fatal("Lock does not come back")
	}
	c.Members[0].Cont()
}

// The leader moves again and again, and no lease is lost.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	leases := hundred(t, client(t, c, ttl))
	begun := time.Now()
	for i := range 6 {
		from := c.Leader()
		cli := c.Client(from)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		list, err := cli.MemberList(ctx)
		if err == nil {
			st, err := cli.Status(ctx, from.Addr)
			if err == nil {
				for _, m := range list.Members {
					if m.ID != st.Header.MemberId {
						_, err = cli.MoveLeader(ctx, m.ID)
						break
					}
				}
			}
			if err != nil {
				t.Logf("move %d: %v", i, err)
			}
		}
		cancel()
		time.Sleep(time.Second)
	}
	mustOutlive(t, leases, ttl, begun.Add(3*time.Second))
}
