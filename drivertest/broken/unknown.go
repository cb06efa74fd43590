package broken

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var unknownMutants = []Mutant{
	{
		Rule: "unknown outcome/a request sent twice is one hold", Fault: "refuses a request because of itself",
		hooks: logged(func(l *log) hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				if h, ok := p.d.find(p.r.Name, p.r.ID); ok {
					return driver.Grant{}, &driver.HeldError{By: driver.HeldBy{Hold: h}}
				}
				return p.Place.Try(ctx, span)
			}}
		}),
	},
	{
		Rule: "unknown outcome/a request sent twice is one hold", Fault: "gives it a second token",
		hooks: func() hooks {
			return hooks{byID: true, try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				_, twice := p.d.find(p.r.Name, p.r.ID)
				g, err := p.Place.Try(ctx, span)
				if twice {
					g.Token++
				}
				return g, err
			}}
		},
	},
	{
		Rule: "unknown outcome/a request sent twice is one hold", Fault: "counts it as two holds",
		hooks: func() hooks {
			var mu sync.Mutex
			holds := map[string]int{}
			return hooks{
				try: grants(func(p *place, g *driver.Grant) {
					mu.Lock()
					defer mu.Unlock()
					holds[p.r.ID]++
				}),
				release: func(d *proxy, ctx context.Context, h driver.Hold, end driver.End) error {
					mu.Lock()
					holds[h.ID]--
					more := holds[h.ID] > 0
					mu.Unlock()
					if more {
						return nil
					}
					return d.Driver.Release(ctx, h, end)
				},
			}
		},
	},
	{
		Rule: "unknown outcome/leave undoes an unheard grant", Fault: "leaves a granted place as it is",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				if p.granted {
					return nil
				}
				return p.Place.Leave(ctx)
			}}
		},
	},
	{
		Rule: "unknown outcome/release undoes exactly that hold or nothing", Fault: "deletes the name without looking whose it is",
		hooks: func() hooks { return hooks{release: deleteBlindly} },
	},
	{
		Rule: "unknown outcome/nothing is granted after leaving", Fault: "lets a request that comes late in again",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				if p.left {
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
		Rule: "unknown outcome/leave may be repeated", Fault: "complains that there is nothing to leave",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				if p.left {
					return errors.New("broken: no such place")
				}
				return p.Place.Leave(ctx)
			}}
		},
	},
	{
		Rule: "unknown outcome/leave may be repeated", Fault: "frees the name, whoever has it",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				p.d.evict(p.r.Name)
				return p.Place.Leave(ctx)
			}}
		},
	},
	{
		Rule: "unknown outcome/a cancelled request leaves nothing", Fault: "goes on trying in the background",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if ctx.Err() != nil {
					time.AfterFunc(time.Millisecond, func() {
						if late, err := p.d.Driver.Enter(context.Background(), p.r); err == nil {
							late.Try(context.Background(), span)
						}
					})
				}
				return g, err
			}}
		},
	},
	{
		Rule: "unknown outcome/an unanswered request is undone", Fault: "takes silence for a refusal",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				p.err = &driver.HeldError{}
				return p.Place.Try(ctx, span)
			}}
		},
	},
	{
		Rule: "unknown outcome/an unanswered request is undone", Fault: "says that nothing was done",
		hooks: func() hooks { return hooks{sureOfSilence: driver.ErrNotDone} },
	},
	{
		Rule: "unknown outcome/an unanswered request is undone", Fault: "believes that an unanswered request did nothing",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				if errors.Is(p.err, errSilent) {
					return nil
				}
				return p.Place.Leave(ctx)
			}}
		},
	},
}
