package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redlock"
)

// bubble runs f in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestMembersThatCannotWork(t *testing.T) {
	one := memlock.New()
	fresh := func(n int) (ms []driver.Driver) {
		for range n {
			ms = append(ms, memlock.New())
		}
		return ms
	}
	for _, c := range []struct {
		members []driver.Driver
		opts    *redlock.Options
		says    string
	}{
		{nil, nil, "at least 3"},
		{fresh(1), nil, "at least 3"},
		{fresh(2), nil, "at least 3"},
		{fresh(4), nil, "take an odd number"},
		{append(fresh(2), nil), nil, "member 3 is nil"},
		{[]driver.Driver{one, memlock.New(), one}, nil, "members 1 and 3 are the same"},
		{fresh(3), &redlock.Options{NodeTimeout: -1}, "node timeout"},
		{fresh(3), &redlock.Options{MaxTTL: time.Millisecond}, "largest TTL"},
	} {
		d := redlock.New(c.members, c.opts)
		wantIs(t, "Check", d.Check(), driver.ErrInvalid)
		wantSays(t, d.Check(), c.says)
		_, err := d.Enter(t.Context(), request())
		wantIs(t, "Enter", err, driver.ErrInvalid)
		wantIs(t, "Renew", renew(t, d, request().Hold), driver.ErrInvalid)
		wantIs(t, "Release", d.Release(t.Context(), request().Hold, driver.End{}), driver.ErrInvalid)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	d := redlock.New(fresh(3), nil)
	defer d.Close()
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	_, err := d.Enter(t.Context(), request(func(r *driver.Request) { r.TTL = time.Minute }))
	wantIs(t, "a TTL above MaxTTL", err, driver.ErrInvalid)
	wantSays(t, err, "MaxTTL")
}

// Two drivers over one store are found out by what the store says of itself, at the latest right after the first grant.
func TestOneStoreTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memlock.New(), memlock.New()
		d := redlock.New([]driver.Driver{a, b, a.Share()}, nil)
		defer d.Close()
		if _, _, _, err := try(t, d, request()); err != nil {
			wantIs(t, "the first Try", err, driver.ErrInvalid)
		}
		synctest.Wait()
		_, err := d.Enter(t.Context(), request())
		for _, err := range []error{err, d.Check()} {
			wantIs(t, "afterwards", err, driver.ErrInvalid)
			wantSays(t, err, "members 1 and 3 are one and the same store")
		}
	})
}

// Nothing waits for a dead member: neither an acquisition nor a renewal nor, but for a moment, a release.
func TestDeadMembersCostNoTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d, wires := q.process(t, nil)
		wires[1].set(silent)
		wires[4].set(silent)
		for range 20 {
			began := time.Now()
			h, _ := get(t, d)
			if err := renew(t, d, h); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 0 {
				t.Fatalf("with two of five members dead an acquisition took %v", took)
			}
			if err := d.Release(t.Context(), h, driver.End{}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Millisecond {
				t.Fatalf("with two of five members dead a release took %v", took)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// Too few members: the error says which and how many, in the time of one request, and is certain only if it is.
func TestNoQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		wires[1].set(silent)
		wires[2].set(refusing)
		began := time.Now()
		p, _, _, err := try(t, d, request())
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if errors.Is(err, driver.ErrNotDone) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("an attempt of which something may be left says for certain: %v", err)
		}
		wantSays(t, err, "1 of 3 members", "2 are needed", "member 2: ", "member 3: connection refused")
		var qe *redlock.QuorumError
		if !errors.As(err, &qe) || qe.OK != 1 || qe.Need != 2 || len(qe.Members) != 3 {
			t.Errorf("got %#v", err)
		}
		wires[1].set(healthy)
		if err := p.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := q.holds("n"); n != 0 {
			t.Errorf("%d members still have it after Leave", n)
		}
	})
	bubble(t, func(t *testing.T) {
		d, wires := stores(3).process(t, nil)
		for _, w := range wires {
			w.set(refusing)
		}
		_, _, _, err := try(t, d, request())
		wantIs(t, "all members refused the connection", err, driver.ErrNotDone)
		wantSays(t, err, "0 of 3")
	})
}

// What no quorum came of is undone everywhere, also at members that took the request and never answered.
func TestPartialGrantsAreUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d, wires := q.process(t, nil)
		for _, w := range wires[1:4] {
			w.set(deaf)
		}
		if _, _, _, err := try(t, d, request()); err == nil {
			t.Fatal("granted by two of five")
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		if n := q.holds("n"); n != 0 {
			t.Errorf("after five seconds of undoing %d members have it", n) // they take requests, so the undo arrives
		}
	})
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d, wires := q.process(t, nil)
		a, _ := get(t, d, func(r *driver.Request) { r.Name = "other" })
		for _, w := range wires[1:4] {
			w.set(deaf)
		}
		time.AfterFunc(100*time.Millisecond, func() {
			for _, w := range wires[1:4] {
				w.set(silent) // from now on nothing arrives, no undo either
			}
		})
		try(t, d, request())
		time.Sleep(time.Second)
		if n := q.holds("n"); n == 0 {
			t.Fatal("nothing is left to be undone")
		}
		for _, w := range wires {
			w.set(healthy)
		}
		time.Sleep(3 * time.Second)
		if n := q.holds("n"); n != 0 {
			t.Errorf("three seconds after the members are back %d have it", n)
		}
		if err := d.Release(t.Context(), a, driver.End{}); err != nil {
			t.Error(err)
		}
	})
}

// A vote that comes after the quorum joins, and knows the token; one that comes after the release is undone.
func TestLateVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		wires[2].set(slow(100 * time.Millisecond))
		h, g := get(t, d)
		last := g.Token + int64(g.Span) - 1
		time.Sleep(time.Second)
		if n := q.holds("n"); n != 3 {
			t.Fatalf("%d of 3 members have it a second later", n)
		}
		if n := wires[2].raises.Load(); n != 1 {
			t.Errorf("the late member was told the token %d times", n)
		}
		if err := d.Release(t.Context(), h, driver.End{Last: last}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		alone, _ := q[2].Share().Enter(t.Context(), request())
		if g, err := alone.Try(t.Context(), 1); err != nil || g.Token <= last {
			t.Errorf("the late member goes on with token %d (%v) after %d", g.Token, err, last)
		}
	})
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		wires[2].set(slow(100 * time.Millisecond))
		h, _ := get(t, d)
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := q.holds("n"); n != 0 {
			t.Errorf("%d members have it after its release", n)
		}
	})
}

// A renewal fills the members that lost the hold or never had it, and tells them the token.
func TestRefill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d, wires := q.process(t, nil)
		wires[3].set(refusing)
		wires[4].set(refusing)
		h, g := get(t, d)
		last := g.Token + int64(g.Span) - 1
		wires[3].Break(nil)
		wires[4].Break(nil)
		if n := q.holds("n"); n != 3 {
			t.Fatalf("%d of 5 members have it", n)
		}
		refilled := func(want int) {
			t.Helper()
			if err := renew(t, d, h); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := q.holds("n"); n != want {
				t.Fatalf("%d members have it after a renewal, want %d", n, want)
			}
		}
		refilled(5)
		q[0].Expire("n")
		q[1].Wipe()
		refilled(5)
		// All the members that had it first lose it, one after the other: the token is known to the others.
		q[2].Wipe()
		refilled(5)
		if err := d.Release(t.Context(), h, driver.End{Last: last}); err != nil {
			t.Fatal(err)
		}
		for i, s := range q {
			p, _ := s.Share().Enter(t.Context(), request())
			if g, err := p.Try(t.Context(), 1); err != nil || g.Token <= last {
				t.Errorf("member %d goes on with token %d (%v) after %d", i+1, g.Token, err, last)
			}
		}
	})
}

// A release that runs while a refill is under way leaves nothing.
func TestReleaseJoinsRefills(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		h, _ := get(t, d)
		synctest.Wait()
		q[2].Expire("n")
		wires[2].set(slow(200 * time.Millisecond))
		if err := renew(t, d, h); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond) // the refill is at the member, its answer on the way
		if n := q.holds("n"); n != 3 {
			t.Fatalf("%d members have it", n)
		}
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := q.holds("n"); n != 0 {
			t.Errorf("%d members have it after the release", n)
		}
	})
}

// A hold that was stolen at a majority does not come back by being filled again.
func TestStolenIsNotRefilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d, wires := q.process(t, nil)
		thief, theirs := q.process(t, nil)
		h, _ := get(t, d)
		synctest.Wait()
		theirs[3].set(silent)
		theirs[4].set(silent)
		wires[0].set(refusing)
		if err := thief.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := renew(t, d, h); err == nil {
				t.Fatal("a stolen hold was renewed")
			}
		}
		if n := q.holds("n"); n > 2 {
			t.Errorf("%d members have it again", n)
		}
	})
}

// A member that restarted empty does not vote for MaxTTL: not for a client that knew it before, and not for one that
// never saw it.
func TestRestartedMembersDoNotVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, _ := q.process(t, nil)
		h, _ := get(t, d)
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		q[0].Wipe()
		q[1].Wipe()
		time.Sleep(5 * time.Second)
		fresh, _ := q.process(t, nil)
		for what, d := range map[string]*redlock.Driver{"one that knew it": d, "one that did not": fresh} {
			p, _, _, err := try(t, d, request())
			if err == nil {
				t.Fatalf("%s was granted by members that restarted", what)
			}
			wantSays(t, err, "restarted", "votes again in 25")
			p.Leave(t.Context())
			_, _, _, err = try(t, d, request())
			wantIs(t, "an attempt that need not ask them", err, driver.ErrNotDone)
		}
		durable, _ := q.process(t, &redlock.Options{Durable: true})
		h, _ = get(t, durable)
		if err := durable.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(26 * time.Second)
		for _, d := range []*redlock.Driver{d, fresh} {
			h, _ := get(t, d)
			if err := d.Release(t.Context(), h, driver.End{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A release of a hold that ran out a moment ago says so at once, also when a member is dead.
func TestReleaseAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, wires := stores(3).process(t, nil)
		h, g := get(t, d)
		time.Sleep(g.Sent.Add(ttl).Until() + 10*time.Millisecond)
		wires[0].set(silent)
		began := time.Now()
		if err := d.Release(t.Context(), h, driver.End{}); err != driver.ErrNotHeld {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// An unanswered release is repeated in the background, and says at the second call what became of it.
func TestReleaseWithoutQuorum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		h, _ := get(t, d)
		synctest.Wait()
		wires[0].set(silent)
		wires[1].set(deaf)
		err := d.Release(t.Context(), h, driver.End{})
		if err == nil || errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("got %v from one of three members", err)
		}
		wantSays(t, err, "release: 1 of 3", "member 1", "member 2")
		wires[1].set(healthy)
		time.Sleep(2 * time.Second)
		if err := d.Release(t.Context(), h, driver.End{}); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("again: %v", err)
		}
		wires[0].set(healthy)
		time.Sleep(3 * time.Second)
		if n := q.holds("n"); n != 0 {
			t.Errorf("%d members have it", n)
		}
	})
}

// Members that answer late: a sane limit for each, and an error with nothing left behind when the TTL is used up.
func TestSlowMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d, wires := q.process(t, nil)
		for _, w := range wires {
			w.set(slow(100 * time.Millisecond))
		}
		_, g := get(t, d, func(r *driver.Request) { r.TTL = time.Second })
		if left := g.Sent.Add(g.TTL).Until(); left != time.Second-12*time.Millisecond-200*time.Millisecond {
			t.Errorf("%v are left of the trust, want a second less the drift and two round trips", left)
		}
		for _, w := range wires {
			w.set(slow(150 * time.Millisecond))
		}
		p, _, _, err := try(t, d, request(func(r *driver.Request) { r.Name, r.TTL = "short", 300*time.Millisecond }))
		if err == nil {
			t.Fatal("granted when nothing was left")
		}
		wantSays(t, err, "no certain answer in 100ms")
		if err := p.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if n := q.holds("short"); n != 0 {
			t.Errorf("%d members have it", n)
		}
	})
}

// Many contenders over members at random distances: all get their turn.
func TestContendersDoNotLiveLock(t *testing.T) {
	for _, n := range []int{2, 10} {
		bubble(t, func(t *testing.T) {
			q := stores(5)
			var wg sync.WaitGroup
			var mu sync.Mutex
			var worst time.Duration
			inside := 0
			for range n {
				d, wires := q.process(t, nil)
				for _, w := range wires {
					w.set(slow(rand.N(3 * time.Millisecond)))
				}
				wg.Go(func() {
					for range 10 {
						began := time.Now()
						told := make(chan struct{}, 1)
						p, err := d.Enter(t.Context(), request(waits, func(r *driver.Request) {
							r.Notify = func(driver.Signal) {
								select {
								case told <- struct{}{}:
								default:
								}
							}
						}))
						if err != nil {
							t.Error(err)
							return
						}
						var h driver.Hold
						for {
							g, err := p.Try(t.Context(), 1)
							var held *driver.HeldError
							if err == nil {
								h = driver.Hold{Kind: driver.Exclusive, Name: "n", ID: fmt.Sprint(g.Token), TTL: g.TTL}
								break
							}
							if !errors.As(err, &held) {
								t.Error(err)
								return
							}
							again := held.Again
							if again == 0 {
								again = 10 * time.Second // as the client does
							}
							select {
							case <-told:
							case <-time.After(again):
							}
						}
						mu.Lock()
						if inside++; inside > 1 {
							t.Errorf("%d hold it", inside)
						}
						worst = max(worst, time.Since(began))
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						_ = h
						if err := p.Leave(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d contenders: the longest wait was %v", n, worst)
			if limit := time.Duration(n) * time.Second; worst > limit {
				t.Errorf("a contender among %d waited for %v", n, worst)
			}
		})
	}
}

// Waiters share one watch a member and name, and nobody listens when nobody waits.
func TestOneWatchForAllWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		holder, _ := q.process(t, nil)
		d, wires := q.process(t, nil)
		live := func(want int32) {
			t.Helper()
			synctest.Wait()
			for i, w := range wires {
				if n := w.watches.Load(); n != want {
					t.Errorf("%d watches at member %d, want %d", n, i+1, want)
				}
			}
		}
		get(t, holder)
		try(t, d, request())
		live(0)
		var line []driver.Place
		for range 50 {
			p, _, _, err := try(t, d, request(waits))
			wantIs(t, "Try", err, driver.ErrHeld)
			line = append(line, p)
		}
		live(1)
		if n := wires[0].watched.Load(); n != 1 {
			t.Errorf("watched %d times", n)
		}
		for _, p := range line {
			if err := p.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
		live(0)
	})
}

// bare is a member with no optional power.
type bare struct{ driver.Driver }

func TestMembersWithoutPowers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		process := func() *redlock.Driver {
			d := redlock.New([]driver.Driver{q[0].Share(), bare{q[1].Share()}, bare{q[2].Share()}}, nil)
			t.Cleanup(func() { d.Close() })
			return d
		}
		d, other := process(), process()
		h, g := get(t, d)
		if g.Token != 0 || g.Span != 1 {
			t.Errorf("got token %d and %d more, but a member cannot raise tokens", g.Token, g.Span-1)
		}
		_, err := d.Inspect(t.Context(), "n")
		wantIs(t, "Inspect", err, errors.ErrUnsupported)
		_, err = d.Watch(t.Context(), "n")
		wantIs(t, "Watch", err, errors.ErrUnsupported)
		_, err = d.Attach(t.Context(), request())
		wantIs(t, "Attach", err, errors.ErrUnsupported)
		_, _, _, err = try(t, other, request(waits))
		var held *driver.HeldError
		if !errors.As(err, &held) || held.Again <= 0 || held.Again > time.Second {
			t.Errorf("a waiter that cannot listen is told %+v (%v), want to look again soon", held, err)
		}
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, wires := stores(3).process(t, &redlock.Options{WithoutToken: true})
		for _, w := range wires {
			w.set(slow(10 * time.Millisecond))
		}
		began := time.Now()
		_, g := get(t, d)
		if g.Token != 0 {
			t.Errorf("got token %d", g.Token)
		}
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("it took %v, want one round trip of 10ms", took)
		}
		if n := wires[0].raises.Load(); n != 0 {
			t.Errorf("%d write-backs", n)
		}
	})
}

// Two majorities share a member, but two permits of three do not fill it: semaphores need more members.
func TestPermitsAreNotOverdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct{ members, limit, need int }{{3, 1, 2}, {3, 2, 3}, {3, 9, 3}, {5, 1, 3}, {5, 2, 4}, {5, 3, 4}, {5, 4, 5}} {
			q := stores(c.members)
			// Every process reaches other members, just as many as are needed.
			got := 0
			for i := range 4 * c.members * c.limit {
				d, wires := q.process(t, nil)
				for j := range c.members - c.need {
					wires[(i+j)%c.members].set(refusing)
				}
				if _, _, _, err := try(t, d, request(func(r *driver.Request) { r.Kind, r.Limit = driver.Permits, c.limit })); err == nil {
					got++
				}
				synctest.Wait()
			}
			if got == 0 || got > c.limit {
				t.Errorf("%d members, limit %d: %d permits are out", c.members, c.limit, got)
			}
			d, wires := stores(c.members).process(t, nil)
			for _, w := range wires[c.need-1:] {
				w.set(refusing)
			}
			if _, _, _, err := try(t, d, request(func(r *driver.Request) { r.Kind, r.Limit = driver.Permits, c.limit })); err == nil {
				t.Errorf("%d members, limit %d: a permit was granted by fewer than %d", c.members, c.limit, c.need)
			}
		}
	})
}

// A result that a majority remembers is found with any member down.
func TestOnceWithAMemberDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		once := func(r *driver.Request) { r.Kind = driver.Once }
		for down := range 3 {
			q := stores(3)
			d, _ := q.process(t, nil)
			h, _ := get(t, d, once)
			if err := d.Release(t.Context(), h, driver.End{Keep: time.Minute, Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			other, wires := q.process(t, nil)
			wires[down].set(refusing)
			_, _, _, err := try(t, other, request(once))
			var done *driver.DoneError
			if !errors.As(err, &done) || string(done.Value) != "v" {
				t.Errorf("member %d down: got %v", down+1, err)
			}
		}
	})
}

// Close ends what is under way and waits for it; the bubble would not end with a goroutine left.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		holder, _ := q.process(t, nil)
		get(t, holder)
		d, wires := q.process(t, nil)
		for _, w := range wires {
			w.set(silent)
		}
		ended := make(chan error, 1)
		p, err := d.Enter(t.Context(), request(func(r *driver.Request) { r.Name = "silent" }))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := p.Try(context.Background(), 1)
			ended <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		err = <-ended
		wantIs(t, "a Try under way", err, driver.ErrClosed)
		if errors.Is(err, driver.ErrNotDone) {
			t.Errorf("a Try whose requests may have arrived says for certain: %v", err)
		}
		if n := q.holds("n"); n != 3 {
			t.Errorf("Close of another process left %d of 3 holds", n)
		}
	})
}

// A member that does not answer is not asked by everybody again and again.
func TestSilentMembersRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		wires[2].set(silent)
		h, _ := get(t, d)
		time.Sleep(2 * time.Second)
		before := wires[2].Calls("Enter")
		for range 100 {
			_, _, _, err := try(t, d, request())
			wantIs(t, "Try", err, driver.ErrHeld)
			time.Sleep(time.Millisecond)
		}
		if n := wires[2].Calls("Enter") - before; n > 10 {
			t.Errorf("the silent member was asked %d times in 0.1 s", n)
		}
		// But it is asked when the others do not suffice.
		if err := d.Release(t.Context(), h, driver.End{}); err != nil {
			t.Fatal(err)
		}
		wires[2].set(healthy)
		wires[0].set(refusing)
		get(t, d)
	})
}
