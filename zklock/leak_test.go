package zklock_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
)

// TestCloseEndsAllGoroutines: nothing of the driver, nor of a connection that Open made, runs after Close. It runs alone.
func TestCloseEndsAllGoroutines(t *testing.T) {
	conn := connect(t, server.Addr, 20*time.Second)
	if _, _, err := conn.Exists("/"); err != nil { // so that it has all its goroutines
		t.Fatal(err)
	}
	left := func(what string) int {
		buf := make([]byte, 4<<20)
		n := 0
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, what) && !strings.Contains(g, "testing.tRunner") {
				n++
			}
		}
		return n
	}
	library := left("go-zookeeper/zk.(*Conn)")
	for _, make := range []func() *zklock.Driver{
		func() *zklock.Driver { return zklock.New(conn, &zklock.Options{Root: "/locks"}) },
		func() *zklock.Driver {
			return open(t, url(server.Addr), &zklock.Options{SessionTimeout: 5 * time.Second})
		},
	} {
		d, other := make(), zklock.New(conn, &zklock.Options{Root: "/locks"})
		name := fresh()
		h, _ := take(t, other, request(driver.Exclusive, name, time.Minute))
		r := request(driver.Exclusive, name, time.Minute)
		r.Wait = true
		p, err := d.Enter(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Try(t.Context(), 1)
		wantIs(t, "Try for a taken name", err, driver.ErrHeld)
		if _, err := d.Watch(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := p.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(t, d, request(driver.Exclusive, fresh(), time.Second)) // and nobody releases it
		d.Close()
		if err := other.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		other.Close()
		within(t, patience, "all goroutines have ended", func() bool {
			return left("pawl/zklock.") == 0 && left("go-zookeeper/zk.(*Conn)") <= library
		})
	}
}

// TestClosedConnection: when the caller closes the connection under the driver, holds are lost, and nothing hangs or runs on.
func TestClosedConnection(t *testing.T) {
	t.Parallel()
	conn, _, err := zk.Connect([]string{server.Addr}, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	locks := pawl.New(zklock.New(conn, &zklock.Options{Root: "/locks"}))
	lease, err := locks.Mutex(fresh()).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {
	case <-lease.Done():
	case <-time.After(patience):
		t.Error("the lease of a closed connection is not lost")
	}
	if _, err := locks.Mutex(fresh()).Lock(ctxFor(t, 500*time.Millisecond)); err == nil {
		t.Error("Lock on a closed connection succeeds")
	}
	locks.Close()
}

// TestGoZK: the client library's own Lock and pawl wait for each other.
func TestGoZK(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	name := fresh()
	m := client(t, server.Addr, 20*time.Second).Mutex(name)
	for range 5 {
		theirs := zk.NewLock(conn, "/locks/"+name, zk.WorldACL(zk.PermAll))
		if err := theirs.Lock(); err != nil {
			t.Fatal(err)
		}
		_, err := m.TryLock(t.Context())
		wantIs(t, "TryLock beside zk.Lock", err, pawl.ErrHeld)
		got := make(chan *pawl.Lease, 1)
		go func() {
			lease, err := m.Lock(ctxFor(t, patience))
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		time.Sleep(50 * time.Millisecond)
		if err := theirs.Unlock(); err != nil {
			t.Fatal(err)
		}
		lease := <-got
		next := make(chan error, 1)
		go func() { next <- theirs.Lock() }()
		select {
		case err := <-next:
			t.Fatalf("zk.Lock does not wait for pawl: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
		if err := theirs.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongNamesInABatch: a renewal is split before it gets too large for a server.
func TestLongNamesInABatch(t *testing.T) {
	t.Parallel()
	d := open(t, url(server.Addr), nil)
	var holds []driver.Hold
	for range 120 {
		h, _ := take(t, d, request(driver.Exclusive, fresh()+strings.Repeat("\x00", 4000), time.Minute))
		holds = append(holds, h)
	}
	for i, err := range d.Renew(t.Context(), holds) {
		if err != nil {
			t.Fatalf("hold %d: %v", i, err)
		}
	}
	r := request(driver.Permits, strings.Repeat("\x00", 4096), time.Minute)
	r.Permits, r.Limit = 500, 500
	_, err := d.Enter(t.Context(), r)
	wantIs(t, "five hundred permits of a very long name", err, driver.ErrInvalid)
}
