package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
)

func startDriver(t *testing.T) *Driver {
	t.Helper()
	d := New(etcdtest.Start(t, etcdtest.Options{}).Client(), nil)
	t.Cleanup(func() { d.Close() })
	return d
}

// lateCopy is the request that join sends for p, as it would arrive late.
func lateCopy(t *testing.T, d *Driver, p *place) func() bool {
	t.Helper()
	ctx := t.Context()
	s, gen, err := p.sit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seat, value := p.seat, p.value
	return func() bool {
		t.Helper()
		a := d.ask(ctx, time.Minute, []cond{vacant(p.base), changed(s.mark, gen)}, []op{put(seat, value, s.lease)}, nil)
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.resp.succeeded
	}
}

// TestLateRequest lets a copy of an acquisition arrive after it was undone: before and after another hold had the same key.
func TestLateRequest(t *testing.T) {
	d := startDriver(t)
	enter := func(id string) *place {
		p, err := d.Enter(t.Context(), driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "late", ID: id, Permits: 1, TTL: 10 * time.Second},
			Notify: func(driver.Signal) {}})
		if err != nil {
			t.Fatal(err)
		}
		return p.(*place)
	}
	for _, arrived := range []bool{false, true} {
		p := enter("a:1")
		late := lateCopy(t, d, p)
		p.loose = true // the request was sent, and no answer came
		if arrived && !late() {
			t.Fatal("the request should have taken the free name")
		}
		if err := p.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if late() {
			t.Fatal("a copy that arrived after Leave took the name")
		}
		q := enter("a:2")
		if _, err := q.Try(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if late() {
			t.Fatal("a copy that arrived after Leave took the name from the next")
		}
		if err := d.Release(t.Context(), q.r.Hold, driver.End{}); err != nil {
			t.Fatal(err)
		}
		if late() {
			t.Fatal("a copy that arrived after the next hold took the name")
		}
	}
}

// TestLateUndo lets a copy of an undo arrive when the next hold has the same key.
func TestLateUndo(t *testing.T) {
	d := startDriver(t)
	enter := func(id string) *place {
		p, err := d.Enter(t.Context(), driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "late", ID: id, Permits: 1, TTL: 10 * time.Second},
			Notify: func(driver.Signal) {}})
		if err != nil {
			t.Fatal(err)
		}
		return p.(*place)
	}
	p := enter("a:1")
	lateCopy(t, d, p)()
	p.loose = true
	again := &place{d: d, r: p.r, base: p.base, value: p.value, sess: p.sess, attn: p.attn, seat: p.seat, loose: true}
	if err := p.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := enter("a:2")
	if _, err := q.Try(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if q.seat != again.seat {
		t.Fatalf("the next hold has the key %q, not %q", q.seat, again.seat)
	}
	if err := again.undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Renew(context.Background(), []driver.Hold{q.r.Hold})[0]; err != nil {
		t.Fatalf("the next hold after a late undo: %v", err)
	}
}

// TestNoAdoption: a key of our own session that somebody else put is no hold of ours.
func TestNoAdoption(t *testing.T) {
	d := startDriver(t)
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "adopted", ID: "a:1", Permits: 1, TTL: 10 * time.Second}, Notify: func(driver.Signal) {}}
	s, err := d.session(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Put(t.Context(), plainKey("adopted", s.lease), "", clientv3.WithLease(clientv3.LeaseID(s.lease))); err != nil {
		t.Fatal(err)
	}
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Try(t.Context(), 1); err == nil {
		t.Fatal("a key that was there before the request counts as granted")
	}
}

// TestMarkDeleted: a stranger who deletes the session's mark stops nobody.
func TestMarkDeleted(t *testing.T) {
	d := startDriver(t)
	for i := range 3 {
		r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "marked", ID: "a:" + string(rune('1'+i)), Permits: 1, TTL: 10 * time.Second}, Notify: func(driver.Signal) {}}
		p, err := d.Enter(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Try(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := d.client.Delete(t.Context(), marks, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		if err := d.Release(t.Context(), r.Hold, driver.End{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnconfirmedRelease: while a release has no answer, its key keeps the seat: the next hold of the same session waits
// behind it with a key of its own. Repeating the release settles it, and a copy of it that arrives later does nothing.
func TestUnconfirmedRelease(t *testing.T) {
	d := startDriver(t)
	enter := func(id string) *place {
		p, err := d.Enter(t.Context(), driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "unconfirmed", ID: id, Permits: 1, TTL: 10 * time.Second},
			Wait: true, Notify: func(driver.Signal) {}})
		if err != nil {
			t.Fatal(err)
		}
		return p.(*place)
	}
	p := enter("a:1")
	first, err := p.Try(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	seat, rev := p.seat, p.rev
	late := func() bool { // the release, as it would arrive late
		a := d.ask(t.Context(), time.Minute, []cond{created(seat, rev)}, []op{del(seat)}, nil)
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.resp.succeeded
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Release(ctx, p.r.Hold, driver.End{}); err == nil { // it never arrives
		t.Fatal("a release that was not sent is confirmed")
	}
	q := enter("a:2")
	if _, err := q.Try(t.Context(), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("before the release is settled, the next one of the same session is told %v", err)
	}
	if q.seat == seat {
		t.Fatalf("the next one has the key %q of a hold that may still be there", seat)
	}
	if err := d.Release(t.Context(), p.r.Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	g, err := q.Try(t.Context(), 1)
	if err != nil || g.Token <= first.Token {
		t.Fatalf("after the release is settled: token %d after %d, %v", g.Token, first.Token, err)
	}
	r := enter("a:3") // has the first one's key again
	if _, err := r.Try(t.Context(), 1); !errors.Is(err, driver.ErrHeld) || r.seat != seat {
		t.Fatalf("the third one has the key %q, %v", r.seat, err)
	}
	if late() {
		t.Fatal("a late copy of the release deleted another hold's key")
	}
	if err := d.Release(t.Context(), q.r.Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Try(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if late() {
		t.Fatal("a late copy of the release ended another hold")
	}
	if err := d.Renew(t.Context(), []driver.Hold{r.r.Hold})[0]; err != nil {
		t.Fatal(err)
	}
}
