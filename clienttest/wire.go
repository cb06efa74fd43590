package clienttest

import (
	"context"
	"errors"
	"sync"

	"github.com/pawl-lock/pawl/driver"
)

// wire is one client's way to the store. While it is cut, no request and no answer passes, nor anything that the store
// tells by itself. What asks without holding anything (inspecting, watching) goes past it.
type wire struct {
	inner driver.Driver

	mu      sync.Mutex
	down    bool
	inLine  map[string]bool // by hold: places that wait and were refused
	renewed int             // renewals that were confirmed
	missed  int             // renewals that did not pass
}

var errCut = errors.New("clienttest: the wire to the store is cut")

func newWire(d driver.Driver) *wire { return &wire{inner: d, inLine: map[string]bool{}} }

// driver is the wire as a driver that can do what the inner one can, and no more.
func (w *wire) driver() driver.Driver {
	i, _ := w.inner.(driver.Inspector)
	o, _ := w.inner.(driver.Watcher)
	a, _ := w.inner.(driver.Attacher)
	n, _ := w.inner.(driver.Named)
	switch powersOf(w.inner) {
	case inspects:
		return struct {
			*wire
			driver.Inspector
		}{w, i}
	case watches:
		return struct {
			*wire
			driver.Watcher
		}{w, o}
	case attaches:
		return struct {
			*wire
			driver.Attacher
		}{w, a}
	case named:
		return struct {
			*wire
			driver.Named
		}{w, n}
	case inspects | watches:
		return struct {
			*wire
			driver.Inspector
			driver.Watcher
		}{w, i, o}
	case inspects | attaches:
		return struct {
			*wire
			driver.Inspector
			driver.Attacher
		}{w, i, a}
	case inspects | named:
		return struct {
			*wire
			driver.Inspector
			driver.Named
		}{w, i, n}
	case watches | attaches:
		return struct {
			*wire
			driver.Watcher
			driver.Attacher
		}{w, o, a}
	case watches | named:
		return struct {
			*wire
			driver.Watcher
			driver.Named
		}{w, o, n}
	case attaches | named:
		return struct {
			*wire
			driver.Attacher
			driver.Named
		}{w, a, n}
	case inspects | watches | attaches:
		return struct {
			*wire
			driver.Inspector
			driver.Watcher
			driver.Attacher
		}{w, i, o, a}
	case inspects | watches | named:
		return struct {
			*wire
			driver.Inspector
			driver.Watcher
			driver.Named
		}{w, i, o, n}
	case inspects | attaches | named:
		return struct {
			*wire
			driver.Inspector
			driver.Attacher
			driver.Named
		}{w, i, a, n}
	case watches | attaches | named:
		return struct {
			*wire
			driver.Watcher
			driver.Attacher
			driver.Named
		}{w, o, a, n}
	case inspects | watches | attaches | named:
		return struct {
			*wire
			driver.Inspector
			driver.Watcher
			driver.Attacher
			driver.Named
		}{w, i, o, a, n}
	}
	return w
}

func (w *wire) cut()  { w.set(true) }
func (w *wire) heal() { w.set(false) }

func (w *wire) set(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// err is errCut while the wire is cut.
func (w *wire) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return errCut
	}
	return nil
}

// crash is the end of the process that this wire belongs to, as the store sees it.
func (w *wire) crash() {
	w.cut()
	w.inner.Close()
}

// waiting is how many places were seen to be in line so far.
func (w *wire) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inLine)
}

// renewals are how many were confirmed and how many did not pass.
func (w *wire) renewals() (confirmed, missed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewed, w.missed
}

// pass makes a request and brings the answer back, unless the wire is cut before or after.
func (w *wire) pass(request func() error) error {
	if err := w.err(); err != nil {
		return err
	}
	err := request()
	if cut := w.err(); cut != nil {
		return cut
	}
	return err
}

func (w *wire) Enter(ctx context.Context, r driver.Request) (p driver.Place, err error) {
	notify := r.Notify
	r.Notify = func(s driver.Signal) {
		if w.err() == nil {
			notify(s)
		}
	}
	err = w.pass(func() error { p, err = w.inner.Enter(ctx, r); return err })
	if err != nil {
		return nil, err
	}
	return &wirePlace{p, w, r}, nil
}

func (w *wire) Renew(ctx context.Context, hs []driver.Hold) (errs []error) {
	cut := w.pass(func() error { errs = w.inner.Renew(ctx, hs); return nil })
	if cut != nil {
		errs = make([]error, len(hs))
		for i := range errs {
			errs[i] = cut
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			w.renewed++
		} else {
			w.missed++
		}
	}
	return errs
}

func (w *wire) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	return w.pass(func() error { return w.inner.Release(ctx, h, end) })
}

func (w *wire) Close() error { return w.inner.Close() }

type wirePlace struct {
	driver.Place
	w *wire
	r driver.Request
}

func (p *wirePlace) Try(ctx context.Context, span int) (g driver.Grant, err error) {
	err = p.w.pass(func() error { g, err = p.Place.Try(ctx, span); return err })
	if p.r.Wait && errors.Is(err, driver.ErrHeld) {
		p.w.mu.Lock()
		p.w.inLine[p.r.ID] = true
		p.w.mu.Unlock()
	}
	return g, err
}

// TryAll joins if the inner driver does; a driver that does not is one to which no names can be had in one step.
func (w *wire) TryAll(ctx context.Context, ps []driver.Place) (gs []driver.Grant, err error) {
	j, ok := w.inner.(driver.Joiner)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	inner := make([]driver.Place, len(ps))
	for i, p := range ps {
		inner[i] = p.(*wirePlace).Place
	}
	err = w.pass(func() error { gs, err = j.TryAll(ctx, inner); return err })
	return gs, err
}

func (p *wirePlace) Leave(ctx context.Context) error {
	return p.w.pass(func() error { return p.Place.Leave(ctx) })
}
