package zklock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// TestGrantIsTrustedForTwoThirds of the negotiated session timeout, not of the one asked for.
func TestGrantIsTrustedForTwoThirds(t *testing.T) {
	t.Parallel()
	d := open(t, url(server.Addr), &zklock.Options{SessionTimeout: time.Hour}) // the server allows a minute
	for ttl, want := range map[time.Duration]time.Duration{time.Hour: 40 * time.Second, 10 * time.Second: 10 * time.Second} {
		for _, kind := range everyKind {
			h, g := take(t, d, request(kind, fresh(), ttl))
			if g.TTL != want {
				t.Errorf("%s: a TTL of %v is granted for %v, want %v", kind, ttl, g.TTL, want)
			}
			if err := d.Release(t.Context(), h, driver.End{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnrenewedHoldRunsOut: the session of a living process does not end, so the driver ends what nobody renews.
func TestUnrenewedHoldRunsOut(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	for _, kind := range everyKind {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			d := zklock.New(conn, &zklock.Options{Root: "/locks"})
			defer d.Close()
			r := request(kind, fresh(), 1500*time.Millisecond)
			var lost atomic.Int64
			r.Notify = func(s driver.Signal) {
				if s == driver.Lost {
					lost.Store(int64(driver.Now()))
				}
			}
			h, g := take(t, d, r)
			within(t, patience, "the hold runs out", func() bool { return lost.Load() != 0 })
			if early := g.Sent.Add(g.TTL).Sub(driver.Instant(lost.Load())); early > 0 {
				t.Errorf("it ran out %v before its TTL", early)
			}
			wantIs(t, "Renew of a hold that ran out", d.Renew(t.Context(), []driver.Hold{h})[0], driver.ErrNotHeld)
			wantIs(t, "Release of a hold that ran out", d.Release(t.Context(), h, driver.End{}), driver.ErrNotHeld)
			rival := request(kind, r.Name, time.Minute)
			if kind == driver.Read {
				rival.Kind = driver.Write
			}
			take(t, d, rival)
		})
	}
}

// TestRenewedHoldOutlivesItsTTL, with the batch of a thousand that renewals come in.
func TestRenewedHoldOutlivesItsTTL(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	d := open(t, url(p.Addr), &zklock.Options{SessionTimeout: 20 * time.Second})
	const n = 1000
	prefix := fresh()
	holds := make([]driver.Hold, n)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			r := request(driver.Exclusive, prefix+string(rune('a'+i%26))+newID(), 10*time.Second)
			place, err := d.Enter(t.Context(), r)
			if err == nil {
				var g driver.Grant
				g, err = place.Try(t.Context(), 1)
				r.Hold.Token = g.Token
			}
			holds[i] = r.Hold
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	p.Counts()
	for i, err := range d.Renew(t.Context(), holds) {
		if err != nil {
			t.Fatalf("hold %d of %d: %v", i, n, err)
		}
	}
	counts := p.Counts()
	if total := counts[zktest.Multi]; len(counts) != 1 || total > 4 {
		t.Errorf("the renewal of %d holds took these requests: %v, want at most 4 transactions", n, counts)
	}
	// A stranger deletes some: only those are lost.
	conn := connect(t, server.Addr, 20*time.Second)
	for _, i := range []int{0, 300, 301, 999} {
		if !deleteAll(t, conn, "/locks/"+strings.ReplaceAll(holds[i].Name, "/", "%2F")) {
			t.Fatalf("no directory of %q", holds[i].Name)
		}
	}
	for i, err := range d.Renew(t.Context(), holds) {
		gone := i == 0 || i == 300 || i == 301 || i == 999
		if gone != errors.Is(err, driver.ErrNotHeld) || !gone && err != nil {
			t.Errorf("hold %d: %v", i, err)
		}
	}
}

// TestCloseOnACallersConnection: holds run out, the connection stays, and in the end nothing of the driver is left.
func TestCloseOnACallersConnection(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	d := zklock.New(conn, &zklock.Options{Root: "/locks"})
	short, long := request(driver.Exclusive, fresh(), 2*time.Second), request(driver.Exclusive, fresh(), 2*time.Second)
	_, g := take(t, d, short)
	take(t, d, long)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Exists("/"); err != nil {
		t.Fatalf("Close of the driver hurt the caller's connection: %v", err)
	}
	other := zklock.New(conn, &zklock.Options{Root: "/locks"})
	defer other.Close()
	_, err := try(t, other, request(driver.Exclusive, short.Name, time.Second))
	if driver.Now() < g.Sent.Add(g.TTL) {
		wantIs(t, "a request for a name that a closed driver holds", err, driver.ErrHeld)
	}
	within(t, patience, "what the closed driver held is free", func() bool {
		return len(kids(t, conn, "/locks/"+short.Name))+len(kids(t, conn, "/locks/"+long.Name)) == 0
	})
}

// TestCloseEndsTheSession of a connection that Open made, if nothing is held, and leaves it to time out otherwise.
func TestCloseEndsTheSession(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, zktest.Config{})
	sessions := func() string {
		_, n, _ := strings.Cut(s.Ask("mntr"), "zk_global_sessions\t")
		n, _, _ = strings.Cut(n, "\n")
		return n
	}
	d := open(t, url(s.Addr), nil)
	h, _ := take(t, d, request(driver.Exclusive, "a", time.Minute))
	if n := sessions(); n != "1" {
		t.Fatalf("%q sessions while the driver is open, want 1", n)
	}
	if err := d.Release(t.Context(), h, driver.End{}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if n := sessions(); n != "0" {
		t.Errorf("%q sessions after Close, want none", n)
	}
	d = open(t, url(s.Addr), nil)
	take(t, d, request(driver.Exclusive, "a", time.Minute))
	d.Close()
	conn := connect(t, s.Addr, 10*time.Second)
	if n := len(kids(t, conn, "/locks/a")); n != 1 {
		t.Errorf("Close of a driver with a hold left %d nodes, want the hold's", n)
	}
}

// TestKeptNameShowsNobody whom the old hold's ID could end, and yields to an operator.
func TestKeptNameShowsNobody(t *testing.T) {
	t.Parallel()
	d := open(t, url(server.Addr), nil)
	h, _ := take(t, d, request(driver.Exclusive, fresh(), time.Minute))
	if err := d.Release(t.Context(), h, driver.End{Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	r, err := d.Inspect(t.Context(), h.Name)
	if err != nil || len(r.Holds) != 1 || r.Holds[0].ID == h.ID {
		t.Fatalf("a kept name shows %+v, %v", r, err)
	}
	other := open(t, url(server.Addr), nil)
	if err := other.Release(t.Context(), r.Holds[0].Hold, driver.End{}); err != nil {
		t.Errorf("an operator frees a kept name: %v", err)
	}
	take(t, other, request(driver.Exclusive, h.Name, time.Minute))
}

// TestPeerToken is the czxid of the hold's node, and so is pawl's own token but for the low bits.
func TestPeerToken(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	for _, kind := range everyKind {
		name := fresh()
		for round := range 6 {
			peer := round%2 == 1
			d := zklock.New(conn, &zklock.Options{Root: "/locks", PeerToken: peer})
			r := request(kind, name, time.Minute)
			p, err := d.Enter(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			g, err := p.Try(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			dir := "/locks/" + name
			if kind == driver.Permits {
				dir += "/leases"
			}
			children := kids(t, conn, dir)
			if len(children) != 1 {
				t.Fatalf("%s: %q are in %s", kind, children, dir)
			}
			_, stat, err := conn.Exists(dir + "/" + children[0])
			if err != nil {
				t.Fatal(err)
			}
			want, span := stat.Czxid<<8, 256
			if peer {
				want, span = stat.Czxid, 1
			}
			if g.Token != want || g.Span != span {
				t.Errorf("%s, PeerToken %v: token %d span %d, want %d and %d", kind, peer, g.Token, g.Span, want, span)
			}
			r.Hold.Token = g.Token
			if err := d.Release(t.Context(), r.Hold, driver.End{}); err != nil {
				t.Error(err)
			}
			d.Close()
		}
	}
}

// TestTokenIsTheCzxidUnderLoad: the proof that saves a request must never be wrong.
func TestTokenIsTheCzxidUnderLoad(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	name := fresh()
	stop := make(chan struct{})
	defer close(stop)
	for i := range 2 { // others come and go, some through the same driver
		d := zklock.New(conn, &zklock.Options{Root: "/locks"})
		defer d.Close()
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(i) * time.Millisecond):
				}
				r := request(driver.Exclusive, name, time.Minute)
				r.Wait = true
				p, err := d.Enter(context.Background(), r)
				if err != nil {
					return
				}
				if g, err := p.Try(context.Background(), 1); err == nil {
					r.Hold.Token = g.Token
					d.Release(context.Background(), r.Hold, driver.End{})
				} else {
					p.Leave(context.Background())
				}
			}
		}()
	}
	d := zklock.New(conn, &zklock.Options{Root: "/locks"})
	defer d.Close()
	got := 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) || got < 20; {
		r := request(driver.Exclusive, name, time.Minute)
		r.Wait = true
		p, err := d.Enter(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		g, err := p.Try(t.Context(), 1)
		if err != nil {
			if err := p.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got++
		r.Hold.Token = g.Token
		found := false
		for _, c := range kids(t, conn, "/locks/"+name) {
			if strings.HasPrefix(c, "_c_"+strings.Replace(r.ID, ":", "-", 1)+"-") {
				_, stat, err := conn.Exists("/locks/" + name + "/" + c)
				if err != nil {
					t.Fatal(err)
				}
				found = true
				if g.Token != stat.Czxid<<8 {
					t.Fatalf("the token is %d, the czxid of the node %d", g.Token, stat.Czxid)
				}
			}
		}
		if !found {
			t.Fatal("the hold has no node")
		}
		if err := d.Release(t.Context(), r.Hold, driver.End{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRequestsPerCycle counts what goes over the wire.
func TestRequestsPerCycle(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	locks := client(t, p.Addr, 20*time.Second)
	name := fresh()
	conn := connect(t, server.Addr, 20*time.Second) // a directory that the server does not remove meanwhile
	for _, dir := range []string{"/locks", "/locks/" + name} {
		if _, err := conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
			t.Fatal(err)
		}
	}
	m := locks.Mutex(name)
	cycle := func() {
		t.Helper()
		lease, err := m.Lock(t.Context())
		if err == nil {
			err = lease.Unlock()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the directory is made, the watch is set, and seen to be right
		cycle()
	}
	p.Counts()
	const rounds = 100
	for range rounds {
		cycle()
	}
	counts := p.Counts()
	if counts[zktest.Create] != rounds || counts[zktest.Delete] != rounds || len(counts) != 2 {
		t.Errorf("%d cycles took these requests: %v, want a create and a delete each", rounds, counts)
	}
}

// TestRequestsOfAFirstUse counts them for a name that nobody has used yet: its directory is made in the same round trip.
func TestRequestsOfAFirstUse(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	d := open(t, url(p.Addr), nil)
	h, _ := take(t, d, request(driver.Exclusive, fresh(), time.Minute)) // the root is made, and the session watched
	within(t, patience, "the session is watched", func() bool { return p.Counts()[zktest.Exists] > 0 })
	r := request(driver.Exclusive, fresh(), time.Minute)
	r.Wait = true
	second, _ := take(t, d, r)
	for _, h := range []driver.Hold{h, second} {
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
	}
	c := p.Counts()
	if c[zktest.Container] != 1 || c[zktest.Create] != 1 || c[zktest.GetChildren] != 1 || c[zktest.Delete] != 2 || len(c) != 4 {
		t.Errorf("a first use took these requests: %v, want a directory, a create, a listing and two deletes", c)
	}
}

// TestRequestsOfASemaphore counts them, for permits that have to be waited for or not.
func TestRequestsOfASemaphore(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	sem := client(t, p.Addr, 20*time.Second).Semaphore(fresh(), 3)
	cycle := func() {
		t.Helper()
		lease, err := sem.Lock(t.Context())
		if err == nil {
			err = lease.Unlock()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	p.Counts()
	cycle()
	counts := p.Counts()
	if counts[zktest.Create] != 1 || counts[zktest.Multi] != 1 || counts[zktest.Delete] != 1 || counts[zktest.Exists] != 1 ||
		counts[zktest.GetChildren] < 3 || counts[zktest.GetChildren] > 4 {
		t.Errorf("a cycle took these requests: %v, want a create, 3 listings, a transaction, a read and a delete", counts)
	}
}

// TestRefusalWritesNothing: who will not wait reads, after a sync, since the member that it asks may lag behind a release.
func TestRefusalWritesNothing(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	a, b := open(t, url(server.Addr), nil), open(t, url(p.Addr), nil)
	for _, kind := range everyKind {
		rival := kind
		if kind == driver.Read {
			rival = driver.Write
		}
		name := fresh()
		take(t, a, request(kind, name, time.Minute))
		p.Counts()
		_, err := try(t, b, request(rival, name, time.Minute))
		wantIs(t, kind.String(), err, driver.ErrHeld)
		counts := p.Counts()
		if counts[zktest.Sync] != 1 {
			t.Errorf("%s: a refusal took %d syncs, want 1", kind, counts[zktest.Sync])
		}
		for op, n := range counts {
			if op != zktest.Sync && op != zktest.GetChildren && op != zktest.GetData {
				t.Errorf("%s: a refusal took %d requests of type %d", kind, n, op)
			}
		}
	}
}

// TestHandOverTakesTwoRoundTrips: the deletion by the one, and one look by the other.
func TestHandOverTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	a, b := open(t, url(server.Addr), nil), open(t, url(p.Addr), nil)
	name := fresh()
	first, _ := take(t, a, request(driver.Exclusive, name, time.Minute))
	r := request(driver.Exclusive, name, time.Minute)
	r.Wait = true
	news := make(chan driver.Signal, 10)
	r.Notify = func(s driver.Signal) { news <- s }
	place, err := b.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = place.Try(t.Context(), 1)
	wantIs(t, "Try for a taken name", err, driver.ErrHeld)
	for range 10 {
		p.Counts()
		if err := a.Release(t.Context(), first, driver.End{}); err != nil {
			t.Fatal(err)
		}
		if s := <-news; s != driver.Changed {
			t.Fatalf("told %v", s)
		}
		g, err := place.Try(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		counts := p.Counts()
		if counts[zktest.GetChildren] != 1 || counts[zktest.Exists] > 2 || len(counts) > 2 {
			t.Errorf("the next holder's requests: %v, want one listing and one look at its node, both at once", counts)
		}
		second := r.Hold
		second.Token = g.Token
		again := request(driver.Exclusive, name, time.Minute)
		again.Wait, again.Notify = true, r.Notify
		if err := b.Release(t.Context(), second, driver.End{}); err != nil {
			t.Fatal(err)
		}
		first, _ = take(t, a, request(driver.Exclusive, name, time.Minute))
		r = again
		if place, err = b.Enter(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		_, err = place.Try(t.Context(), 1)
		wantIs(t, "Try for a taken name", err, driver.ErrHeld)
	}
}

// TestWaitersCostOneNode: however many goroutines of a client wait, the ensemble sees one contender.
func TestWaitersCostOneNode(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	holder, locks := client(t, server.Addr, 20*time.Second), client(t, server.Addr, 20*time.Second)
	name := fresh()
	lease, err := holder.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	done := make(chan error, n)
	for range n {
		go func() { done <- locks.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }) }()
	}
	time.Sleep(500 * time.Millisecond)
	if got := len(kids(t, conn, "/locks/"+name)); got > 2 {
		t.Errorf("%d waiting goroutines have %d nodes, want 1", n, got-1)
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if got := kids(t, conn, "/locks/"+name); len(got) != 0 {
		t.Errorf("these nodes are left: %q", got)
	}
}

// TestMinimumHold keeps the name taken after Unlock, in the place of the hold.
func TestMinimumHold(t *testing.T) {
	t.Parallel()
	locks, other := client(t, server.Addr, 20*time.Second), client(t, server.Addr, 20*time.Second)
	name := fresh()
	begin := time.Now()
	lease, err := locks.With(pawl.Options{MinHold: time.Second}).Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	next, err := other.Mutex(name).Lock(ctxFor(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 990*time.Millisecond {
		t.Errorf("the name was free after %v, want a second", took)
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d follows %d", next.Token(), lease.Token())
	}
	next.Unlock()
}

// TestNamesLeaveNothing: the directories of names that nobody uses any more go by themselves.
func TestNamesLeaveNothing(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, zktest.Config{})
	conn := connect(t, s.Addr, 20*time.Second)
	if _, err := conn.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	locks := client(t, s.Addr, 20*time.Second)
	for i := range 300 {
		var l pawl.Locker = locks.Mutex(fresh())
		if i%3 == 0 {
			l = locks.Semaphore(fresh(), 3)
		}
		lease, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 30*time.Second, "all directories are gone", func() bool { return len(kids(t, conn, "/locks")) == 0 })
}

// TestNestedNames do not disturb each other, nor a Curator client that counts every child.
func TestNestedNames(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	d := open(t, url(server.Addr), nil)
	base := fresh()
	var holds []driver.Hold
	for _, name := range []string{base, base + "/0", base + "/0/1", base + "/locks", base + "/leases"} {
		h, _ := take(t, d, request(driver.Exclusive, name, time.Minute))
		holds = append(holds, h)
	}
	if got := kids(t, conn, "/locks/"+base); len(got) != 1 {
		t.Errorf("the lock %q has the children %q", base, got)
	}
	for _, h := range holds {
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Error(err)
		}
	}
}

// TestStrangers are passed over where that is safe, honoured where it is not, and reported.
func TestStrangers(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	name := fresh()
	for _, path := range []string{"/locks", "/locks/" + name, "/locks/" + name + "/0"} {
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists {
			t.Fatal(err)
		}
	}
	seen := make(chan zklock.Stranger, 10)
	d := open(t, url(server.Addr), &zklock.Options{OnStranger: func(s zklock.Stranger) { seen <- s }})
	h, _ := take(t, d, request(driver.Exclusive, name, time.Minute))
	if s := <-seen; s.Node != "0" || s.Path != "/locks/"+name || s.Trouble == "" {
		t.Errorf("reported was %+v", s)
	}
	if err := d.Release(t.Context(), h, driver.End{}); err != nil {
		t.Fatal(err)
	}
	kazoo, err := conn.Create("/locks/"+name+"/0123456789abcdef0123456789abcdef__lock__", []byte("me"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	_, err = try(t, d, request(driver.Exclusive, name, time.Minute))
	var held *driver.HeldError
	if !errors.As(err, &held) || held.By.Who.Label != "me" {
		t.Errorf("beside a kazoo holder: %v", err)
	}
	if s := <-seen; !strings.Contains(s.Trouble, "kazoo") {
		t.Errorf("reported was %+v", s)
	}
	if len(seen) > 0 {
		t.Errorf("a trouble should be reported once, also came %+v", <-seen)
	}
	r, err := d.Inspect(t.Context(), name)
	if err != nil || len(r.Holds) != 1 || r.Holds[0].ID != strings.TrimPrefix(kazoo, "/locks/"+name+"/") {
		t.Fatalf("Inspect: %+v, %v", r, err)
	}
	if err := d.Release(t.Context(), r.Holds[0].Hold, driver.End{}); err != nil {
		t.Errorf("an operator ends a foreign hold: %v", err)
	}
	take(t, d, request(driver.Exclusive, name, time.Minute))
}
