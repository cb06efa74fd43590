package clienttest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

var everyKind = []driver.Kind{
	driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once,
}

// hooks are what a broken driver does otherwise than memlock.
type hooks struct {
	enter   func(d *bad, r *driver.Request)
	grant   func(r driver.Request, g *driver.Grant)
	deaf    bool // tells nobody that something has changed
	mute    bool // tells nobody that his hold is lost
	renew   func(d *bad, hs []driver.Hold) []error
	release func(d *bad, h driver.Hold, end *driver.End) bool // false: it does nothing and says that all is well
}

// bad is a memlock with something broken.
type bad struct {
	*memlock.Driver
	hooks
	id string
}

type badPlace struct {
	driver.Place
	d *bad
	r driver.Request
}

func (d *bad) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	asked := r
	if d.enter != nil {
		d.enter(d, &r)
	}
	r.Notify = func(s driver.Signal) {
		if !(d.deaf && s == driver.Changed || d.mute && s == driver.Lost) {
			asked.Notify(s)
		}
	}
	p, err := d.Driver.Enter(ctx, r)
	return &badPlace{p, d, asked}, err
}

func (p *badPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	g, err := p.Place.Try(ctx, span)
	if err == nil && p.d.grant != nil {
		p.d.grant(p.r, &g)
	}
	return g, err
}

func (d *bad) Renew(ctx context.Context, hs []driver.Hold) []error {
	if d.hooks.renew != nil {
		return d.hooks.renew(d, hs)
	}
	return d.Driver.Renew(ctx, hs)
}

func (d *bad) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if d.hooks.release != nil && !d.hooks.release(d, h, &end) {
		return nil
	}
	return d.Driver.Release(ctx, h, end)
}

// own gives each driver names of its own, as a store does that is not shared, or a lock that is kept in the process.
func own(h driver.Hold, d *bad) driver.Hold {
	h.Name = d.id + h.Name
	return h
}

var private = hooks{
	enter: func(d *bad, r *driver.Request) { r.Hold = own(r.Hold, d) },
	renew: func(d *bad, hs []driver.Hold) []error {
		var mine []driver.Hold
		for _, h := range hs {
			mine = append(mine, own(h, d))
		}
		return d.Driver.Renew(context.Background(), mine)
	},
	release: func(d *bad, h driver.Hold, end *driver.End) bool {
		d.Driver.Release(context.Background(), own(h, d), *end)
		return false
	},
}

var (
	forgetsToken = hooks{
		grant:   func(r driver.Request, g *driver.Grant) { g.Token = 1 },
		release: byID,
		renew: func(d *bad, hs []driver.Hold) []error {
			for i := range hs {
				hs[i].Token = 0
			}
			return d.Driver.Renew(context.Background(), hs)
		},
	}
	neverExpires = hooks{
		enter: func(d *bad, r *driver.Request) { r.TTL *= 1000 },
		grant: func(r driver.Request, g *driver.Grant) { g.TTL = r.TTL },
	}
	promisesTooMuch = hooks{mute: true, grant: func(r driver.Request, g *driver.Grant) { g.TTL = 100 * r.TTL }}
	tellsNobody     = hooks{deaf: true}
	neverRenews     = hooks{renew: func(d *bad, hs []driver.Hold) []error { return make([]error, len(hs)) }}
	neverReleases   = hooks{release: func(*bad, driver.Hold, *driver.End) bool { return false }}
	recordsNothing  = hooks{release: func(d *bad, h driver.Hold, end *driver.End) bool { end.Keep, end.Value = 0, nil; return true }}
	recordsForEver  = hooks{release: func(d *bad, h driver.Hold, end *driver.End) bool {
		if end.Value != nil {
			end.Keep *= 1000
		}
		return true
	}}
	releasesAnybody = hooks{release: func(d *bad, h driver.Hold, end *driver.End) bool {
		r, _ := d.Driver.Inspect(context.Background(), h.Name)
		for _, o := range r.Holds {
			d.Driver.Release(context.Background(), o.Hold, *end)
		}
		return false
	}}
)

func byID(d *bad, h driver.Hold, end *driver.End) bool {
	h.Token, end.Last = 0, 0
	d.Driver.Release(context.Background(), h, *end)
	return false
}

// mutants are the drivers that each case must fail, besides one that shares nothing with the other clients.
var mutants = map[string]map[string]hooks{
	"exclusion/one at a time":            {"gives every holder the token 1": forgetsToken},
	"exclusion/try":                      {"never releases": neverReleases},
	"waiting/an unlock wakes":            {"tells nobody": tellsNobody},
	"loss/in time":                       {"never expires": neverExpires, "trusts too long": promisesTooMuch},
	"loss/of a reader":                   {"trusts too long": promisesTooMuch},
	"loss/told by Do":                    {"trusts too long": promisesTooMuch},
	"loss/never while renewed":           {"says that it renewed": neverRenews},
	"close/waits for Unlock":             {"never releases": neverReleases},
	"close/names what is left":           {"never expires": neverExpires},
	"all/a failed try keeps none":        {"never releases": neverReleases},
	"all/one lost ends the work":         {"trusts too long": promisesTooMuch},
	"election/one stop for each start":   {"trusts too long": promisesTooMuch},
	"election/resigning passes on":       {"never releases": neverReleases},
	"election/draining":                  {"says that it renewed": neverRenews},
	"election/draining, with a limit":    {"never expires": neverExpires},
	"fence/a late write":                 {"gives every holder the token 1": forgetsToken, "never expires": neverExpires},
	"fence/readers":                      {"gives every holder the token 1": forgetsToken},
	"once/many callers, one run":         {"records nothing": recordsNothing},
	"once/an error is not recorded":      {"records nothing": recordsNothing},
	"once/a crash before the record":     {"gives every holder the token 1": forgetsToken},
	"once/a paused run cannot overwrite": {"records nothing": recordsNothing},
	"once/for a window":                  {"records for ever": recordsForEver},
	"schedule/one run for each tick":     {"records nothing": recordsNothing},
	"schedule/an error counts as a run":  {"records nothing": recordsNothing},
	"inspect/steal":                      {"never releases": neverReleases, "releases whoever holds": releasesAnybody},
}

// harness opens drivers with the given faults. freeze and kill do nothing.
func harness(h hooks) clienttest.Harness {
	var mu sync.Mutex
	stores := map[testing.TB]*memlock.Driver{}
	n := 0
	return clienttest.Harness{
		Open: func(t testing.TB) driver.Driver {
			mu.Lock()
			defer mu.Unlock()
			if stores[t] == nil {
				stores[t] = memlock.New()
			}
			n++
			return &bad{Driver: stores[t].Share(), hooks: h, id: fmt.Sprint("process ", n, ": ")}
		},
		Kinds:  everyKind,
		Bubble: synctest.Test,
		Slack:  time.Second,
		Freeze: func(testing.TB) func() { return func() {} },
		Kill:   func(testing.TB) func() { return func() {} },
	}
}

// Every case fails for a store that the clients do not share, and for what else is listed for it, and prints the promise.
func TestEveryCaseCanFail(t *testing.T) {
	known := map[string]bool{}
	for _, cs := range clienttest.Cases() {
		known[cs.String()] = true
		broken := map[string]hooks{"shares nothing": private}
		switch {
		case cs.Area == "server":
			broken = map[string]hooks{"answers although it is down": {}}
		case cs.String() == "loss/told by Do", cs.String() == "close/names what is left", cs.String() == "once/a crash before the record":
			broken = map[string]hooks{} // these are not about sharing
		}
		for fault, h := range mutants[cs.String()] {
			broken[fault] = h
		}
		for fault, h := range broken {
			t.Run(cs.String()+"/"+fault, func(t *testing.T) {
				hs := harness(h)
				if cs.Area == "unsupported" {
					hs.Kinds = nil // although the driver has all of them
				}
				rec := check(t, cs, hs)
				if !rec.failed {
					t.Fatalf("a store that %s passes: %s", fault, cs.Sentence)
				}
				if said := strings.Join(rec.said, "\n"); !strings.Contains(said, cs.Sentence) {
					t.Errorf("the failure does not print the promise:\n%s", said)
				} else {
					t.Log(said)
				}
			})
		}
	}
	for name := range mutants {
		if !known[name] {
			t.Errorf("a broken driver for %q, but there is no such case", name)
		}
	}
}

// check runs one case in a bubble of its own and records what it says instead of failing t.
func check(t *testing.T, cs clienttest.Case, h clienttest.Harness) (rec *recorder) {
	synctest.Test(t, func(t *testing.T) {
		rec = &recorder{TB: t}
		done := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(done)
			cs.Check(rec, h)
		}()
		<-done
	})
	return rec
}

// recorder is a testing.TB whose failures are news, not failures.
type recorder struct {
	testing.TB

	mu     sync.Mutex
	failed bool
	said   []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(f string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said, r.failed = append(r.said, fmt.Sprintf(f, args...)), true
}
func (r *recorder) Fatalf(f string, args ...any) {
	r.Errorf(f, args...)
	runtime.Goexit()
}
