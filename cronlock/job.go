package cronlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/pawl-lock/pawl"
)

// Job is a periodic job that all nodes know by its name and run at its ticks. It is plain data and safe for concurrent use.
type Job struct {
	Locks *pawl.Client // required
	Name  string       // required; its locks are "cron:" + Name and "cron:" + Name + "@" + tick
	// Plan says when the ticks are; they must be the same on all nodes, and at least a second apart. Required: see Parse and Every.
	Plan pawl.Plan
	// Skew is how far the clocks of the nodes may be apart: how long a tick stays taken, at least. Default: a minute.
	Skew time.Duration
	// OnError is told by Wrap when the store did not answer, so that the tick was not run here. Default: slog's default logger.
	OnError func(error)

	now func() time.Time // for tests
}

const (
	defaultSkew = time.Minute
	early       = 50 * time.Millisecond // a timer and the clock that it was set by may differ by this when it fires
	noLimit     = 100 * 365 * 24 * time.Hour
)

// Run is one run of a job, from Try to End.
type Run struct {
	Tick   time.Time // what it runs for
	leases pawl.Leases
}

// Try begins the run of the tick that this node's clock has passed last, and does not wait. It answers an error that matches pawl.ErrHeld
// when another node has that tick, or when an earlier run is still under way, and then nothing is to be done. Any other error means
// that the store did not decide; the tick may be lost.
func (j Job) Try(ctx context.Context) (*Run, error) {
	if j.Locks == nil || j.Name == "" || j.Plan == nil || j.Skew < 0 {
		return nil, fmt.Errorf("cronlock: job %q: it needs Locks, Name and Plan, and a Skew that is not negative (%w)", j.Name, pawl.ErrInvalid)
	}
	now := j.now
	if now == nil {
		now = time.Now
	}
	tick := last(j.Plan, now().Add(early))
	if tick.IsZero() {
		return nil, fmt.Errorf("cronlock: job %q: its plan has no tick before now (%w)", j.Name, pawl.ErrInvalid)
	}
	// The tick first: who is late must not keep the next tick's node from the job. It is kept by being held for longer than the
	// run, and so must not be bound by a limit that is meant for runs.
	keep := j.Locks.With(pawl.Options{MinHold: cmp.Or(j.Skew, defaultSkew), MaxHold: noLimit})
	name := "cron:" + j.Name
	t, err := keep.Mutex(name + "@" + tick.UTC().Format(time.RFC3339Nano)).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	l, err := j.Locks.Mutex(name).TryLock(ctx)
	if err != nil {
		t.Unlock()
		return nil, err
	}
	return &Run{Tick: tick, leases: pawl.Leases{t, l}}, nil
}

// Context is parent, ending when the run's locks are lost or given back.
func (r *Run) Context(parent context.Context) context.Context { return r.leases.Context(parent) }

// End ends the run: the job may run again, the tick stays taken. It answers pawl.ErrLost if the locks were lost meanwhile.
func (r *Run) End() error { return r.leases.Unlock() }

// Do runs fn for the tick that has passed last, unless another node does or an earlier run is under way: then it answers
// pawl.ErrHeld at once. fn's context ends with ctx and when the locks are lost; pawl.ErrLost is joined to fn's error then.
func (j Job) Do(ctx context.Context, fn func(ctx context.Context, tick time.Time) error) (err error) {
	r, err := j.Try(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if end := r.End(); errors.Is(end, pawl.ErrLost) && !errors.Is(err, pawl.ErrLost) {
			err = errors.Join(err, end)
		}
	}()
	return fn(r.Context(ctx), r.Tick)
}

// Wrap is j as a wrapper for robfig/cron. The Plan must be that of the entry:
//
//	c.Schedule(plan, cron.NewChain(job.Wrap()).Then(work))
//
// A panic of the job gives the locks back and goes on to the wrappers outside.
func (j Job) Wrap() cron.JobWrapper {
	return func(inner cron.Job) cron.Job {
		return cron.FuncJob(func() {
			err := j.Do(context.Background(), func(context.Context, time.Time) error {
				inner.Run()
				return nil
			})
			switch {
			case err == nil, errors.Is(err, pawl.ErrHeld):
			case j.OnError != nil:
				j.OnError(err)
			default:
				slog.Error("cronlock: a tick was not run here, or not alone", "job", j.Name, "err", err)
			}
		})
	}
}
