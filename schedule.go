package pawl

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Plan says when a job is due. The schedules of robfig/cron are Plans.
type Plan interface {
	// Next is the first tick after t; the zero time means never again. All nodes must compute the same ticks.
	Next(t time.Time) time.Time
}

// every is the plan of a fixed period. Its ticks are multiples of the period since the year 1, in UTC, and so the same
// on every node.
type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.UTC().Truncate(time.Duration(e)).Add(time.Duration(e))
}

// Schedule is a job that runs once per tick on one of the nodes that Run it, made by Client.Schedule or
// Client.ScheduleOn. It is safe for concurrent use.
type Schedule struct {
	c    *Client
	name string
	plan Plan
	opts ScheduleOptions
}

// ScheduleOptions change how ticks are treated. The zero value is the default.
type ScheduleOptions struct {
	Jitter     time.Duration // each node waits a random part of this after a tick. Default: none
	SkipMissed bool          // a tick that nobody ran in time is not made up. Default: the latest one is
}

// Schedule runs a job once per period; periods begin at multiples of it since the year 1, in UTC.
func (c *Client) Schedule(name string, period time.Duration) *Schedule {
	return &Schedule{c: c, name: name, plan: every(period)}
}

// ScheduleOn runs a job once per tick of plan.
func (c *Client) ScheduleOn(name string, plan Plan) *Schedule {
	return &Schedule{c: c, name: name, plan: plan}
}

// With is the same schedule with other options.
func (s *Schedule) With(o ScheduleOptions) *Schedule {
	n := *s
	n.opts = o
	return &n
}

// remember is how long a tick stays recorded at least, which bounds by how much the nodes' clocks may differ.
const remember = time.Hour

// Run runs fn at each tick that no node has run, until ctx ends (it returns ctx's cause) or the plan does (nil). Ticks are
// told apart by their time, and a run is recorded under it as Once does: no tick is recorded twice, whatever the clocks of
// the nodes say, as long as they differ by less than an hour. Runs never overlap: they hold the Mutex of the schedule's
// name. An error of fn is an Event (JobFailed) and the tick counts as run, also when fn exceeds Options.MaxHold. A node that
// dies or loses the lease in fn leaves the tick to another one, after the TTL. Errors of the store are waited out, until the
// next tick is due.
//
// A node that is started in the middle of a period makes up for its beginning, unless SkipMissed is set or it was run; it
// does not look for the last tick of a plan (ScheduleOn).
func (s *Schedule) Run(ctx context.Context, fn func(context.Context) error) error {
	if e, ok := s.plan.(every); s.plan == nil || ok && e < every(time.Millisecond) || s.opts.Jitter < 0 {
		return invalid("schedule %q: a period of at least 1ms is needed, and a jitter that is not negative", s.name)
	}
	tick := s.plan.Next(time.Now())
	if e, ok := s.plan.(every); ok && !s.opts.SkipMissed {
		tick = time.Now().UTC().Truncate(time.Duration(e)) // the period that has begun, unless another node has run it
	}
	for !tick.IsZero() {
		if wait := time.Until(tick) + rand.N(s.opts.Jitter+1); !until(ctx, wait) {
			return context.Cause(ctx)
		}
		if err := s.run(ctx, tick, fn); err != nil {
			return err
		}
		now := time.Now()
		next := s.plan.Next(tick)
		for after := next; !after.IsZero() && !after.After(now); after = s.plan.Next(after) {
			next = after
			if s.opts.SkipMissed {
				next = s.plan.Next(now)
				break
			}
		}
		tick = next
	}
	return nil
}

type tickKey struct{}

// Tick is the tick that ctx's function runs for, as Schedule.Run passes it, or the zero time elsewhere. A tick may be run
// late: a job that works on a period of time (a report of the last hour) must go by it and not by the clock.
func Tick(ctx context.Context) time.Time {
	tick, _ := ctx.Value(tickKey{}).(time.Time)
	return tick
}

// until waits for d, exactly; false when ctx ended first.
func until(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// run sees to it that one tick is run by somebody. An error ends the schedule.
func (s *Schedule) run(ctx context.Context, tick time.Time, fn func(context.Context) error) error {
	key := s.name + "@" + tick.UTC().Format(time.RFC3339Nano)
	// MaxHold bounds the run and not the hold of its tick: the tick has been run then, and would be no better run once more.
	t := &target{c: s.c.With(Options{MaxHold: math.MaxInt64 / 2}), kind: driver.Once, name: key, permits: 1}
	keep := remember
	if next := s.plan.Next(tick); !next.IsZero() {
		keep = max(keep, 2*next.Sub(tick))
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		l, err := t.acquire(ctx, false)
		switch {
		case err == nil:
			ctx = context.WithValue(ctx, tickKey{}, tick)
			return s.lead(ctx, l, driver.End{Keep: keep.Truncate(time.Millisecond)}, fn)
		case errors.Is(err, driver.ErrDone):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case !errors.Is(err, ErrHeld) && !sleep(ctx, pause):
			return context.Cause(ctx)
		}
		if next := s.plan.Next(tick); !next.IsZero() && time.Now().After(next) {
			return nil // missed
		}
	}
}

// lead runs fn for a tick that is ours. The tick is recorded unless fn never ran, was cut short by ctx, or lost the lease.
func (s *Schedule) lead(ctx context.Context, l *Lease, end driver.End, fn func(context.Context) error) error {
	record := driver.End{}
	defer func() { l.unlock(record) }()
	begin, ran := driver.Now(), false
	err := s.c.Mutex(s.name).Do(l.Context(ctx), func(ctx context.Context) error {
		ran = true
		return fn(ctx)
	})
	switch {
	case ran && err == nil:
		record = end
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !ran && final(err):
		return err
	case ran && l.Err() == nil:
		record = end
	}
	if err != nil {
		s.c.events.emit(&s.c.opts, Event{Op: JobFailed, Name: s.name, Token: l.token, Took: driver.Now().Sub(begin), Err: err})
	}
	return nil
}
