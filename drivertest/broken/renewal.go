package broken

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// eachRenewal renews hold by hold.
func eachRenewal(renew func(d *proxy, ctx context.Context, h driver.Hold) error) func(d *proxy, ctx context.Context, hs []driver.Hold) []error {
	return func(d *proxy, ctx context.Context, hs []driver.Hold) []error {
		errs := make([]error, len(hs))
		for i, h := range hs {
			errs[i] = renew(d, ctx, h)
		}
		return errs
	}
}

func (d *proxy) renewOne(ctx context.Context, h driver.Hold) error {
	return d.Driver.Renew(ctx, []driver.Hold{h})[0]
}

// upsert takes the name for h if it is free.
func (d *proxy) upsert(ctx context.Context, h driver.Hold) error {
	r := driver.Request{Hold: h, Limit: h.Permits, Notify: func(driver.Signal) {}}
	p, err := d.Driver.Enter(ctx, r)
	if err == nil {
		_, err = p.Try(ctx, 1)
	}
	if err != nil {
		return driver.ErrNotHeld
	}
	return nil
}

// log remembers what happened to the holds of a store.
type log struct {
	mu       sync.Mutex
	ttl      map[string]time.Duration // of granted holds
	by       map[string]*proxy
	released map[string]bool
}

// logged adds the log to a mutant.
func logged(more func(l *log) hooks) func() hooks {
	return func() hooks {
		l := &log{ttl: map[string]time.Duration{}, by: map[string]*proxy{}, released: map[string]bool{}}
		h := more(l)
		if h.try == nil {
			h.try = grants(func(p *place, g *driver.Grant) { l.granted(p) })
		}
		release := h.release
		if release == nil {
			release = func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				return d.Driver.Release(ctx, h, end)
			}
		}
		h.release = func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
			err := release(d, ctx, h, end)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.released[h.ID] = true
			return err
		}
		return h
	}
}

func (l *log) granted(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ttl[p.r.ID], l.by[p.r.ID] = p.r.TTL, p.d
}

// of says what is known of an ID.
func (l *log) of(id string) (ttl time.Duration, by *proxy, released bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl[id], l.by[id], l.released[id]
}

var renewalMutants = []Mutant{
	{
		Rule: "renewal/keeps a hold", Fault: "confirms without telling the store",
		hooks: func() hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				if _, ok := d.find(h.Name, h.ID); !ok {
					return driver.ErrNotHeld
				}
				return nil
			})}
		},
	},
	{
		Rule: "renewal/counts from now", Fault: "renews with the TTL that the hold began with",
		hooks: logged(func(l *log) hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				if ttl, _, _ := l.of(h.ID); ttl > 0 {
					h.TTL = ttl
				}
				return d.renewOne(ctx, h)
			})}
		}),
	},
	{
		Rule: "renewal/never shortens", Fault: "sets the TTL to what the last one asked for",
		hooks: func() hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				if err := d.renewOne(ctx, h); err != nil {
					return err
				}
				time.AfterFunc(h.TTL, func() { d.Driver.Release(context.Background(), h, driver.End{}) })
				return nil
			})}
		},
	},
	{
		Rule: "renewal/does not revive what was released", Fault: "takes a free name for whoever renews it",
		hooks: func() hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				if err := d.renewOne(ctx, h); err == nil {
					return nil
				}
				return d.upsert(ctx, h)
			})}
		},
	},
	{
		Rule: "renewal/does not revive what expired", Fault: "takes an expired name for whoever renews it",
		hooks: logged(func(l *log) hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				err := d.renewOne(ctx, h)
				if _, _, released := l.of(h.ID); err == nil || released {
					return err
				}
				return d.upsert(ctx, h)
			})}
		}),
	},
	{
		Rule: "renewal/only its own hold", Fault: "prolongs the name without looking whose it is",
		hooks: func() hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				err := d.renewOne(ctx, h)
				if other, ok := d.find(h.Name, ""); ok && err != nil {
					other.TTL = h.TTL
					d.renewOne(ctx, other)
				}
				return err
			})}
		},
	},
	{
		Rule: "renewal/silence is not an end", Fault: "takes silence for a loss",
		hooks: func() hooks { return hooks{sureOfSilence: driver.ErrNotHeld} },
	},
	{
		Rule: "renewal/answers each hold of a batch", Fault: "answers one error for the whole batch",
		hooks: func() hooks {
			return hooks{renew: func(d *proxy, ctx context.Context, hs []driver.Hold) []error {
				errs := d.Driver.Renew(ctx, hs)
				for _, err := range errs {
					if err != nil {
						for i := range errs {
							errs[i] = err
						}
						break
					}
				}
				return errs
			}}
		},
	},
	{
		Rule: "renewal/answers each hold of a batch", Fault: "answers only what failed",
		hooks: func() hooks {
			return hooks{renew: func(d *proxy, ctx context.Context, hs []driver.Hold) []error {
				var failed []error
				for _, err := range d.Driver.Renew(ctx, hs) {
					if err != nil || len(hs) == 1 {
						failed = append(failed, err)
					}
				}
				return failed
			}}
		},
	},
}
