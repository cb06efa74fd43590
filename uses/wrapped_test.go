package uses

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cronlock"
)

// wrappedProcess is a node of a cron library that knows nothing of locks: at each second of its own clock, which may be late, it is due for
// the job and asks for the tick.
func wrappedProcess(w *worker) error {
	late, err := time.ParseDuration(w.args[0])
	if err != nil {
		return err
	}
	locks, err := w.open(longTTL)
	if err != nil {
		return err
	}
	ctx := w.until()
	w.say("ready to go")
	job := cronlock.Job{Locks: locks, Name: "wrapped", Plan: cronlock.Every(time.Second), Skew: 30 * time.Second}
	for ctx.Err() == nil {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + late)))
		r, err := job.Try(context.Background())
		switch {
		case err == nil:
			w.say("begin %d", r.Tick.UnixNano())
			if err := r.End(); err != nil && !errors.Is(err, pawl.ErrUnknown) {
				return err
			}
		case !errors.Is(err, pawl.ErrHeld):
			w.say("failed %v", err) // the machine may be busy
		}
	}
	return locks.Close()
}

// wrapped: three nodes that are due at different moments of the second run a job that is over at once: no tick is run twice. This goes
// over stores that carry no Once as well.
func wrapped(t *testing.T, b *backend) {
	var ps []*process
	for _, late := range []string{"0s", "200ms", "400ms"} {
		ps = append(ps, b.process(t, "wrapped", late))
	}
	count := func() map[int64]int {
		ticks := map[int64]int{}
		for _, l := range all(ps) {
			if l.is("begin") {
				ticks[l.number(1)]++
			}
		}
		return ticks
	}
	within(t, "three ticks are run", func() bool { return len(count()) >= 3 })
	for _, p := range ps {
		p.finish()
	}
	for tick, n := range count() {
		if n != 1 {
			t.Errorf("the tick %v was run %d times: %v", time.Unix(0, tick), n, all(ps))
		}
	}
}
