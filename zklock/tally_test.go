package zklock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// TestNumbersProveNothingOfOthers: a client that needs no listing any more sees whoever came, also in a directory that was
// made anew and whose numbers go on as the old one's would have.
func TestNumbersProveNothingOfOthers(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	conn := connect(t, server.Addr, 20*time.Second)
	name := fresh()
	dir := "/locks/" + name
	m := client(t, p.Addr, 20*time.Second).Mutex(name)
	create := func() string {
		t.Helper()
		path, err := conn.Create(dir+"/_c_5b1d2ad4-0000-4000-8000-000000000000-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	remove := func(path string) {
		t.Helper()
		if err := conn.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
	number := func(path string) (n int) {
		t.Helper()
		if _, err := fmt.Sscanf(path[len(path)-10:], "%d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// alone makes the client sure that it is, and answers the number of its last node.
	alone := func() (n int) {
		t.Helper()
		for range 6 {
			p.Counts()
			lease, err := m.Lock(ctxFor(t, patience))
			if err != nil {
				t.Fatal(err)
			}
			n = number(kids(t, conn, dir)[0])
			if err := lease.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		if c := p.Counts(); len(c) != 2 {
			t.Fatalf("a cycle took %v, so nothing is tested", c)
		}
		return n
	}
	refused := func(what string) {
		t.Helper()
		lease, err := m.Lock(ctxFor(t, 300*time.Millisecond))
		if wantIs(t, what, err, pawl.ErrHeld); err == nil {
			lease.Unlock()
		}
	}

	alone()
	other := create()
	refused("Lock behind another client's node")
	remove(other)

	last := alone()
	remove(dir)
	if _, err := conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	other = create()
	for n := number(other); n < last; {
		path := create()
		n = number(path)
		remove(path)
	}
	refused("Lock in a directory that was made anew")
	remove(other)
	alone()
}

// TestNewestZxidIsTold to the server that takes a session over: it must not lag behind what the session has seen.
func TestNewestZxidIsTold(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	d := open(t, url(p.Addr), nil)
	first, _ := take(t, d, request(driver.Exclusive, fresh(), time.Minute))
	for range 20 {
		last, g := take(t, d, request(driver.Exclusive, fresh(), time.Minute))
		if err := d.Release(t.Context(), last, driver.End{}); err != nil {
			t.Fatal(err)
		}
		before := g.Token >> 8
		p.Cut()
		within(t, patience, "the client is back", func() bool { return d.Renew(t.Context(), []driver.Hold{first})[0] == nil && p.Seen() != 0 })
		if seen := p.Seen(); seen < before {
			t.Fatalf("the client says that it has seen %#x, but it got a node of %#x", seen, before)
		}
	}
}
