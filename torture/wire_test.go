package torture_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

// wire is one process's connection to the store, on which requests and answers get late or lost. It embeds memlock's
// driver by its type, so that the optional interfaces stay.
type wire struct {
	*memlock.Driver
	name   string
	ledger *ledger // nil: nobody keeps the books

	mu     sync.Mutex
	plan   map[string][]fault // the next calls, by method
	every  map[string]fault   // all calls, by method
	mute   map[driver.Signal]int
	dead   bool
	out    int       // calls that a fault has delayed
	faulty time.Time // when the last fault was over; zero: there was none
	ended  chan struct{}
}

var (
	_ driver.Driver    = (*wire)(nil)
	_ driver.Inspector = (*wire)(nil)
	_ driver.Watcher   = (*wire)(nil)
	_ driver.Attacher  = (*wire)(nil)
)

// fault is what happens to one call. The zero fault is none.
type fault struct {
	Before time.Duration // the request takes this long; it arrives even if the caller has given up
	Recall bool          // with Before: it does not arrive any more once the caller has given up
	Never  bool          // the request does not arrive at all
	After  time.Duration // the answer takes this long
	Lost   bool          // the answer does not come: Err at once
	Hang   bool          // with Never or Lost: nothing comes, not even an error, until the caller gives up
	Err    error         // default: io.ErrUnexpectedEOF
}

func newWire(name string, d *memlock.Driver, l *ledger) *wire {
	return &wire{Driver: d, name: name, ledger: l, plan: map[string][]fault{}, every: map[string]fault{},
		mute: map[driver.Signal]int{}, ended: make(chan struct{})}
}

// next plans the faults of the next calls of method.
func (w *wire) next(method string, fs ...fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan[method] = append(w.plan[method], fs...)
}

// all sets the fault of all calls of method that have none planned.
func (w *wire) all(method string, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.every[method] = f
}

// heal removes all faults, also those to come.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.plan)+len(w.every)+len(w.mute) > 0 {
		w.faulty = time.Now()
	}
	clear(w.plan)
	clear(w.every)
	clear(w.mute)
}

// drop swallows the next n signals of a kind.
func (w *wire) drop(s driver.Signal, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute[s] += n
}

// cut ends the connection until mend: calls fail with err, and nothing is heard from the store.
func (w *wire) cut(err error) {
	w.mu.Lock()
	w.dead, w.faulty = true, time.Now()
	w.mu.Unlock()
	w.Break(err)
}

func (w *wire) mend() {
	w.Break(nil)
	w.mu.Lock()
	w.dead, w.faulty = false, time.Now()
	w.mu.Unlock()
}

// slow says whether there is a fault for all calls.
func (w *wire) slow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.every) > 0
}

// calm says since when nothing has gone wrong; false: something does right now.
func (w *wire) calm() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faulty, w.out == 0 && len(w.every) == 0
}

// settle returns when no request is on its way any more.
func (w *wire) settle() {
	for {
		w.mu.Lock()
		out := w.out
		w.mu.Unlock()
		if out == 0 {
			return
		}
		time.Sleep(time.Second)
	}
}

func (w *wire) take(method string) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.every[method]
	if p := w.plan[method]; len(p) > 0 {
		f, w.plan[method] = p[0], p[1:]
		if len(p) == 1 {
			delete(w.plan, method)
		}
	}
	if f != (fault{}) {
		w.faulty = time.Now()
		w.out++
	}
	return f
}

func (w *wire) done(f fault) {
	if f == (fault{}) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = time.Now()
	w.out--
}

// wait sleeps for d, or until the caller gives up or the wire is closed.
func (w *wire) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.ended:
		return fmt.Errorf("wire: %w", driver.ErrClosed)
	}
}

const forever = 1000 * time.Hour

var errSlow = errors.New("no answer within the TTL")

// send carries one call. do is what the store does; it is called at most once, perhaps after send has returned. Nobody
// waits longer than ttl for an answer.
func send[T any](w *wire, ctx context.Context, ttl time.Duration, method string, do func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeoutCause(ctx, ttl, errSlow)
	defer stop()
	f := w.take(method)
	var none T
	fail := func() error {
		if f.Hang {
			return w.wait(ctx, forever)
		}
		if f.Err != nil {
			return f.Err
		}
		return io.ErrUnexpectedEOF
	}
	if f.Never {
		defer w.done(f)
		return none, fail()
	}
	if f.Before > 0 {
		arrives := time.Now().Add(f.Before)
		if err := w.wait(ctx, f.Before); err != nil {
			if f.Recall {
				w.done(f)
				return none, err
			}
			go func() {
				defer w.done(f)
				time.Sleep(time.Until(arrives))
				do(context.WithoutCancel(ctx))
			}()
			return none, err
		}
	}
	defer w.done(f)
	v, err := do(ctx)
	if f.After > 0 {
		if err := w.wait(ctx, f.After); err != nil {
			return none, err
		}
	}
	if f.Lost {
		return none, fail()
	}
	return v, err
}

func (w *wire) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	w.ledger.entered(w, r)
	r.Notify = w.ears(r.Notify)
	p, err := w.Driver.Enter(ctx, r)
	if err != nil {
		return nil, err
	}
	return &place{w: w, r: r, p: p}, nil
}

// ears lets signals get lost.
func (w *wire) ears(notify func(driver.Signal)) func(driver.Signal) {
	return func(s driver.Signal) {
		w.mu.Lock()
		if w.dead {
			w.mu.Unlock()
			return
		}
		if w.mute[s] > 0 {
			if w.mute[s]--; w.mute[s] == 0 {
				delete(w.mute, s)
			}
			w.faulty = time.Now()
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		notify(s)
	}
}

// place watches that the client keeps to the rules for places.
type place struct {
	w *wire
	r driver.Request
	p driver.Place

	mu     sync.Mutex
	busy   bool
	state  string // "", "in line", "granted", "unknown", "left"
	leaves int
}

func (p *place) begin(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		p.w.ledger.badf("%s of %s while another call of the place is under way", call, p.r.ID)
	}
	p.busy = true
	switch {
	case call == "Try" && (p.state == "granted" || p.state == "unknown" || p.state == "left" || p.leaves > 0),
		call == "Leave" && p.state == "granted":
		p.w.ledger.badf("%s of %s whose place is %q", call, p.r.ID, p.state)
	}
	if call == "Leave" {
		p.leaves++
	}
}

func (p *place) end(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	if state != "" {
		p.state = state
	}
}

func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
	p.begin("Try")
	sent := driver.Now()
	p.w.ledger.logf("%s try %s %s %q span %d", p.w.name, p.r.ID, p.r.Kind, p.r.Name, span)
	g, err := send(p.w, ctx, p.r.TTL, "Try", func(ctx context.Context) (driver.Grant, error) {
		p.w.ledger.store.Lock()
		defer p.w.ledger.store.Unlock()
		g, err := p.p.Try(ctx, span)
		if err == nil {
			p.w.ledger.granted(p.w, p.r, g)
		}
		return g, err
	})
	g.Sent = sent
	state := "unknown"
	switch {
	case err == nil:
		state = "granted"
	case isAny(err, driver.ErrHeld):
		state = "in line"
	case isAny(err, driver.ErrNotDone, driver.ErrMismatch, driver.ErrInvalid, driver.ErrDone):
		state = ""
	}
	p.w.ledger.logf("%s try %s: token %d, %v", p.w.name, p.r.ID, g.Token, err)
	p.w.ledger.tried(p, state)
	p.end(state)
	return g, err
}

func (w *wire) TryAll(ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
	inner := make([]driver.Place, len(ps))
	for i, x := range ps {
		p := x.(*place)
		p.begin("Try")
		inner[i] = p.p
		w.ledger.logf("%s try %s %s %q with %d others", w.name, p.r.ID, p.r.Kind, p.r.Name, len(ps)-1)
	}
	sent := driver.Now()
	gs, err := send(w, ctx, ps[0].(*place).r.TTL, "Try", func(ctx context.Context) ([]driver.Grant, error) {
		w.ledger.store.Lock()
		defer w.ledger.store.Unlock()
		gs, err := w.Driver.TryAll(ctx, inner)
		for i, g := range gs {
			w.ledger.granted(w, ps[i].(*place).r, g)
		}
		return gs, err
	})
	state := "unknown"
	switch {
	case err == nil:
		state = "granted"
	case isAny(err, driver.ErrHeld, driver.ErrNotDone, driver.ErrMismatch, driver.ErrInvalid):
		state = ""
	}
	for i, x := range ps {
		p := x.(*place)
		if err == nil {
			gs[i].Sent = sent
		}
		w.ledger.logf("%s try %s together: %v", w.name, p.r.ID, err)
		w.ledger.tried(p, state)
		p.end(state)
	}
	return gs, err
}

func (p *place) Leave(ctx context.Context) error {
	p.begin("Leave")
	p.w.ledger.leaving(p)
	_, err := send(p.w, ctx, p.r.TTL, "Leave", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.p.Leave(ctx)
	})
	p.w.ledger.logf("%s leave %s: %v", p.w.name, p.r.ID, err)
	state := ""
	if err == nil {
		state = "left"
	}
	p.end(state)
	return err
}

func (w *wire) Renew(ctx context.Context, hs []driver.Hold) []error {
	w.ledger.renewing(w, hs)
	ttl := forever
	for _, h := range hs {
		ttl = min(ttl, h.TTL)
	}
	errs, err := send(w, ctx, ttl, "Renew", func(ctx context.Context) ([]error, error) {
		return w.Driver.Renew(ctx, hs), nil
	})
	if err != nil {
		errs = make([]error, len(hs))
		for i := range errs {
			errs[i] = err
		}
	}
	for i, h := range hs {
		w.ledger.logf("%s renew %s: %v", w.name, h.ID, errs[i])
	}
	return errs
}

func (w *wire) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	steal := ctx.Value(stealing{}) != nil
	w.ledger.releasing(w, h, steal)
	_, err := send(w, ctx, h.TTL, "Release", func(ctx context.Context) (_ struct{}, err error) {
		if steal {
			w.ledger.rob(h.Name, h.ID, func() { err = w.Driver.Release(ctx, h, end) })
			return
		}
		return struct{}{}, w.Driver.Release(ctx, h, end)
	})
	w.ledger.logf("%s release %s: %v", w.name, h.ID, err)
	return err
}

// stealing marks the context of a Steal, so that the books tell it from a holder's own release.
type stealing struct{}

func (w *wire) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	sent := driver.Now()
	r.Notify = w.ears(r.Notify)
	g, err := send(w, ctx, r.TTL, "Attach", func(ctx context.Context) (driver.Grant, error) {
		return w.Driver.Attach(ctx, r)
	})
	g.Sent = sent
	w.ledger.logf("%s attach %s: %v", w.name, r.ID, err)
	return g, err
}

func (w *wire) Close() error {
	w.mu.Lock()
	select {
	case <-w.ended:
	default:
		close(w.ended)
	}
	w.mu.Unlock()
	return w.Driver.Close()
}
