package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// TestLostReplies cuts the connection between what the server did and its answer, for each step of each kind. Whatever the
// client says then, it says the truth, and nothing is left behind.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, kind := range everyKind {
		for what, op := range map[string]int32{"create": zktest.Create, "list": zktest.GetChildren, "read": zktest.Exists, "multi": zktest.Multi, "delete": zktest.Delete} {
			t.Run(kind.String()+"/"+what, func(t *testing.T) {
				t.Parallel()
				conn := connect(t, server.Addr, 20*time.Second)
				p := proxied(t)
				d := open(t, url(p.Addr), &zklock.Options{SessionTimeout: 20 * time.Second})
				warm, _ := take(t, d, request(kind, fresh(), time.Minute))
				if err := d.Release(t.Context(), warm, driver.End{}); err != nil {
					t.Fatal(err)
				}
				r := request(kind, fresh(), time.Minute)
				r.Wait = true
				dir := "/locks/" + r.Name
				nodes := func() int {
					return len(kids(t, conn, dir+"/locks")) + len(kids(t, conn, dir+"/leases")) + countLocks(kids(t, conn, dir))
				}
				p.CutReply(op)
				place, err := d.Enter(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				g, err := place.Try(ctxFor(t, patience), 1)
				switch {
				case err == nil:
					r.Hold.Token = g.Token
					if n := nodes(); n != 1 {
						t.Errorf("a hold has %d nodes, want 1", n)
					}
					rival := request(kind, r.Name, time.Minute)
					if kind == driver.Read {
						rival.Kind = driver.Write
					}
					_, err := try(t, open(t, url(server.Addr), nil), rival)
					wantIs(t, "a rival beside a hold whose reply was lost", err, driver.ErrHeld)
					err = d.Release(ctxFor(t, patience), r.Hold, driver.End{})
					for i := 0; err != nil && !errors.Is(err, driver.ErrNotHeld) && i < 100; i++ {
						time.Sleep(50 * time.Millisecond)
						err = d.Release(ctxFor(t, patience), r.Hold, driver.End{})
					}
					if err != nil && !errors.Is(err, driver.ErrNotHeld) {
						t.Errorf("Release: %v", err)
					}
				case errors.Is(err, driver.ErrHeld):
					t.Errorf("nobody holds the name, but Try says: %v", err)
				default:
					within(t, patience, "Leave succeeds", func() bool { return place.Leave(t.Context()) == nil })
				}
				if n := nodes(); n != 0 {
					t.Errorf("%d nodes are left", n)
				}
			})
		}
	}
}

func countLocks(children []string) int {
	n := 0
	for _, c := range children {
		if c != "locks" && c != "leases" {
			n++
		}
	}
	return n
}

// TestLostReplyOfACreateIsRecovered: the node is found again by its name, and the acquire goes on.
func TestLostReplyOfACreateIsRecovered(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	locks := client(t, p.Addr, 20*time.Second)
	m := locks.Mutex(fresh())
	for range 3 {
		lease, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lease.Unlock()
		p.CutReply(zktest.Create)
		lease, err = m.Lock(ctxFor(t, patience))
		if err != nil || p.Pending() {
			t.Fatalf("Lock with a lost reply: %v (still to come: %v)", err, p.Pending())
		}
		p.CutReply(zktest.Delete)
		if err := lease.Unlock(); err != nil && !errors.Is(err, pawl.ErrUnknown) {
			t.Errorf("Unlock with a lost reply: %v", err)
		}
	}
}

// TestReleaseDuringAnOutage: the node is deleted as soon as the connection is back, well within the session, and the same
// process can take the name again.
func TestReleaseDuringAnOutage(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	locks := client(t, p.Addr, 20*time.Second)
	m := locks.Mutex(fresh())
	lease, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Refuse(true)
	p.Cut()
	unlocked := make(chan error, 1)
	go func() { unlocked <- lease.Unlock() }()
	time.Sleep(500 * time.Millisecond)
	p.Refuse(false)
	next, err := m.Lock(ctxFor(t, 10*time.Second))
	if err != nil {
		t.Fatalf("Lock after the outage: %v", err)
	}
	next.Unlock()
	if err := <-unlocked; err != nil && !errors.Is(err, pawl.ErrUnknown) {
		t.Errorf("Unlock in the outage: %v", err)
	}
}

// TestReleaseIsCarriedOut by the driver when the connection is back, even when nobody asks again.
func TestReleaseIsCarriedOut(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	p := proxied(t)
	d := open(t, url(p.Addr), &zklock.Options{SessionTimeout: 40 * time.Second})
	h, _ := take(t, d, request(driver.Exclusive, fresh(), 40*time.Second))
	p.Refuse(true)
	p.Cut()
	if d.Release(ctxFor(t, 100*time.Millisecond), h, driver.End{}) == nil {
		t.Error("Release without a connection succeeds")
	}
	p.Refuse(false)
	within(t, 15*time.Second, "the node is gone", func() bool { return len(kids(t, conn, "/locks/"+h.Name)) == 0 })
}

// TestLeaveFindsALostCreate: the reply to the create was lost, and the caller gave up before the connection was back.
func TestLeaveFindsALostCreate(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	for _, kind := range []driver.Kind{driver.Exclusive, driver.Permits} {
		for _, op := range []int32{zktest.Create, zktest.Multi} {
			p := proxied(t)
			d := open(t, url(p.Addr), &zklock.Options{SessionTimeout: 40 * time.Second})
			warm := request(kind, fresh(), time.Minute)
			h, _ := take(t, d, warm)
			if err := d.Release(t.Context(), h, driver.End{}); err != nil {
				t.Fatal(err)
			}
			r := request(kind, warm.Name, time.Minute)
			r.Wait = true
			place, err := d.Enter(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			p.Refuse(true)
			p.CutReply(op)
			_, err = place.Try(ctxFor(t, 300*time.Millisecond), 1)
			if err == nil && kind == driver.Permits || err != nil && errors.Is(err, driver.ErrNotDone) {
				t.Errorf("%s: the reply to a create was lost, but Try says: %v", kind, err)
			}
			p.Refuse(false)
			within(t, patience, "Leave succeeds", func() bool { return place.Leave(t.Context()) == nil })
			dir := "/locks/" + r.Name
			if left := countLocks(kids(t, conn, dir)) + len(kids(t, conn, dir+"/locks")) + len(kids(t, conn, dir+"/leases")); left != 0 {
				t.Errorf("%s: %d nodes are left", kind, left)
			}
		}
	}
}

// TestOneIDInTwoSessions is refused: a node of another session is never taken for one's own.
func TestOneIDInTwoSessions(t *testing.T) {
	t.Parallel()
	a, b := open(t, url(server.Addr), nil), open(t, url(server.Addr), nil)
	for _, kind := range everyKind {
		for _, wait := range []bool{false, true} {
			r := request(kind, fresh(), 5*time.Second)
			r.Wait = wait
			h, _ := take(t, a, r)
			_, err := try(t, b, r)
			if err == nil {
				t.Errorf("%s: the hold of another session was granted again", kind)
			}
			if err := a.Renew(t.Context(), []driver.Hold{h})[0]; err != nil {
				t.Errorf("%s: the first session's hold: %v", kind, err)
			}
			if err := a.Release(t.Context(), h, driver.End{}); err != nil {
				t.Errorf("%s: Release: %v", kind, err)
			}
		}
	}
}

// TestLeaveDuringAnOutage: the driver undoes a waiter by itself, even when nobody asks it again.
func TestLeaveDuringAnOutage(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	for _, kind := range []driver.Kind{driver.Exclusive, driver.Permits} {
		p := proxied(t)
		a, b := open(t, url(server.Addr), nil), open(t, url(p.Addr), &zklock.Options{SessionTimeout: 30 * time.Second})
		r := request(kind, fresh(), time.Minute)
		h, _ := take(t, a, r)
		w := request(kind, r.Name, time.Minute)
		w.Wait = true
		place, err := b.Enter(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		_, err = place.Try(t.Context(), 1)
		wantIs(t, "Try for a taken name", err, driver.ErrHeld)
		p.Refuse(true)
		p.Cut()
		if place.Leave(ctxFor(t, 100*time.Millisecond)) == nil {
			t.Errorf("%s: Leave without a connection says that nothing is left", kind)
		}
		p.Refuse(false)
		if err := a.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		within(t, 15*time.Second, "the waiter's node is gone", func() bool {
			return countLocks(kids(t, conn, "/locks/"+r.Name))+len(kids(t, conn, "/locks/"+r.Name+"/locks")) == 0
		})
	}
}

// TestShortOutage keeps all leases: the session lives on, and the nodes with it.
func TestShortOutage(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	locks := client(t, p.Addr, 12*time.Second)
	var leases []*pawl.Lease
	for range 20 {
		lease, err := locks.With(pawl.Options{TTL: 6 * time.Second}).Mutex(fresh()).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	p.Cut()
	p.Hole(true)
	time.Sleep(time.Second)
	p.Hole(false)
	p.Cut()
	time.Sleep(7 * time.Second) // longer than the TTL from before
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Errorf("a short outage cost a lease: %v", err)
		}
		if err := lease.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}
}

// TestTrustEndsFirst: a holder whose connection is dead stops before the server gives its name away.
func TestTrustEndsFirst(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			p := proxied(t)
			holder, rival := client(t, p.Addr, session), client(t, server.Addr, session)
			name := fresh()
			lease, err := holder.Mutex(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lost := make(chan driver.Instant, 1)
			go func() {
				<-lease.Done()
				lost <- driver.Now()
			}()
			time.Sleep(rand.N(session / 2)) // anywhere between two renewals
			if i%2 == 0 {
				p.Hole(true)
			} else {
				p.Refuse(true)
				p.Cut()
			}
			next, err := rival.Mutex(name).Lock(ctxFor(t, session+patience))
			got := driver.Now()
			if err != nil {
				t.Fatalf("nobody got the name of a dead holder: %v", err)
			}
			select {
			case at := <-lost:
				if at >= got {
					t.Errorf("the holder was told %v after the next one got in", at.Sub(got))
				}
			default:
				t.Error("the holder did not know of its loss when the next one got in")
			}
			if next.Token() <= lease.Token() {
				t.Errorf("token %d follows %d", next.Token(), lease.Token())
			}
			next.Unlock()
		})
	}
}

// TestSessionEndedFromOutside loses all leases of the session at once, and a new session takes over, again and again.
func TestSessionEndedFromOutside(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	locks, rival := client(t, p.Addr, time.Minute), client(t, server.Addr, 20*time.Second)
	for round := range 3 {
		const n = 30
		var leases []*pawl.Lease
		var names []string
		for range n {
			name := fresh()
			lease, err := locks.Mutex(name).Lock(ctxFor(t, patience))
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			names, leases = append(names, name), append(leases, lease)
		}
		begin := time.Now()
		if err := p.EndSession(); err != nil {
			t.Fatal(err)
		}
		p.Cut()
		for _, lease := range leases {
			select {
			case <-lease.Done():
				wantIs(t, "a lease whose session was ended", lease.Err(), pawl.ErrLost)
			case <-time.After(8 * time.Second):
				t.Fatalf("round %d: a lease whose session was ended is not lost after %v", round, time.Since(begin))
			}
		}
		if took := time.Since(begin); took > 8*time.Second { // renewals come every ten
			t.Errorf("round %d: it took %v until all were lost", round, took)
		}
		for i, name := range names[:5] {
			next, err := rival.Mutex(name).TryLock(ctxFor(t, patience))
			if err != nil {
				t.Fatalf("round %d: the name of a session that was ended: %v", round, err)
			}
			if next.Token() <= leases[i].Token() {
				t.Errorf("token %d follows %d", next.Token(), leases[i].Token())
			}
			next.Unlock()
			wantIs(t, "Unlock of a lost lease", leases[i].Unlock(), pawl.ErrLost)
		}
	}
}

// TestWaiterWhoseSessionEnded queues again, with a node of the new session.
func TestWaiterWhoseSessionEnded(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	p := proxied(t)
	holder, waiter := client(t, server.Addr, 20*time.Second), client(t, p.Addr, 20*time.Second)
	name := fresh()
	lease, err := holder.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Mutex(name).Lock(ctxFor(t, time.Minute))
		if err == nil {
			next.Unlock()
		}
		got <- err
	}()
	within(t, patience, "the waiter is in line", func() bool { return len(kids(t, conn, "/locks/"+name)) == 2 })
	if err := p.EndSession(); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	within(t, patience, "the waiter is in line again", func() bool { return len(kids(t, conn, "/locks/"+name)) == 2 })
	lease.Unlock()
	if err := <-got; err != nil {
		t.Errorf("the waiter got: %v", err)
	}
}

// TestBouncingConnections: fifty clients whose connections are cut again and again make progress, exclude each other, and
// leave no child behind.
func TestBouncingConnections(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	names := []string{fresh(), fresh(), fresh()}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var cycles [3]atomic.Int64
	begin := time.Now()
	var inside [3]atomic.Int64
	var wg, bouncers sync.WaitGroup
	over := make(chan struct{})
	for i := range 50 {
		p := proxied(t)
		d, err := zklock.Open(t.Context(), url(p.Addr), &zklock.Options{SessionTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		locks := pawl.New(d)
		bouncers.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(200*time.Millisecond + rand.N(800*time.Millisecond)):
					p.Cut()
				}
			}
		})
		wg.Go(func() {
			defer func() {
				if err := locks.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			k := i % 3
			var l pawl.Locker
			switch k {
			case 0:
				l = locks.Mutex(names[k])
			case 1:
				l = locks.RWMutex(names[k])
			case 2:
				l = locks.Semaphore(names[k], 1)
			}
			for ctx.Err() == nil {
				lease, err := l.Lock(ctx)
				if err != nil {
					continue // a connection was cut at a bad moment
				}
				if n := inside[k].Add(1); n > 1 && lease.Err() == nil {
					t.Errorf("%d are inside %s", n, names[k])
				}
				time.Sleep(rand.N(5 * time.Millisecond))
				cycles[k].Add(1)
				if time.Since(begin) > 6*time.Second && min(cycles[0].Load(), cycles[1].Load(), cycles[2].Load()) >= 20 {
					cancel() // enough was seen
				}
				inside[k].Add(-1)
				for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
					if err := lease.Unlock(); err == nil || !errors.Is(err, pawl.ErrUnknown) || time.Now().After(end) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	close(over)
	bouncers.Wait()
	left := func() (n int) {
		for _, name := range names {
			n += countLocks(kids(t, conn, "/locks/"+name)) + len(kids(t, conn, "/locks/"+name+"/locks")) + len(kids(t, conn, "/locks/"+name+"/leases"))
		}
		return n
	}
	// Undone in the background, or with a session that a client could not close for a cut connection.
	within(t, 10*time.Second+patience, "no child is left", func() bool { return left() == 0 })
	for k := range cycles {
		if cycles[k].Load() < 20 {
			t.Errorf("%s: only %d cycles", names[k], cycles[k].Load())
		}
	}
	t.Logf("cycles: mutex %d, write lock %d, semaphore %d", cycles[0].Load(), cycles[1].Load(), cycles[2].Load())
}

// TestCancelledWaits ends waits at random moments, thousands of times, and nothing is left.
func TestCancelledWaits(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	locks, other := client(t, server.Addr, 20*time.Second), client(t, server.Addr, 20*time.Second)
	for _, l := range []struct {
		name string
		of   func(c *pawl.Client, name string) pawl.Locker
	}{
		{fresh(), func(c *pawl.Client, name string) pawl.Locker { return c.FairMutex(name) }},
		{fresh(), func(c *pawl.Client, name string) pawl.Locker { return c.Semaphore(name, 2) }},
	} {
		var wg sync.WaitGroup
		for i := range 20 {
			c := locks
			if i%2 == 0 {
				c = other
			}
			wg.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Millisecond))
					lease, err := l.of(c, l.name).Lock(ctx)
					cancel()
					if err == nil {
						lease.Unlock()
					}
				}
			})
		}
		wg.Wait()
		within(t, patience, "no child is left", func() bool {
			return countLocks(kids(t, conn, "/locks/"+l.name))+len(kids(t, conn, "/locks/"+l.name+"/locks"))+len(kids(t, conn, "/locks/"+l.name+"/leases")) == 0
		})
	}
}

// TestParentsVanish: servers remove empty directories at any time, here at the worst.
func TestParentsVanish(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	name := fresh()
	stop := make(chan struct{})
	gone := make(chan int, 1)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				gone <- n
				return
			default:
			}
			for _, sub := range []string{"/locks", "/leases", ""} {
				if conn.Delete("/locks/"+name+sub, -1) == nil {
					n++
				}
			}
		}
	}()
	var inside, cycles atomic.Int32
	done := make(chan error, 4)
	for i := range 4 {
		locks := client(t, server.Addr, 20*time.Second)
		go func() {
			for range 40 {
				var l pawl.Locker = locks.Mutex(name + "")
				if i >= 2 {
					l = locks.Semaphore(name+"", 1)
				}
				lease, err := l.Lock(context.Background())
				if errors.Is(err, pawl.ErrMismatch) {
					continue
				}
				if err != nil {
					done <- err
					return
				}
				if inside.Add(1) > 1 {
					done <- errors.New("two are inside")
					return
				}
				cycles.Add(1)
				inside.Add(-1)
				if err := lease.Unlock(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if n := <-gone; n == 0 || cycles.Load() == 0 {
		t.Errorf("%d directories were deleted during %d cycles: nothing was tested", n, cycles.Load())
	}
}

// TestNodesDeletedByHand: whatever an operator deletes, at whatever moment, nobody hangs and nothing is left.
func TestNodesDeletedByHand(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	name := fresh()
	stop := make(chan struct{})
	var vandal, wg sync.WaitGroup
	deleted := 0
	vandal.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(5 * time.Millisecond)):
			}
			children, _, err := conn.Children("/locks/" + name)
			if err == nil && len(children) > 0 && conn.Delete("/locks/"+name+"/"+children[rand.N(len(children))], -1) == nil {
				deleted++
			}
		}
	})
	for range 4 {
		m := client(t, server.Addr, 20*time.Second).FairMutex(name)
		wg.Go(func() {
			for range 60 {
				lease, err := m.Lock(ctxFor(t, patience))
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				time.Sleep(rand.N(3 * time.Millisecond))
				lease.Unlock()
			}
		})
	}
	wg.Wait()
	close(stop)
	vandal.Wait()
	if deleted < 10 {
		t.Errorf("only %d nodes were deleted: nothing was tested", deleted)
	}
	within(t, patience, "no child is left", func() bool { return len(kids(t, conn, "/locks/"+name)) == 0 })
}
