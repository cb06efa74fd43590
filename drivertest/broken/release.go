package broken

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// deleteBlindly ends whatever hold the name has.
func deleteBlindly(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
	err := d.Driver.Release(ctx, h, end)
	if err != nil {
		if _, ok := d.find(h.Name, ""); ok {
			d.evict(h.Name)
			return nil
		}
	}
	return err
}

var releaseMutants = []Mutant{
	{
		Rule: "release/frees at once", Fault: "says done and releases in the background",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if _, ok := d.find(h.Name, h.ID); !ok {
					return driver.ErrNotHeld
				}
				time.AfterFunc(50*time.Millisecond, func() { d.Driver.Release(context.Background(), h, end) })
				return nil
			}}
		},
	},
	{
		Rule: "release/twice is harmless", Fault: "deletes the name without looking whose it is",
		hooks: func() hooks { return hooks{release: deleteBlindly} },
	},
	{
		Rule: "release/twice is harmless", Fault: "says done when there is nothing to release",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				d.Driver.Release(ctx, h, end)
				return nil
			}}
		},
	},
	{
		Rule: "release/needs the ID", Fault: "lets any hold of the same client be released",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				client, _, _ := strings.Cut(h.ID, ":")
				if x, ok := d.find(h.Name, ""); ok && strings.HasPrefix(x.ID, client+":") {
					h = x
				}
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "release/needs the token", Fault: "does not compare tokens",
		hooks: func() hooks { return hooks{byID: true} },
	},
	{
		Rule: "release/by ID alone", Fault: "wants the token always",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if h.Token == 0 {
					return driver.ErrNotHeld
				}
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "release/from another process", Fault: "releases only what it got itself",
		hooks: logged(func(l *log) hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if _, by, _ := l.of(h.ID); by != d {
					return driver.ErrNotHeld
				}
				return d.Driver.Release(ctx, h, end)
			}}
		}),
	},
	{
		Rule: "release/of an expired hold is harmless", Fault: "deletes the name when its own hold has expired",
		hooks: logged(func(l *log) hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if ttl, _, released := l.of(h.ID); ttl > 0 && !released {
					return deleteBlindly(d, ctx, h, end)
				}
				return d.Driver.Release(ctx, h, end)
			}}
		}),
	},
	{
		Rule: "release/may keep the name taken", Fault: "does not know End.Keep",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				end.Keep = 0
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "release/may keep the name taken", Fault: "leaves a kept name with its holder",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if end.Keep > 0 && h.Kind != driver.Once {
					time.AfterFunc(end.Keep, func() { d.Driver.Release(context.Background(), h, driver.End{}) })
					return nil
				}
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "release/may keep the name taken", Fault: "keeps the name for the rest of its TTL instead",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if end.Keep > 0 && h.Kind != driver.Once {
					end.Keep = h.TTL
				}
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "release/may be repeated", Fault: "takes silence for the end",
		hooks: func() hooks { return hooks{sureOfSilence: driver.ErrNotHeld} },
	},
	{
		Rule: "release/is told to nobody who released", Fault: "takes its own deletion for a loss",
		hooks: func() hooks {
			var mu sync.Mutex
			places := map[string]*place{}
			return hooks{
				try: grants(func(p *place, g *driver.Grant) {
					mu.Lock()
					defer mu.Unlock()
					places[p.r.ID] = p
				}),
				release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
					err := d.Driver.Release(ctx, h, end)
					mu.Lock()
					defer mu.Unlock()
					if p := places[h.ID]; err == nil && p != nil {
						p.asked.Notify(driver.Lost)
					}
					return err
				},
			}
		},
	},
	{
		Rule: "release/is told to nobody who released", Fault: "keeps its subscription for a while",
		hooks: func() hooks {
			var mu sync.Mutex
			places := map[string]*place{}
			return hooks{
				try: grants(func(p *place, g *driver.Grant) {
					mu.Lock()
					defer mu.Unlock()
					places[p.r.ID] = p
				}),
				release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
					mu.Lock()
					defer mu.Unlock()
					if p := places[h.ID]; p != nil {
						time.AfterFunc(time.Millisecond, func() { p.asked.Notify(driver.Changed) })
					}
					return d.Driver.Release(ctx, h, end)
				},
			}
		},
	},
}
