package pawl_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

// ran is when jobs began, and for which ticks.
type ran struct {
	mu   sync.Mutex
	runs []string // "tick at time by node", in order
}

func (r *ran) note(ctx context.Context, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, pawl.Tick(ctx).UTC().Format("15:04")+" at "+time.Now().UTC().Format("15:04:05")+node)
}

func (r *ran) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.runs, ", ")
}

// When the store is away, a tick is tried until the next one is due. Those that are over then are never made up; the period that a node is
// started in is, unless SkipMissed says otherwise.
func TestScheduleMissed(t *testing.T) {
	for _, c := range []struct {
		opts pawl.ScheduleOptions
		want string
	}{
		{pawl.ScheduleOptions{}, "00:00 at 00:00:00, 00:01 at 00:01:00, 00:04 at 00:04:30, 00:05 at 00:05:00"},
		{pawl.ScheduleOptions{SkipMissed: true}, "00:01 at 00:01:00, 00:04 at 00:04:30, 00:05 at 00:05:00"},
	} {
		bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute+30*time.Second)
			defer stop()
			go func() {
				time.Sleep(90 * time.Second)
				store.Break(errors.New("connection refused"))
				time.Sleep(3 * time.Minute)
				store.Break(nil)
			}()
			var r ran
			err := locks.Schedule("job", time.Minute).With(c.opts).Run(ctx, func(ctx context.Context) error {
				r.note(ctx, "")
				return nil
			})
			wantIs(t, err, context.DeadlineExceeded)
			// An attempt is repeated after a pause that grows to some hundred milliseconds.
			want(t, "runs", strings.ReplaceAll(r.String(), "00:04:31", "00:04:30"), c.want)
			time.Sleep(3 * time.Hour)
		})
	}
}

// A job that takes longer than its period leaves ticks out: the latest one is run late, or, with SkipMissed, the next in time.
func TestScheduleLongJob(t *testing.T) {
	for _, c := range []struct {
		opts pawl.ScheduleOptions
		want string
	}{
		{pawl.ScheduleOptions{}, "00:00 at 00:00:00, 00:02 at 00:02:30, 00:05 at 00:05:00, 00:07 at 00:07:30"},
		{pawl.ScheduleOptions{SkipMissed: true}, "00:01 at 00:01:00, 00:04 at 00:04:00, 00:07 at 00:07:00"},
	} {
		bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
			ctx, stop := context.WithTimeout(t.Context(), 9*time.Minute)
			defer stop()
			var r ran
			locks.Schedule("job", time.Minute).With(c.opts).Run(ctx, func(ctx context.Context) error {
				r.note(ctx, "")
				time.Sleep(150 * time.Second)
				return nil
			})
			want(t, "runs", r.String(), c.want)
			time.Sleep(3 * time.Hour)
		})
	}
}

// With Jitter each tick is run once, within the jitter after it, and not always by the same node.
func TestScheduleJitter(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, _ *pawl.Client) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour-time.Second)
		defer stop()
		var mu sync.Mutex
		ticks, nodes := map[time.Time]int{}, map[int]int{}
		var wg sync.WaitGroup
		for k := range 3 {
			wg.Go(func() {
				locks := pawl.New(store.Share())
				defer locks.Close()
				locks.Schedule("job", time.Minute).With(pawl.ScheduleOptions{Jitter: 10 * time.Second}).Run(ctx, func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					ticks[pawl.Tick(ctx)]++
					nodes[k]++
					if late := time.Since(pawl.Tick(ctx)); late > 10*time.Second+time.Millisecond {
						t.Errorf("%v after the tick", late)
					}
					return nil
				})
			})
		}
		wg.Wait()
		want(t, "ticks", len(ticks), 60)
		for tick, n := range ticks {
			if n != 1 {
				t.Errorf("the tick %v was run %d times", tick, n)
			}
		}
		want(t, "nodes", len(nodes), 3)
		time.Sleep(3 * time.Hour)
	})
}

// A run that exceeds MaxHold is told by its context, and counts as the run of its tick: it would be no better on another node.
func TestScheduleMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, _ *pawl.Client) {
		ctx, stop := context.WithTimeout(t.Context(), 95*time.Minute)
		defer stop()
		var r ran
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				locks := pawl.New(store.Share()).With(pawl.Options{MaxHold: 10 * time.Minute})
				defer locks.Close()
				locks.Schedule("job", time.Hour).Run(ctx, func(ctx context.Context) error {
					r.note(ctx, "")
					begin := time.Now()
					<-ctx.Done()
					wantIs(t, context.Cause(ctx), pawl.ErrLost)
					want(t, "held for", time.Since(begin), 10*time.Minute)
					return nil
				})
			})
		}
		wg.Wait()
		want(t, "runs", r.String(), "00:00 at 00:00:00, 01:00 at 01:00:00")
		synctest.Wait()
		time.Sleep(3 * time.Hour)
	})
}
