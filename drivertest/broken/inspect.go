package broken

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// shown changes what Inspect shows of a hold.
func shown(change func(h *driver.HeldBy)) func(d *proxy, ctx context.Context, name string) (driver.Record, error) {
	return records(func(r *driver.Record) {
		for i := range r.Holds {
			change(&r.Holds[i])
		}
	})
}

// records changes what Inspect shows of a name.
func records(change func(r *driver.Record)) func(d *proxy, ctx context.Context, name string) (driver.Record, error) {
	return func(d *proxy, ctx context.Context, name string) (driver.Record, error) {
		r, err := d.Driver.Inspect(ctx, name)
		change(&r)
		return r, err
	}
}

var inspectMutants = []Mutant{
	{
		Rule: "inspect/shows a hold", Fault: "shows the client instead of the hold",
		hooks: func() hooks {
			return hooks{inspect: shown(func(h *driver.HeldBy) { h.ID, _, _ = strings.Cut(h.ID, ":") })}
		},
	},
	{
		Rule: "inspect/shows a hold", Fault: "shows the time of the end for the time that is left",
		hooks: func() hooks {
			return hooks{inspect: shown(func(h *driver.HeldBy) { h.Remaining = time.Duration(time.Now().Add(h.Remaining).UnixNano()) })}
		},
	},
	{
		Rule: "inspect/shows a hold", Fault: "loses the time that is left",
		hooks: func() hooks { return hooks{inspect: shown(func(h *driver.HeldBy) { h.Remaining = 0 })} },
	},
	{
		Rule: "inspect/shows a hold", Fault: "shows the process that looks as the holder",
		hooks: func() hooks {
			return hooks{inspect: shown(func(h *driver.HeldBy) { h.Who.Host = "another" })}
		},
	},
	{
		Rule: "inspect/shows every hold", Fault: "shows one hold of several",
		hooks: func() hooks {
			return hooks{inspect: records(func(r *driver.Record) { r.Holds = r.Holds[:min(len(r.Holds), 1)] })}
		},
	},
	{
		Rule: "inspect/shows every hold", Fault: "does not know the limit",
		hooks: func() hooks { return hooks{inspect: records(func(r *driver.Record) { r.Limit = 0 })} },
	},
	{
		Rule: "inspect/a free name is empty", Fault: "takes a free name for an error",
		hooks: func() hooks {
			return hooks{inspect: func(d *proxy, ctx context.Context, name string) (driver.Record, error) {
				r, err := d.Driver.Inspect(ctx, name)
				if err == nil && len(r.Holds) == 0 {
					err = errors.New("broken: no such name")
				}
				return r, err
			}}
		},
	},
	{
		Rule: "inspect/counts the waiters", Fault: "counts the holders too",
		hooks: func() hooks { return hooks{inspect: records(func(r *driver.Record) { r.Waiters += len(r.Holds) })} },
	},
	{
		Rule: "inspect/what is shown can be stolen", Fault: "shows a token that is not the hold's",
		hooks: func() hooks { return hooks{inspect: shown(func(h *driver.HeldBy) { h.Token++ })} },
	},
	{
		Rule: "inspect/what is shown can be stolen", Fault: "confirms stolen holds from memory",
		hooks: logged(func(l *log) hooks {
			return hooks{
				renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
					if _, by, _ := l.of(h.ID); by == d {
						return nil
					}
					return d.renewOne(ctx, h)
				}),
			}
		}),
	},
	{Rule: "inspect/nothing is left", Fault: "leaves the places of those that gave up", hooks: stayInLine},
	{
		Rule: "inspect/lists the names in use", Fault: "lists names outside the prefix",
		hooks: func() hooks {
			return hooks{list: func(d *proxy, ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
				return d.Driver.List(ctx, "")
			}}
		},
	},
	{
		Rule: "inspect/lists the names in use", Fault: "takes a percent sign in the prefix for a pattern",
		hooks: func() hooks {
			return hooks{list: func(d *proxy, ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
				return d.Driver.List(ctx, strings.TrimSuffix(prefix, "%"))
			}}
		},
	},
	{
		Rule: "inspect/lists the names in use", Fault: "lists the first page only",
		hooks: func() hooks {
			return hooks{list: func(d *proxy, ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
				return func(yield func(driver.Record, error) bool) {
					n := 0
					for r, err := range d.Driver.List(ctx, prefix) {
						if n++; n > 10 || !yield(r, err) {
							return
						}
					}
				}
			}}
		},
	},
	{
		Rule: "inspect/lists the names in use", Fault: "lists a name twice",
		hooks: func() hooks {
			return hooks{list: func(d *proxy, ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
				return func(yield func(driver.Record, error) bool) {
					for r, err := range d.Driver.List(ctx, prefix) {
						for range 2 {
							if !yield(r, err) {
								return
							}
						}
					}
				}
			}}
		},
	},
	{
		Rule: "inspect/a watch ticks", Fault: "never ticks",
		hooks: func() hooks {
			return hooks{watch: func(d *proxy, ctx context.Context, name string) (<-chan struct{}, error) {
				return d.Driver.Watch(ctx, name+"\x00elsewhere")
			}}
		},
	},
	{
		Rule: "inspect/a watch ticks", Fault: "leaves the channel open when its context ends",
		hooks: func() hooks {
			return hooks{watch: func(d *proxy, ctx context.Context, name string) (<-chan struct{}, error) {
				ch, err := d.Driver.Watch(ctx, name)
				if err != nil {
					return nil, err
				}
				out := make(chan struct{}, 1)
				go func() {
					for range ch {
						out <- struct{}{}
					}
				}()
				return out, nil
			}}
		},
	},
}
