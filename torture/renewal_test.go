package torture_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// Ten thousand leases are renewed by a few calls a TTL.
func TestRenewalsAreBatched(t *testing.T) {
	bubble(t, func(t *world) {
		const n = 10_000
		wire := t.store.Share() // no ledger: it would only be slow
		a := pawl.New(wire)
		defer a.Close()
		leases := make([]*pawl.Lease, n)
		for i := range leases {
			leases[i] = t.must(a.Mutex(fmt.Sprint("job:", i)))
			if i%100 == 0 {
				time.Sleep(50 * time.Millisecond) // taken over 5 s
			}
		}
		time.Sleep(30 * time.Second)
		before := wire.Calls("Renew")
		time.Sleep(5 * pawl.DefaultTTL)
		if calls := wire.Calls("Renew") - before; calls > 5*32 {
			t.Errorf("%d calls in 5 TTLs", calls)
		} else if calls < 5*3 {
			t.Errorf("%d calls in 5 TTLs: leases are renewed at a third of it", calls)
		}
		for _, l := range leases {
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		before = wire.Calls("Renew")
		time.Sleep(time.Hour)
		want(t, "renewals of nothing", wire.Calls("Renew"), before)
	})
}

// An outage that is shorter than the trust costs nothing; a longer one ends the lease before the store can give the name
// away, and says why.
func TestOutage(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		for _, c := range []struct {
			how    string
			outage time.Duration // in TTLs / 20
			lost   bool
		}{
			{"refused", 9, false}, // the last renewal may have been a third of the TTL ago
			{"answers lost", 9, false},
			{"silent", 5, false}, // the last one to try hangs for a quarter of the TTL
			{"refused", 21, true},
			{"answers lost", 21, true},
			{"silent", 21, true},
		} {
			t.Run(fmt.Sprint(ttl, c), func(t *testing.T) {
				bubble(t, func(t *world) {
					a, wire := t.process(pawl.Options{TTL: ttl})
					l := t.must(a.Mutex("x"))
					work := l.Context(t.Context())
					time.Sleep(10*ttl + ttl/7)
					last := l.Deadline()
					wire.all("Renew", map[string]fault{"refused": {Never: true, Err: errBroken}, "silent": {Never: true, Hang: true},
						"answers lost": {Lost: true}}[c.how])
					begin := time.Now()
					time.Sleep(c.outage * ttl / 20)
					synctest.Wait()
					if !c.lost {
						want(t, "during the outage", l.Err(), error(nil))
						wire.heal()
						time.Sleep(ttl)
						want(t, "after the outage", l.Err(), error(nil))
						if !l.Deadline().After(last) {
							t.Error("not renewed after the outage")
						}
						want(t, "unlock", l.Unlock(), error(nil))
						return
					}
					wantIs(t, l.Err(), pawl.ErrLost)
					if d := last.Sub(begin); d > ttl-ttl/31 {
						t.Errorf("trusted for %v of %v", d, ttl)
					}
					lost, _ := errors.AsType[*pawl.LostError](l.Err())
					want(t, "reason", lost.Reason, pawl.Expired)
					if c.how == "refused" {
						wantIs(t, l.Err(), errBroken)
					}
					wantIs(t, context.Cause(work), pawl.ErrLost)
					wire.heal()
					wantIs(t, l.Unlock(), pawl.ErrLost)
				})
			})
		}
	}
}

// A lease is trusted for less than the store keeps it, however late the answers are.
func TestTrustEndsBeforeTheStoresHold(t *testing.T) {
	for _, ttl := range []time.Duration{6 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second, 30 * time.Second, time.Hour} {
		for _, share := range []time.Duration{0, 20, 5, 3, 2} { // an answer comes after ttl/share
			t.Run(fmt.Sprint(ttl, share), func(t *testing.T) {
				bubble(t, func(t *world) {
					a, wire := t.process(pawl.Options{TTL: ttl})
					b, _ := t.process()
					late := time.Duration(0)
					if share > 0 {
						late = ttl / share
					}
					wire.all("Try", fault{After: late})
					wire.all("Renew", fault{Before: late / 2, After: late / 2})
					ch := t.lock(t.Context(), a.Mutex("x"))
					time.Sleep(late)
					l := t.got(ch)
					for end := time.Now().Add(3 * ttl); time.Now().Before(end) && l.Err() == nil; time.Sleep(ttl / 50) {
						r, err := t.ledger.god.Inspect(t.Context(), "x")
						if err != nil || len(r.Holds) != 1 {
							t.Fatalf("live, but the store has %v, %v", r.Holds, err)
						}
						left := time.Until(l.Deadline())
						if margin := r.Holds[0].Remaining - left; margin < min(ttl/10, time.Second) {
							t.Fatalf("trusted for %v, kept for %v", left, r.Holds[0].Remaining)
						}
					}
					// As long as a renewal waits. Renewals come at whole milliseconds, which is coarse for the shortest TTL.
					if late < min(ttl/4, 3*time.Second) && (ttl > 30*time.Millisecond || late <= ttl/20) {
						want(t, "kept alive", l.Err(), error(nil))
					}
					wire.cut(errBroken)
					theirs := t.lock(t.Context(), b.Mutex("x"))
					<-l.Done()
					t.waits(theirs)
					time.Sleep(ttl)
					t.got(theirs).Unlock()
					wire.mend()
					l.Unlock()
				})
			})
		}
	}
}

// An answer that comes when the trust is over is no lease, and what it took is given back.
func TestAnswerAfterTheTrust(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{TTL: time.Second})
		b, _ := t.process()
		wire.next("Try", fault{After: 950 * time.Millisecond})
		_, err := a.Mutex("x").TryLock(t.Context())
		if err == nil || isAny(err, pawl.ErrHeld) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		t.must(b.Mutex("x")).Unlock()
	})
}

// A store that answers with a shorter TTL than was asked for is believed.
func TestShorterGrant(t *testing.T) {
	bubble(t, func(t *world) {
		_, wire := t.process()
		c := pawl.New(miser{wire})
		l := t.must(c.Mutex("x"))
		if d := time.Until(l.Deadline()); d >= 10*time.Second {
			t.Errorf("trusted for %v of 10 s", d)
		}
		l.Unlock()
		c.Close()
	})
}

// miser grants a third of the TTL.
type miser struct{ *wire }

func (m miser) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	r.TTL = min(r.TTL, 10*time.Second)
	return m.wire.Enter(ctx, r)
}

// Nobody renews a lease with NoKeepalive.
func TestNoKeepalive(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{NoKeepalive: true})
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		begin := time.Now()
		theirs := t.lock(t.Context(), b.Mutex("x"))
		<-l.Done()
		if d := time.Since(begin); d >= pawl.DefaultTTL || d < pawl.DefaultTTL*9/10 {
			t.Errorf("lost after %v", d)
		}
		wantIs(t, l.Err(), pawl.ErrLost)
		t.waits(theirs)
		time.Sleep(time.Until(begin.Add(pawl.DefaultTTL)))
		t.got(theirs).Unlock()
		want(t, "renewals", wire.Calls("Renew"), 0)
		wantIs(t, l.Unlock(), pawl.ErrLost)
	})
}

// The store's word that a hold is gone ends the lease at the next renewal, also when no message came.
func TestRevokedAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		wire.drop(driver.Lost, 1)
		t.steal(b, "x")
		begin := time.Now()
		<-l.Done()
		if d := time.Since(begin); d > pawl.DefaultTTL/3+2*time.Second {
			t.Errorf("told after %v", d)
		}
		lost, ok := errors.AsType[*pawl.LostError](l.Err())
		if !ok || lost.Reason != pawl.Revoked {
			t.Errorf("got %v", l.Err())
		}
		n := wire.Calls("Release")
		wantIs(t, l.Unlock(), pawl.ErrLost)
		want(t, "releases of what is not ours", wire.Calls("Release"), n)
	})
}

// A driver that forgets to answer for a hold has not said that it is gone.
func TestRenewalWithoutAnswer(t *testing.T) {
	bubble(t, func(t *world) {
		_, wire := t.process()
		d := &forgetful{wire: wire}
		c := pawl.New(d)
		l := t.must(c.Mutex("x"))
		d.forget.Store(true)
		time.Sleep(15 * time.Second)
		want(t, "while nothing is answered", l.Err(), error(nil))
		d.forget.Store(false)
		time.Sleep(time.Hour)
		want(t, "afterwards", l.Err(), error(nil))
		l.Unlock()
		c.Close()
	})
}

type forgetful struct {
	*wire
	forget atomic.Bool
}

func (d *forgetful) Renew(ctx context.Context, hs []driver.Hold) []error {
	if d.forget.Load() {
		return nil
	}
	return d.wire.Renew(ctx, hs)
}
