package broken

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// deafTo drops a signal.
func deafTo(s driver.Signal) func() hooks {
	return func() hooks {
		return hooks{hear: func(p *place, got driver.Signal) bool { return got != s }}
	}
}

// stayInLine says that a place has left which has not.
func stayInLine() hooks {
	return hooks{leave: func(p *place, ctx context.Context) error {
		if p.granted {
			return p.Place.Leave(ctx)
		}
		return nil
	}}
}

var waitingMutants = []Mutant{
	{Rule: "waiting/a release is told", Fault: "does not subscribe", hooks: deafTo(driver.Changed)},
	{
		Rule: "waiting/a poller is told when to look", Fault: "cannot notify, and does not say when to look either", polls: true,
		hooks: func() hooks {
			return hooks{try: refusals(func(p *place, e *driver.HeldError) { e.Again = 0 })}
		},
	},
	{
		Rule: "waiting/no change falls between the look and the wait", Fault: "subscribes a moment after it was refused",
		hooks: func() hooks {
			return hooks{hear: func(p *place, s driver.Signal) bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return s != driver.Changed || !p.refused.IsZero() && time.Since(p.refused) > time.Millisecond
			}}
		},
	},
	{
		Rule: "waiting/every change is told", Fault: "tells a place once only",
		hooks: func() hooks {
			return hooks{hear: func(p *place, s driver.Signal) bool { return s != driver.Changed || p.times(s) == 1 }}
		},
	},
	{Rule: "waiting/a dead holder's name is taken", Fault: "keeps holds for much longer than it says", hooks: longTTL},
	{
		Rule: "waiting/a long wait does not wear out", Fault: "drops a place that has waited for its TTL",
		hooks: func() hooks {
			return hooks{hear: func(p *place, s driver.Signal) bool {
				return s != driver.Changed || time.Since(p.first) < p.r.TTL
			}}
		},
	},
	{
		Rule: "waiting/a long wait does not wear out", Fault: "counts the TTL of a hold from the beginning of its wait",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				waited := time.Since(p.first)
				g, err := p.Place.Try(ctx, span)
				if err == nil && waited > 0 {
					time.AfterFunc(max(p.r.TTL-waited, 0), func() { p.d.Driver.Release(context.Background(), p.r.Hold, driver.End{}) })
					time.Sleep(time.Nanosecond)
				}
				return g, err
			}}
		},
	},
	{
		Rule: "waiting/who does not wait is not in line", Fault: "puts everybody in line",
		hooks: func() hooks { return hooks{enter: func(r *driver.Request) { r.Wait = true }} },
	},
	{Rule: "waiting/who left is not in line", Fault: "leaves the place in line", hooks: stayInLine},
	{
		Rule: "waiting/who leaves passes the turn on", Fault: "tells nobody when one that was called leaves",
		hooks: func() hooks {
			var leaving atomic.Bool
			return hooks{
				hear: func(p *place, s driver.Signal) bool { return s != driver.Changed || !leaving.Load() },
				leave: func(p *place, ctx context.Context) error {
					leaving.Store(p.times(driver.Changed) > 0)
					defer leaving.Store(false)
					return p.Place.Leave(ctx)
				},
			}
		},
	},
	{
		Rule: "waiting/silence after leaving", Fault: "keeps its subscription for a while",
		hooks: func() hooks {
			return hooks{leave: func(p *place, ctx context.Context) error {
				time.AfterFunc(time.Millisecond, func() { p.asked.Notify(driver.Changed) })
				return p.Place.Leave(ctx)
			}}
		},
	},
	{
		Rule: "waiting/how long to the end", Fault: "rounds what is left down",
		hooks: func() hooks {
			return hooks{try: refusals(func(p *place, e *driver.HeldError) { e.Remaining = e.Remaining.Truncate(time.Millisecond) })}
		},
	},
	{Rule: "waiting/a waiter is Wanted to the holder", Fault: "does not tell holders", hooks: deafTo(driver.Wanted)},
	{Rule: "waiting/a stolen hold is Lost", Fault: "does not watch its holds", hooks: deafTo(driver.Lost)},
	{Rule: "waiting/an expired hold is Lost", Fault: "does not watch its holds", hooks: deafTo(driver.Lost)},
	{
		Rule: "waiting/an expired hold is Lost", Fault: "guesses at half of the TTL",
		hooks: func() hooks {
			return hooks{try: grants(func(p *place, g *driver.Grant) {
				time.AfterFunc(g.TTL/2, func() { p.asked.Notify(driver.Lost) })
			})}
		},
	},
}
