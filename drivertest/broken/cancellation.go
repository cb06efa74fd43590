package broken

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var cancellationMutants = []Mutant{
	{
		Rule: "cancellation/an ended context ends the call", Fault: "sleeps through the end of its context",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				if ctx.Err() != nil {
					time.Sleep(p.r.TTL)
				}
				return p.Place.Try(ctx, span)
			}}
		},
	},
	{
		Rule: "cancellation/a hold outlives the contexts of its calls", Fault: "ends a hold with the context that it was got with",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if err == nil {
					context.AfterFunc(ctx, func() { p.d.Driver.Release(context.Background(), p.r.Hold, driver.End{}) })
				}
				return g, err
			}}
		},
	},
	{
		Rule: "cancellation/a hold outlives the contexts of its calls", Fault: "ends a place with the context of its first Try",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if err != nil && !p.left {
					context.AfterFunc(ctx, func() { p.Place.Leave(context.Background()) })
				}
				return g, err
			}}
		},
	},
	{
		Rule: "cancellation/a cancelled waiter leaves nothing", Fault: "leaves the place in line when its context has ended",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				if p.err != nil && !isHeld(p.err) {
					return nil
				}
				return p.Place.Leave(ctx)
			}}
		},
	},
	{
		Rule: "cancellation/a silent store does not stop a context", Fault: "waits for the answer whatever its context says",
		hooks: func() hooks { return hooks{deafToContext: true} },
	},
	{
		Rule: "cancellation/a request is given up after its TTL", Fault: "waits for the answer for ever",
		hooks: func() hooks { return hooks{deafToTTL: true} },
	},
}

func isHeld(err error) bool {
	_, ok := err.(*driver.HeldError)
	return ok
}
