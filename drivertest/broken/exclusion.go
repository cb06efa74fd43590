package broken

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// plenty turns a request into one for a permit of a semaphore that never runs out.
func plenty(r *driver.Request) {
	r.Kind, r.Limit = driver.Permits, 1_000_000
}

// checkThenSet looks first and takes a moment later, whatever came between.
func checkThenSet(p *place, ctx context.Context, span int) (driver.Grant, error) {
	r, _ := p.d.Driver.Inspect(ctx, p.r.Name)
	used := 0
	for _, h := range r.Holds {
		used += h.Permits
	}
	if limit := max(p.asked.Limit, 1); used+p.r.Permits > limit {
		return driver.Grant{}, &driver.HeldError{By: r.Holds[0], Again: time.Millisecond}
	}
	time.Sleep(time.Millisecond)
	return p.Place.Try(ctx, span)
}

// longTTL lets everything live ten times longer than it says.
func longTTL() hooks {
	return hooks{
		enter: func(r *driver.Request) { r.TTL *= 10 },
		try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
			g, err := p.Place.Try(ctx, span)
			g.TTL = p.asked.TTL
			return g, err
		},
	}
}

// grants changes what is granted.
func grants(change func(p *place, g *driver.Grant)) func(p *place, ctx context.Context, span int) (driver.Grant, error) {
	return func(p *place, ctx context.Context, span int) (driver.Grant, error) {
		g, err := p.Place.Try(ctx, span)
		if err == nil {
			change(p, &g)
		}
		return g, err
	}
}

// refusals changes what a refusal says.
func refusals(change func(p *place, e *driver.HeldError)) func(p *place, ctx context.Context, span int) (driver.Grant, error) {
	return func(p *place, ctx context.Context, span int) (driver.Grant, error) {
		g, err := p.Place.Try(ctx, span)
		if held, ok := err.(*driver.HeldError); ok {
			change(p, held)
		}
		return g, err
	}
}

var exclusionMutants = []Mutant{
	{
		Rule: "exclusion/one holder at a time", Fault: "grants whatever is asked for",
		hooks: func() hooks { return hooks{enter: plenty} },
	},
	{
		Rule: "exclusion/one holder at a time", Fault: "lets the process that has the name in again",
		hooks: func() hooks {
			return hooks{rename: func(h driver.Hold) string { return h.Name + "\x00" + h.ID[len(h.ID)-1:] }}
		},
	},
	{
		Rule: "exclusion/grabbers never overlap", Fault: "looks first and takes a moment later",
		hooks: func() hooks { return hooks{enter: plenty, try: checkThenSet} },
	},
	{
		Rule: "exclusion/fair excludes exclusive", Fault: "keeps fair locks under a key of their own",
		hooks: func() hooks {
			return hooks{rename: func(h driver.Hold) string {
				if h.Kind == driver.Fair {
					return h.Name + "\x00fair"
				}
				return h.Name
			}}
		},
	},
	{
		Rule: "exclusion/a refusal tells the truth", Fault: "names the one who asked as the holder",
		hooks: func() hooks {
			return hooks{try: refusals(func(p *place, e *driver.HeldError) { e.By.Hold = p.r.Hold })}
		},
	},
	{
		Rule: "exclusion/a refusal tells the truth", Fault: "takes milliseconds for seconds",
		hooks: func() hooks {
			return hooks{try: refusals(func(p *place, e *driver.HeldError) { e.Remaining *= 1000 })}
		},
	},
	{
		Rule: "exclusion/a grant tells the truth", Fault: "counts from a clock that is ahead",
		hooks: func() hooks {
			return hooks{try: grants(func(p *place, g *driver.Grant) { g.Sent = g.Sent.Add(time.Second) })}
		},
	},
	{
		Rule: "exclusion/a grant tells the truth", Fault: "grants more tokens than were asked for",
		hooks: func() hooks { return hooks{try: grants(func(p *place, g *driver.Grant) { g.Span++ })} },
	},
	{
		Rule: "exclusion/a grant tells the truth", Fault: "leaves the TTL out",
		hooks: func() hooks { return hooks{try: grants(func(p *place, g *driver.Grant) { g.TTL = 0 })} },
	},
	{
		Rule: "exclusion/a late answer is no longer trust", Fault: "counts from the answer",
		hooks: func() hooks { return hooks{sentLate: true} },
	},
	{
		Rule: "exclusion/trust ends first", Fault: "keeps holds for a little less than it says",
		hooks: func() hooks {
			return hooks{
				enter: func(r *driver.Request) { r.TTL = r.TTL * 9 / 10 },
				try:   grants(func(p *place, g *driver.Grant) { g.TTL = p.asked.TTL }),
			}
		},
	},
	{
		Rule: "exclusion/trust ends first", Fault: "cuts TTLs to whole seconds",
		hooks: func() hooks {
			return hooks{
				enter: func(r *driver.Request) { r.TTL = r.TTL.Truncate(time.Second) },
				try:   grants(func(p *place, g *driver.Grant) { g.TTL = p.asked.TTL }),
			}
		},
	},
}
