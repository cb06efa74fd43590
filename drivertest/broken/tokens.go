package broken

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// counters number the grants of what key names.
func counters(key func(p *place) string) hooks {
	var mu sync.Mutex
	last := map[string]int64{}
	return hooks{byID: true, try: grants(func(p *place, g *driver.Grant) {
		mu.Lock()
		defer mu.Unlock()
		k := key(p)
		g.Token = last[k] + 1
		last[k] += int64(g.Span)
	})}
}

var tokenMutants = []Mutant{
	{
		Rule: "tokens/rise over release", Fault: "takes the clock's seconds for a token",
		hooks: func() hooks {
			return hooks{byID: true, try: grants(func(p *place, g *driver.Grant) { g.Token = time.Now().Unix() })}
		},
	},
	{
		Rule: "tokens/rise over release", Fault: "counts in each process",
		hooks: func() hooks { return counters(func(p *place) string { return fmt.Sprintf("%p", p.d) }) },
	},
	{
		Rule: "tokens/rise over expiry", Fault: "takes the clock's microseconds for a token and keeps no record of spans",
		hooks: func() hooks {
			return hooks{byID: true, try: grants(func(p *place, g *driver.Grant) { g.Token = time.Now().UnixMicro() })}
		},
	},
	{
		Rule: "tokens/rise over a steal", Fault: "deletes the counter with a hold that is stolen",
		hooks: func() hooks {
			var mu sync.Mutex
			last, by := map[string]int64{}, map[string]*proxy{}
			return hooks{
				byID: true,
				try: grants(func(p *place, g *driver.Grant) {
					mu.Lock()
					defer mu.Unlock()
					last[p.r.Name]++
					g.Token, by[p.r.ID] = last[p.r.Name], p.d
				}),
				release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
					mu.Lock()
					if by[h.ID] != d {
						delete(last, h.Name)
					}
					mu.Unlock()
					return d.Driver.Release(ctx, h, end)
				},
			}
		},
	},
	{
		Rule: "tokens/rise above the last one used", Fault: "counts a hold as one token however many it used",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				end.Last = 0
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "tokens/count a whole interval", Fault: "takes a last token that it never reserved for none",
		hooks: func() hooks {
			return hooks{release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
				if end.Last > h.Token+1_000_000 {
					end.Last = 0
				}
				return d.Driver.Release(ctx, h, end)
			}}
		},
	},
	{
		Rule: "tokens/rise between kinds of a family", Fault: "has a counter for each kind",
		hooks: func() hooks { return counters(func(p *place) string { return p.r.Name + "\x00" + p.r.Kind.String() }) },
	},
	{
		Rule: "tokens/all or none", Fault: "grants no token when it finds no counter",
		hooks: func() hooks {
			n := 0
			return hooks{byID: true, try: grants(func(p *place, g *driver.Grant) {
				if n++; n%3 == 0 {
					g.Token = 0
				}
			})}
		},
	},
	{
		Rule: "tokens/stay over renewal", Fault: "gives a hold a new number at each renewal",
		hooks: func() hooks {
			renewed := map[string]bool{}
			return hooks{
				renew: func(d *proxy, ctx context.Context, hs []driver.Hold) []error {
					for _, h := range hs {
						renewed[h.ID] = true
					}
					return d.Driver.Renew(ctx, hs)
				},
				release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
					if renewed[h.ID] && h.Token != 0 {
						return driver.ErrNotHeld
					}
					return d.Driver.Release(ctx, h, end)
				},
			}
		},
	},
	{
		Rule: "tokens/stay over renewal", Fault: "shows another number after a renewal",
		hooks: func() hooks {
			renewed := map[string]bool{}
			return hooks{
				renew: func(d *proxy, ctx context.Context, hs []driver.Hold) []error {
					for _, h := range hs {
						renewed[h.ID] = true
					}
					return d.Driver.Renew(ctx, hs)
				},
				inspect: shown(func(h *driver.HeldBy) {
					if renewed[h.ID] {
						h.Token++
					}
				}),
			}
		},
	},
}
