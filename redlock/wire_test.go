package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redlock"
)

// wire is a process's way to a member.
type wire struct {
	*memlock.Driver
	mu      sync.Mutex
	delay   time.Duration // of every answer
	lost    bool          // requests do not arrive
	deaf    bool          // requests arrive, answers do not come back
	watches atomic.Int32  // live
	watched atomic.Int32  // ever
	raises  atomic.Int32
}

var errCut = errors.New("connection reset")

// pass carries one request.
func (w *wire) pass(ctx context.Context, do func()) error {
	w.mu.Lock()
	delay, lost, deaf := w.delay, w.lost, w.deaf
	w.mu.Unlock()
	if !lost {
		do()
	}
	if lost || deaf {
		<-ctx.Done()
		return errCut
	}
	if delay == 0 {
		return nil
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return errCut
	}
}

func (w *wire) set(f func(w *wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

func silent(w *wire)                     { w.lost = true }
func deaf(w *wire)                       { w.deaf = true }
func healthy(w *wire)                    { w.lost, w.deaf, w.delay = false, false, 0 }
func slow(d time.Duration) func(w *wire) { return func(w *wire) { w.delay = d } }
func refusing(w *wire)                   { w.Break(fmt.Errorf("connection refused: %w", driver.ErrNotDone)) }
func background() context.Context        { return context.Background() }
func (w *wire) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	p, err := w.Driver.Enter(ctx, r)
	return &wirePlace{w, p}, err
}

type wirePlace struct {
	w *wire
	driver.Place
}

func (p *wirePlace) Try(ctx context.Context, span int) (g driver.Grant, err error) {
	sent := driver.Now()
	lost := p.w.pass(ctx, func() { g, err = p.Place.Try(background(), span) })
	g.Sent = sent
	if lost != nil {
		return driver.Grant{}, lost
	}
	return g, err
}

func (p *wirePlace) Leave(ctx context.Context) (err error) {
	if lost := p.w.pass(ctx, func() { err = p.Place.Leave(background()) }); lost != nil {
		return lost
	}
	return err
}

func (w *wire) Renew(ctx context.Context, hs []driver.Hold) (errs []error) {
	if lost := w.pass(ctx, func() { errs = w.Driver.Renew(background(), hs) }); lost != nil {
		errs = make([]error, len(hs))
		for i := range errs {
			errs[i] = lost
		}
	}
	return errs
}

func (w *wire) Release(ctx context.Context, h driver.Hold, end driver.End) (err error) {
	if lost := w.pass(ctx, func() { err = w.Driver.Release(background(), h, end) }); lost != nil {
		return lost
	}
	return err
}

func (w *wire) Raise(ctx context.Context, h driver.Hold, token int64) (err error) {
	w.raises.Add(1)
	if lost := w.pass(ctx, func() { err = w.Driver.Raise(background(), h, token) }); lost != nil {
		return lost
	}
	return err
}

func (w *wire) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	if lost := w.pass(ctx, func() { id, age, err = w.Driver.Incarnation(background()) }); lost != nil {
		return "", 0, lost
	}
	return id, age, err
}

func (w *wire) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	if lost := w.pass(ctx, func() { r, err = w.Driver.Inspect(background(), name) }); lost != nil {
		return r, lost
	}
	return r, err
}

func (w *wire) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if lost := w.pass(ctx, func() {}); lost != nil {
		return nil, lost
	}
	w.watches.Add(1)
	w.watched.Add(1)
	context.AfterFunc(ctx, func() { w.watches.Add(-1) })
	return w.Driver.Watch(ctx, name)
}

// quorum is n stores.
type quorum []*memlock.Driver

func stores(n int) (q quorum) {
	for range n {
		q = append(q, memlock.New())
	}
	return q
}

// process is another process's driver over the stores, and its wires.
func (q quorum) process(t *testing.T, opts *redlock.Options) (*redlock.Driver, []*wire) {
	var members []driver.Driver
	var wires []*wire
	for _, s := range q {
		w := &wire{Driver: s.Share()}
		members, wires = append(members, w), append(wires, w)
	}
	d := redlock.New(members, opts)
	t.Cleanup(func() { d.Close() })
	return d, wires
}

// holds counts the stores that have a hold of the name.
func (q quorum) holds(name string) (n int) {
	for _, s := range q {
		if r, _ := s.Share().Inspect(background(), name); len(r.Holds) > 0 {
			n++
		}
	}
	return n
}

var ids atomic.Int64

const ttl = 10 * time.Second

func request(changes ...func(*driver.Request)) driver.Request {
	r := driver.Request{
		Hold:   driver.Hold{Kind: driver.Exclusive, Name: "n", ID: fmt.Sprintf("client:%d", ids.Add(1)), Permits: 1, TTL: ttl},
		Notify: func(driver.Signal) {},
	}
	for _, f := range changes {
		f(&r)
	}
	return r
}

func waits(r *driver.Request) { r.Wait = true }

// try makes one attempt.
func try(t *testing.T, d driver.Driver, r driver.Request) (driver.Place, driver.Hold, driver.Grant, error) {
	t.Helper()
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	g, err := p.Try(t.Context(), 10)
	h := r.Hold
	h.Token, h.TTL = g.Token, g.TTL
	return p, h, g, err
}

func get(t *testing.T, d driver.Driver, changes ...func(*driver.Request)) (driver.Hold, driver.Grant) {
	t.Helper()
	_, h, g, err := try(t, d, request(changes...))
	if err != nil {
		t.Fatal(err)
	}
	return h, g
}

func renew(t *testing.T, d driver.Driver, h driver.Hold) error {
	return d.Renew(t.Context(), []driver.Hold{h})[0]
}

func wantIs(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want it to match %q", what, err, target)
	}
}

func wantSays(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("got the error %v, want it to say %q", err, p)
		}
	}
}
