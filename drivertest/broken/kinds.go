package broken

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var readWriteMutants = []Mutant{
	{
		Rule: "read-write/readers share", Fault: "takes a read lock for an exclusive one",
		hooks: func() hooks {
			return hooks{enter: func(r *driver.Request) {
				if r.Kind == driver.Read {
					r.Kind = driver.Write
				}
			}}
		},
	},
	{
		Rule: "read-write/a writer excludes readers and writers", Fault: "keeps writers under a key of their own",
		hooks: func() hooks {
			return hooks{rename: func(h driver.Hold) string {
				if h.Kind == driver.Write {
					return h.Name + "\x00write"
				}
				return h.Name
			}}
		},
	},
	{
		Rule: "read-write/every reader excludes a writer", Fault: "frees the name with the first reader that ends",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				err := d.Driver.Release(ctx, h, end)
				if err == nil && h.Kind == driver.Read {
					d.evict(h.Name)
				}
				return err
			}}
		},
	},
	{
		Rule: "read-write/a writer lets all readers in", Fault: "wakes one waiter for each release",
		hooks: func() hooks {
			var mu sync.Mutex
			woken := false
			return hooks{
				release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
					mu.Lock()
					woken = false
					mu.Unlock()
					return d.Driver.Release(ctx, h, end)
				},
				hear: func(p *place, s driver.Signal) bool {
					if s != driver.Changed {
						return true
					}
					mu.Lock()
					defer mu.Unlock()
					first := !woken
					woken = true
					return first
				},
			}
		},
	},
	{
		Rule: "read-write/a waiting writer stops new readers", Fault: "keeps no line for writers",
		hooks: func() hooks {
			return hooks{enter: func(r *driver.Request) { r.Wait = r.Wait && r.Kind != driver.Write }}
		},
	},
	{Rule: "read-write/a writer that gave up stops nobody", Fault: "leaves the place in line", hooks: stayInLine},
	{
		Rule: "read-write/a writer that gave up stops nobody", Fault: "puts everybody in line",
		hooks: func() hooks { return hooks{enter: func(r *driver.Request) { r.Wait = true }} },
	},
	{Rule: "read-write/a dead reader's share is taken", Fault: "keeps holds for much longer than it says", hooks: longTTL},
	{
		Rule: "read-write/readers live by themselves", Fault: "gives the name the TTL of its last reader",
		hooks: func() hooks {
			return hooks{try: grants(func(p *place, g *driver.Grant) {
				if p.r.Kind == driver.Read {
					time.AfterFunc(g.TTL, func() { p.d.s.Expire(p.r.Name) })
				}
			})}
		},
	},
	{
		Rule: "read-write/a dead waiting writer stops readers for its TTL at most", Fault: "keeps places for much longer than their TTL",
		hooks: longTTL,
	},
}

// pushy lets newcomers pass where they may not.
func pushy() hooks {
	return hooks{enter: func(r *driver.Request) {
		switch r.Kind {
		case driver.Fair:
			r.Kind = driver.Exclusive
		case driver.Leader:
			r.Kind = driver.Once
		}
	}}
}

var fairMutants = []Mutant{
	{Rule: "fair/first come first served", Fault: "gives the name to whoever comes first after the release", hooks: pushy},
	{Rule: "fair/a newcomer does not pass", Fault: "gives the name to whoever comes first after the release", hooks: pushy},
	{
		Rule: "fair/a newcomer does not pass", Fault: "lets those pass who do not wait",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if _, taken := p.d.find(p.r.Name, ""); err != nil && !taken && !p.r.Wait {
					return driver.Grant{Sent: driver.Now(), TTL: p.r.TTL, Token: 1, Span: 1}, nil
				}
				return g, err
			}}
		},
	},
	{Rule: "fair/who leaves does not block", Fault: "leaves the place in line", hooks: stayInLine},
	{Rule: "fair/a dead head blocks for its TTL at most", Fault: "keeps places for much longer than their TTL", hooks: longTTL},
	{
		Rule: "fair/who keeps trying keeps the place", Fault: "drops a place after its TTL, whether it is heard of or not",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				if time.Since(p.first) > p.r.TTL {
					p.first = time.Now()
					p.Place.Leave(ctx)
					again, err := p.d.Driver.Enter(ctx, p.r)
					if err != nil {
						return driver.Grant{}, err
					}
					p.Place = again
				}
				return p.Place.Try(ctx, span)
			}}
		},
	},
	{
		Rule: "fair/the position is right or left out", Fault: "says the length of the line",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if held, ok := err.(*driver.HeldError); ok {
					r, _ := p.d.Driver.Inspect(ctx, p.r.Name)
					held.Ahead = r.Waiters
				}
				return g, err
			}}
		},
	},
}

var semaphoreMutants = []Mutant{
	{
		Rule: "semaphore/never more than the limit", Fault: "counts from 0 to the limit",
		hooks: func() hooks { return hooks{enter: func(r *driver.Request) { r.Limit++ }} },
	},
	{
		Rule: "semaphore/grabbers never exceed the limit", Fault: "looks first and takes a moment later",
		hooks: func() hooks { return hooks{enter: plenty, try: checkThenSet} },
	},
	{
		Rule: "semaphore/all or none", Fault: "counts holds, not permits",
		hooks: func() hooks { return hooks{enter: func(r *driver.Request) { r.Permits = 1 }} },
	},
	{
		Rule: "semaphore/a release returns all", Fault: "returns one permit for each release",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				r, _ := d.Driver.Inspect(ctx, h.Name)
				err := d.Driver.Release(ctx, h, end)
				if err == nil && h.Kind == driver.Permits && h.Permits > 1 {
					h.ID, h.Token, h.Permits = h.ID+" rest", 0, h.Permits-1
					if p, err := d.Driver.Enter(ctx, driver.Request{Hold: h, Limit: r.Limit, Notify: func(driver.Signal) {}}); err == nil {
						p.Try(ctx, 1)
					}
				}
				return err
			}}
		},
	},
	{Rule: "semaphore/dead permits come back", Fault: "keeps holds for much longer than it says", hooks: longTTL},
	{
		Rule: "semaphore/dead permits come back", Fault: "frees the whole semaphore with one expired hold",
		hooks: func() hooks {
			return hooks{try: grants(func(p *place, g *driver.Grant) {
				if p.r.Kind == driver.Permits {
					time.AfterFunc(g.TTL-1, func() { p.d.s.Expire(p.r.Name) })
				}
			})}
		},
	},
	{
		Rule: "semaphore/a waiter is told when there is enough", Fault: "tells only those that want one permit",
		hooks: func() hooks {
			return hooks{hear: func(p *place, s driver.Signal) bool { return s != driver.Changed || p.r.Permits == 1 }}
		},
	},
	{
		Rule: "semaphore/limits must agree", Fault: "believes every limit",
		hooks: func() hooks { return hooks{enter: plenty, try: checkThenSet} },
	},
	{
		Rule: "semaphore/limits must agree", Fault: "shows one limit only",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if m, ok := err.(*driver.MismatchError); ok {
					m.HaveLimit = 0
				}
				return g, err
			}}
		},
	},
	{
		Rule: "semaphore/tokens of one permit rise", Fault: "numbers the permits instead of the holds",
		hooks: func() hooks {
			return hooks{byID: true, try: grants(func(p *place, g *driver.Grant) { g.Token = 1 })}
		},
	},
}

var onceMutants = []Mutant{
	{
		Rule: "once/a result is remembered", Fault: "remembers that it was done, not the result",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				end.Value = nil
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "once/a result is remembered", Fault: "takes a finished name for a held one",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if done, ok := err.(*driver.DoneError); ok {
					err = &driver.HeldError{Remaining: done.Remaining}
				}
				return g, err
			}}
		},
	},
	{
		Rule: "once/a result is forgotten in time", Fault: "remembers results for much longer",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				end.Keep *= 10
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "once/a result is forgotten in time", Fault: "forgets results too early",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				end.Keep /= 2
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "once/no result, next run", Fault: "takes every end for success",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if h.Kind == driver.Once {
					end.Keep = max(end.Keep, h.TTL)
				}
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{Rule: "once/waiters get the result", Fault: "tells waiters only when the name gets free", hooks: deafTo(driver.Changed)},
}

var leaderMutants = []Mutant{
	{
		Rule: "leader/the value is published", Fault: "publishes nothing",
		hooks: func() hooks { return hooks{inspect: shown(func(h *driver.HeldBy) { h.Value = nil })} },
	},
	{
		Rule: "leader/the value is published", Fault: "publishes the value of the last candidate",
		hooks: func() hooks {
			var mu sync.Mutex
			values := map[string][]byte{}
			return hooks{
				enter: func(r *driver.Request) {
					mu.Lock()
					defer mu.Unlock()
					values[r.Name] = slices.Clone(r.Value)
				},
				inspect: shown(func(h *driver.HeldBy) {
					mu.Lock()
					defer mu.Unlock()
					h.Value = values[h.Name]
				}),
			}
		},
	},
	{Rule: "leader/the next in line follows", Fault: "lets whoever comes first lead", hooks: pushy},
	{
		Rule: "leader/the next in line follows", Fault: "numbers the terms of each candidate",
		hooks: func() hooks { return counters(func(p *place) string { return p.r.Name + p.r.ID }) },
	},
}

var raiseMutants = []Mutant{
	{
		Rule: "raise/later tokens are larger", Fault: "says done and raises nothing",
		hooks: func() hooks {
			return hooks{raise: func(d *proxy, ctx context.Context, h driver.Hold, token int64) error {
				return d.Driver.Raise(ctx, h, 0)
			}}
		},
	},
	{
		Rule: "raise/never lower", Fault: "sets the token to whatever it is given",
		hooks: func() hooks {
			var mu sync.Mutex
			next := map[string]int64{}
			return hooks{
				byID: true,
				try: grants(func(p *place, g *driver.Grant) {
					mu.Lock()
					defer mu.Unlock()
					next[p.r.Name]++
					g.Token = next[p.r.Name]
				}),
				raise: func(d *proxy, ctx context.Context, h driver.Hold, token int64) error {
					mu.Lock()
					defer mu.Unlock()
					next[h.Name] = token
					return nil
				},
			}
		},
	},
	{
		Rule: "raise/only by the holder", Fault: "raises for everybody",
		hooks: func() hooks {
			return hooks{raise: func(d *proxy, ctx context.Context, h driver.Hold, token int64) error {
				err := d.Driver.Raise(ctx, h, token)
				if x, ok := d.find(h.Name, ""); err != nil && ok {
					d.Driver.Raise(ctx, x, token)
				}
				return err
			}}
		},
	},
	{
		Rule: "raise/only by the holder", Fault: "says done to everybody",
		hooks: func() hooks {
			return hooks{raise: func(d *proxy, ctx context.Context, h driver.Hold, token int64) error {
				d.Driver.Raise(ctx, h, token)
				return nil
			}}
		},
	},
}

var joinMutants = []Mutant{
	{
		Rule: "join/all", Fault: "gets the first name only",
		hooks: func() hooks {
			return hooks{tryAll: func(d *proxy, ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
				gs, err := d.Driver.TryAll(ctx, ps[:1])
				for err == nil && len(gs) < len(ps) {
					gs = append(gs, gs[0])
				}
				return gs, err
			}}
		},
	},
	{
		Rule: "join/all", Fault: "numbers every name alike",
		hooks: func() hooks {
			return hooks{byID: true, tryAll: func(d *proxy, ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
				gs, err := d.Driver.TryAll(ctx, ps)
				for i := range gs {
					gs[i].Token = 7
				}
				return gs, err
			}}
		},
	},
	{
		Rule: "join/or none", Fault: "keeps those that were free",
		hooks: func() hooks { return hooks{tryAll: oneByOne} },
	},
	{
		Rule: "join/or none", Fault: "does not say which name was in the way",
		hooks: func() hooks {
			return hooks{tryAll: func(d *proxy, ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
				gs, err := d.Driver.TryAll(ctx, ps)
				if errors.Is(err, driver.ErrHeld) {
					err = &driver.HeldError{}
				}
				return gs, err
			}}
		},
	},
	{
		Rule: "join/in one step", Fault: "takes from others what it lacks",
		hooks: func() hooks {
			return hooks{tryAll: func(d *proxy, ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
				for {
					gs, err := d.Driver.TryAll(ctx, ps)
					held, ok := errors.AsType[*driver.HeldError](err)
					if !ok {
						return gs, err
					}
					d.evict(held.By.Name)
				}
			}}
		},
	},
	{
		Rule: "join/in one step", Fault: "waits for the next name while it keeps the one before",
		hooks: func() hooks {
			return hooks{tryAll: func(d *proxy, ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
				for {
					if gs, err := oneByOne(d, ctx, ps); !errors.Is(err, driver.ErrHeld) {
						return gs, err
					}
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(time.Millisecond):
					}
				}
			}}
		},
	},
	{
		Rule: "join/an unheard answer is undone", Fault: "does not know in Leave what was got together",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				if !p.granted { // as far as Try knows
					return nil
				}
				return p.Place.Leave(ctx)
			}}
		},
	},
	{
		Rule: "join/an unanswered request is undone", Fault: "takes silence for a refusal",
		hooks: func() hooks { return hooks{sureOfSilence: &driver.HeldError{}} },
	},
}

// oneByOne gets what is free of what was asked for together.
func oneByOne(d *proxy, ctx context.Context, ps []driver.Place) (gs []driver.Grant, err error) {
	for _, p := range ps {
		g, e := p.Try(ctx, 1)
		if e != nil {
			err = e
		}
		gs = append(gs, g)
	}
	if err != nil {
		return nil, err
	}
	return gs, nil
}

var attachMutants = []Mutant{
	{
		Rule: "attach/confirms a hold", Fault: "gives the hold a new token",
		hooks: func() hooks {
			return hooks{byID: true, attach: func(d *proxy, ctx context.Context, r driver.Request) (driver.Grant, error) {
				g, err := d.Driver.Attach(ctx, r)
				g.Token++
				return g, err
			}}
		},
	},
	{
		Rule: "attach/confirms a hold", Fault: "takes a copy and leaves the hold",
		hooks: func() hooks {
			n := 0
			return hooks{attach: func(d *proxy, ctx context.Context, r driver.Request) (driver.Grant, error) {
				g, err := d.Driver.Attach(ctx, r)
				if err == nil {
					n++
					d.Driver.Release(ctx, r.Hold, driver.End{})
					r.ID, r.Token = r.ID+strconv.Itoa(n), 0
					d.upsert(ctx, r.Hold)
				}
				return g, err
			}}
		},
	},
	{Rule: "attach/a hold outlives its process", Fault: "releases in Close what it once got", hooks: closeReleases},
	{
		Rule: "attach/renews the hold", Fault: "attaches without renewing",
		hooks: func() hooks {
			return hooks{attach: func(d *proxy, ctx context.Context, r driver.Request) (driver.Grant, error) {
				if _, ok := d.find(r.Name, r.ID); !ok {
					return driver.Grant{}, driver.ErrNotHeld
				}
				return driver.Grant{Sent: driver.Now(), TTL: r.TTL, Token: r.Token, Span: 1}, nil
			}}
		},
	},
	{
		Rule: "attach/what has ended cannot be attached", Fault: "takes a free name for whoever attaches it",
		hooks: func() hooks {
			return hooks{attach: func(d *proxy, ctx context.Context, r driver.Request) (driver.Grant, error) {
				if err := d.upsert(ctx, r.Hold); err != nil {
					return driver.Grant{}, err
				}
				return d.Driver.Attach(ctx, driver.Request{Hold: driver.Hold{Name: r.Name, ID: r.ID, TTL: r.TTL}, Notify: r.Notify})
			}}
		},
	},
	{
		Rule: "attach/Lost is told to the new process", Fault: "goes on telling the old process",
		hooks: func() hooks {
			return hooks{attach: func(d *proxy, ctx context.Context, r driver.Request) (driver.Grant, error) {
				r.Notify = func(driver.Signal) {}
				return d.Driver.Attach(ctx, r)
			}}
		},
	},
}
