package broken

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

// hooks are what a mutant does otherwise. What is nil is done as it should be.
type hooks struct {
	rename func(driver.Hold) string // the store's name for a hold
	byID   bool                     // the token of a Hold is not looked at

	enter   func(r *driver.Request) // changes what is asked for
	try     func(p *place, ctx context.Context, span int) (driver.Grant, error)
	leave   func(p *place, ctx context.Context) error
	hear    func(p *place, s driver.Signal) bool // false: the signal is dropped
	renew   func(d *proxy, ctx context.Context, hs []driver.Hold) []error
	release func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error
	close   func(d *proxy) error
	inspect func(d *proxy, ctx context.Context, name string) (driver.Record, error)
	list    func(d *proxy, ctx context.Context, prefix string) iter.Seq2[driver.Record, error]
	watch   func(d *proxy, ctx context.Context, name string) (<-chan struct{}, error)
	attach  func(d *proxy, ctx context.Context, r driver.Request) (driver.Grant, error)
	raise   func(d *proxy, ctx context.Context, h driver.Hold, token int64) error
	tryAll  func(d *proxy, ctx context.Context, ps []driver.Place) ([]driver.Grant, error) // the places are memlock's

	// What a call that waits for a silent store does not notice.
	deafToContext, deafToTTL, deafToClose bool

	sureOfSilence error // what silence is taken for
	sentLate      bool  // a grant counts from its answer
}

// store is a memlock that can fall silent.
type store struct {
	*memlock.Driver
	hooks hooks

	mu      sync.Mutex
	drivers []*proxy
	silence chan struct{} // closed when the store answers again; nil: it answers
}

// stall makes the store take requests and not answer them.
func (s *store) stall() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	s.silence = ch
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.silence = nil
		close(ch)
	})
}

func (s *store) open() *proxy {
	d := &proxy{Driver: s.Share(), s: s, hooks: s.hooks, closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drivers = append(s.drivers, d)
	return d
}

var errSilent = errors.New("broken: no answer from the store")

// proxy is one driver of a store.
type proxy struct {
	*memlock.Driver
	s     *store
	hooks hooks

	once   sync.Once
	closed chan struct{}
}

// answer waits for the store's answer to a request that it has already done.
func (d *proxy) answer(ctx context.Context, ttl time.Duration) error {
	d.s.mu.Lock()
	silence := d.s.silence
	d.s.mu.Unlock()
	if silence == nil {
		return nil
	}
	done, closed := ctx.Done(), d.closed
	if d.hooks.deafToContext {
		done = nil
	}
	if d.hooks.deafToClose {
		closed = nil
	}
	if d.hooks.deafToTTL || ttl <= 0 {
		ttl = time.Hour
	}
	t := time.NewTimer(ttl)
	defer t.Stop()
	select {
	case <-silence:
		return nil
	case <-done:
	case <-closed:
	case <-t.C:
	}
	if d.hooks.sureOfSilence != nil {
		return d.hooks.sureOfSilence
	}
	return errSilent
}

// stored is the hold as the store knows it.
func (d *proxy) stored(h driver.Hold) driver.Hold {
	if d.hooks.rename != nil {
		h.Name = d.hooks.rename(h)
	}
	if d.hooks.byID {
		h.Token = 0
	}
	return h
}

func (d *proxy) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	p := &place{d: d, asked: r}
	r.Hold = d.stored(r.Hold)
	if d.hooks.enter != nil {
		d.hooks.enter(&r)
	}
	r.Notify = p.notify
	p.r = r
	inner, err := d.Driver.Enter(ctx, r)
	if err != nil {
		return nil, err
	}
	p.Place = inner
	return p, nil
}

func (d *proxy) Renew(ctx context.Context, hs []driver.Hold) []error {
	inner := make([]driver.Hold, len(hs))
	var ttl time.Duration
	for i, h := range hs {
		inner[i] = d.stored(h)
		ttl = h.TTL
	}
	renew := d.hooks.renew
	if renew == nil {
		renew = func(d *proxy, ctx context.Context, hs []driver.Hold) []error { return d.Driver.Renew(ctx, hs) }
	}
	errs := renew(d, ctx, inner)
	if err := d.answer(ctx, ttl); err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (d *proxy) Release(ctx context.Context, h driver.Hold, end driver.End) (err error) {
	if h = d.stored(h); d.hooks.release != nil {
		err = d.hooks.release(d, ctx, h, end)
	} else {
		err = d.Driver.Release(ctx, h, end)
	}
	if silent := d.answer(ctx, h.TTL); silent != nil {
		return silent
	}
	return err
}

func (d *proxy) Close() error {
	d.once.Do(func() { close(d.closed) })
	if d.hooks.close != nil {
		return d.hooks.close(d)
	}
	return d.Driver.Close()
}

func (d *proxy) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if d.hooks.inspect != nil {
		return d.hooks.inspect(d, ctx, name)
	}
	return d.Driver.Inspect(ctx, name)
}

func (d *proxy) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	if d.hooks.list != nil {
		return d.hooks.list(d, ctx, prefix)
	}
	return d.Driver.List(ctx, prefix)
}

func (d *proxy) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if d.hooks.watch != nil {
		return d.hooks.watch(d, ctx, name)
	}
	return d.Driver.Watch(ctx, name)
}

func (d *proxy) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Hold = d.stored(r.Hold); d.hooks.attach != nil {
		return d.hooks.attach(d, ctx, r)
	}
	return d.Driver.Attach(ctx, r)
}

func (d *proxy) Raise(ctx context.Context, h driver.Hold, token int64) error {
	if h = d.stored(h); d.hooks.raise != nil {
		return d.hooks.raise(d, ctx, h, token)
	}
	return d.Driver.Raise(ctx, h, token)
}

func (d *proxy) TryAll(ctx context.Context, ps []driver.Place) (gs []driver.Grant, err error) {
	inner := make([]driver.Place, len(ps))
	for i, p := range ps {
		inner[i] = p.(*place).Place
	}
	if d.hooks.tryAll != nil {
		gs, err = d.hooks.tryAll(d, ctx, inner)
	} else {
		gs, err = d.Driver.TryAll(ctx, inner)
	}
	if silent := d.answer(ctx, ps[0].(*place).r.TTL); silent != nil {
		return nil, silent
	}
	return gs, err
}

// place is one place. Calls on it do not overlap, but signals come from anywhere.
type place struct {
	driver.Place
	d     *proxy
	asked driver.Request // by the suite
	r     driver.Request // of memlock

	granted, left bool
	err           error     // of the last Try
	first         time.Time // Try
	refused       time.Time

	mu    sync.Mutex
	heard map[driver.Signal]int
}

func (p *place) Try(ctx context.Context, span int) (g driver.Grant, err error) {
	if p.first.IsZero() {
		p.first = time.Now()
	}
	if p.d.hooks.try != nil {
		g, err = p.d.hooks.try(p, ctx, span)
	} else {
		g, err = p.Place.Try(ctx, span)
	}
	if silent := p.d.answer(ctx, p.r.TTL); silent != nil {
		g, err = driver.Grant{}, silent
		if p.d.hooks.try != nil && errors.Is(p.err, driver.ErrHeld) {
			err = p.err // the mutant has its own idea of what silence means
		}
	}
	if err == nil && p.d.hooks.sentLate {
		g.Sent = driver.Now()
	}
	p.granted, p.err = err == nil, err
	if err != nil {
		p.mu.Lock()
		p.refused = time.Now()
		p.mu.Unlock()
	}
	return g, err
}

func (p *place) Leave(ctx context.Context) (err error) {
	if p.d.hooks.leave != nil {
		err = p.d.hooks.leave(p, ctx)
	} else {
		err = p.Place.Leave(ctx)
	}
	p.left = p.left || err == nil
	if silent := p.d.answer(ctx, p.r.TTL); silent != nil {
		return silent
	}
	return err
}

func (p *place) notify(s driver.Signal) {
	p.mu.Lock()
	if p.heard == nil {
		p.heard = map[driver.Signal]int{}
	}
	p.heard[s]++
	p.mu.Unlock()
	if p.d.hooks.hear == nil || p.d.hooks.hear(p, s) {
		p.asked.Notify(s)
	}
}

// times says how often a signal came for the place, dropped or not.
func (p *place) times(s driver.Signal) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[s]
}

// find is the living hold with the ID that h has, or, with by "", any hold of the name.
func (d *proxy) find(name, id string) (driver.Hold, bool) {
	r, _ := d.s.Driver.Inspect(context.Background(), name)
	for _, h := range r.Holds {
		if id == "" || h.ID == id {
			return h.Hold, true
		}
	}
	return driver.Hold{}, false
}

// evict ends every hold of the name, as its own process would.
func (d *proxy) evict(name string) {
	for h, ok := d.find(name, ""); ok; h, ok = d.find(name, "") {
		if d.Driver.Release(context.Background(), h, driver.End{}) != nil {
			return
		}
	}
}
