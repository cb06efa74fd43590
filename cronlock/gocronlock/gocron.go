// Package gocronlock lets several schedulers of gocron (github.com/go-co-op/gocron/v2) share their jobs: a [Locker], with which each tick of
// a job runs on one of them, or an [Elector], with which one of them runs everything. Read package cronlock first.
package gocronlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cronlock"
)

// Locker is a gocron.Locker: give it to gocron.WithDistributedLocker or WithDistributedJobLocker. It is safe for concurrent use.
//
// gocron asks by the job's name only and does not say for which tick; so name each job with gocron.WithName, and name its ticks in
// Plan. A job without a plan is locked by its name alone, for MinHold at least: then two schedulers run one tick twice if
// one of them is later than the other by more than that, and a tick that comes sooner is left out.
//
// Lock does not wait. What gocron does when it is refused: it skips the run, and calls the job's AfterLockError listener.
type Locker struct {
	Locks *pawl.Client               // required
	Plan  func(job string) pawl.Plan // the ticks of a job, the same on all nodes; nil: none has a plan
	Skew  time.Duration              // how far the clocks of the nodes may be apart. Default: a minute
	// MinHold is for jobs without a plan: longer than their clocks and starts are apart, and shorter than their period. Default: half a second.
	MinHold time.Duration
}

var _ gocron.Locker = (*Locker)(nil)

const defaultMinHold = 500 * time.Millisecond

// Lock takes the job's tick, or answers an error that matches pawl.ErrHeld: another scheduler has it, or an earlier run goes on.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	if l.Plan != nil {
		if plan := l.Plan(job); plan != nil {
			r, err := cronlock.Job{Locks: l.Locks, Name: job, Plan: plan, Skew: l.Skew}.Try(ctx)
			if err != nil {
				return nil, err
			}
			return unlock(r.End), nil
		}
	}
	o := pawl.Options{MinHold: l.MinHold}
	if o.MinHold == 0 {
		o.MinHold = defaultMinHold
	}
	lease, err := l.Locks.With(o).Mutex("cron:" + job).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	return unlock(lease.Unlock), nil
}

// unlock is a gocron.Lock. Unlock is bounded by itself, so that it works also after gocron has ended the context.
type unlock func() error

func (u unlock) Unlock(context.Context) error { return u() }

// Elector is a gocron.Elector: give it to gocron.WithDistributedElector. While it leads, its scheduler runs all jobs, and the others none.
//
// It cannot tell ticks apart: when the leadership moves to a node whose clock is behind, that one runs again what it is due for;
// and a job that runs when the leadership is lost goes on. Where a tick must not run twice, use a Locker.
type Elector struct {
	locks       *pawl.Client
	name, value string

	mu    sync.Mutex
	lease *pawl.Lease
}

var _ gocron.Elector = (*Elector)(nil)

// ErrNotLeader is what IsLeader answers while another scheduler leads.
var ErrNotLeader = errors.New("gocronlock: another scheduler leads")

// NewElector makes a candidate of the election of that name, which publishes value (its address, say). It does nothing until Run.
func NewElector(locks *pawl.Client, name, value string) *Elector {
	return &Elector{locks: locks, name: name, value: value}
}

// Run campaigns, and leads, again and again until ctx ends, and answers ctx's cause; any other error says why it never can.
// Then it resigns, so shut the scheduler down first.
func (e *Elector) Run(ctx context.Context) error {
	err := e.locks.Election(e.name).Run(ctx, e.value, func(ctx context.Context) error {
		e.set(pawl.FromContext(ctx, e.name))
		defer e.set(nil)
		<-ctx.Done()
		return nil
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (e *Elector) set(l *pawl.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease = l
}

// IsLeader answers nil while this candidate leads, else ErrNotLeader. It asks no server, and does look at the clock: a process that was
// stopped for longer than its TTL is no leader when it goes on.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	l := e.lease
	e.mu.Unlock()
	if l.Err() != nil { // also of nil
		return ErrNotLeader
	}
	return nil
}
