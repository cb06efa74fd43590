package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

func TestPlans(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse("2006-01-02 15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ spec, now, last, next string }{
		{"30 3 * * *", "2026-03-01 03:29:59", "2026-02-28 03:30:00", "2026-03-01 03:30:00"},
		{"30 3 * * *", "2026-03-01 03:30:00", "2026-03-01 03:30:00", "2026-03-02 03:30:00"},
		{"CRON_TZ=Asia/Shanghai 0 3 * * *", "2026-03-01 18:59:00", "2026-02-28 19:00:00", "2026-03-01 19:00:00"},
		{"0 0 29 2 *", "2027-01-01 00:00:00", "2024-02-29 00:00:00", "2028-02-29 00:00:00"},
		{"@hourly", "2026-03-01 18:59:00", "2026-03-01 18:00:00", "2026-03-01 19:00:00"},
		{"@every 90s", "2026-03-01 00:01:00", "2026-03-01 00:00:00", "2026-03-01 00:01:30"},
	} {
		p, err := Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("x", 5*3600+1800)} { // of the node: it does not matter
			now := at(c.now).In(zone)
			if got := last(p, now); !got.Equal(at(c.last)) {
				t.Errorf("%s: before %s: got %v, want %s", c.spec, c.now, got, c.last)
			}
			if got := p.Next(now); !got.Equal(at(c.next)) {
				t.Errorf("%s: after %s: got %v, want %s", c.spec, c.now, got, c.next)
			}
		}
	}
	for _, bad := range []string{"", "* * * *", "61 * * * *", "@every x", "CRON_TZ=Nowhere/At 0 3 * * *"} {
		if _, err := Parse(bad); !errors.Is(err, pawl.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", bad, err)
		}
	}
	never, _ := Parse("0 0 30 2 *")
	if got := last(never, time.Now()); !got.IsZero() {
		t.Errorf("the last 30 February was %v", got)
	}
}

// nodes runs a job of the given length on nodes whose clocks are skewed, and answers how often each tick was run.
func nodes(t *testing.T, store *memlock.Driver, skews []time.Duration, ticks int, work func(ctx context.Context, node int)) map[time.Time]int {
	t.Helper()
	const period = time.Minute
	var mu sync.Mutex
	runs := map[time.Time]int{}
	running := 0
	var wg sync.WaitGroup
	start := time.Now() // a whole minute
	for k, skew := range skews {
		locks := pawl.New(store.Share())
		j := Job{Locks: locks, Name: "report", Plan: Every(period), now: func() time.Time { return time.Now().Add(skew) }}
		wg.Go(func() {
			defer locks.Close()
			var jobs sync.WaitGroup
			for n := range ticks {
				time.Sleep(time.Until(start.Add(time.Duration(n+1)*period - skew)))
				jobs.Go(func() {
					err := j.Do(t.Context(), func(ctx context.Context, tick time.Time) error {
						mu.Lock()
						runs[tick]++
						if running++; running > 1 {
							t.Error("two runs at once")
						}
						mu.Unlock()
						work(ctx, k)
						mu.Lock()
						running--
						mu.Unlock()
						return nil
					})
					if err != nil && !errors.Is(err, pawl.ErrHeld) && !errors.Is(err, pawl.ErrClosed) {
						t.Error(err)
					}
				})
			}
			jobs.Wait()
		})
	}
	wg.Wait()
	return runs
}

// Five nodes whose clocks are up to 40 s apart run a job that is over at once: each tick is run by one of them.
func TestOneRunPerTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skews := []time.Duration{0, 20 * time.Second, -20 * time.Second, 200 * time.Millisecond, -200 * time.Millisecond}
		runs := nodes(t, memlock.New(), skews, 30, func(context.Context, int) { time.Sleep(time.Millisecond) })
		if len(runs) != 30 {
			t.Errorf("%d ticks were run, want 30", len(runs))
		}
		for tick, n := range runs {
			if n != 1 {
				t.Errorf("the tick %v was run %d times", tick, n)
			}
		}
		time.Sleep(time.Hour)
	})
}

// A job that takes longer than its period leaves ticks out and never runs twice at a time.
func TestOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := nodes(t, memlock.New(), []time.Duration{0, time.Second, -time.Second}, 30, func(context.Context, int) { time.Sleep(90 * time.Second) })
		if len(runs) < 13 || len(runs) > 16 {
			t.Errorf("%d ticks were run, want about half of 30", len(runs))
		}
		for tick, n := range runs {
			if n != 1 {
				t.Errorf("the tick %v was run %d times", tick, n)
			}
		}
		time.Sleep(time.Hour)
	})
}

// Loss and limits: a run whose lock is lost is told by its context, MaxHold bounds a run and not the record of its tick, and what cannot
// work is refused.
func TestLossAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		locks := pawl.New(store)
		defer locks.Close()
		j := Job{Locks: locks.With(pawl.Options{MaxHold: 10 * time.Second}), Name: "j", Plan: Every(time.Hour)}
		err := j.Do(t.Context(), func(ctx context.Context, tick time.Time) error {
			begin := time.Now()
			<-ctx.Done()
			if d := time.Since(begin); d != 10*time.Second {
				t.Errorf("it ran for %v", d)
			}
			return nil
		})
		if !errors.Is(err, pawl.ErrLost) {
			t.Errorf("a run that took too long: got %v, want ErrLost", err)
		}
		time.Sleep(defaultSkew - 11*time.Second)
		if _, err := j.Try(t.Context()); !errors.Is(err, pawl.ErrHeld) {
			t.Errorf("within the skew: got %v, want ErrHeld", err)
		}
		time.Sleep(2 * time.Second)
		if r, err := j.Try(t.Context()); err != nil {
			t.Errorf("after the skew: %v", err)
		} else if err := r.End(); err != nil {
			t.Error(err)
		}
		store.Break(errors.New("down"))
		var told error
		j.OnError = func(err error) { told = err }
		j.Name = "other"
		ran := false
		j.Wrap()(funcJob(func() { ran = true })).Run()
		if told == nil || errors.Is(told, pawl.ErrHeld) || ran {
			t.Errorf("a store that is down: told %v, ran %v", told, ran)
		}
		store.Break(nil)
		time.Sleep(time.Hour)
		func() {
			defer func() {
				if fmt.Sprint(recover()) != "no paper" {
					t.Error("the panic is gone")
				}
			}()
			j.Wrap()(funcJob(func() { panic("no paper") })).Run()
		}()
		time.Sleep(time.Hour)
		j.Wrap()(funcJob(func() { ran = true })).Run()
		if !ran {
			t.Error("the job does not run after a panic")
		}
		for _, bad := range []Job{{Locks: locks, Name: "x"}, {Locks: locks, Plan: j.Plan}, {Name: "x", Plan: j.Plan}, {Locks: locks, Name: "x", Plan: j.Plan, Skew: -1}} {
			if _, err := bad.Try(t.Context()); !errors.Is(err, pawl.ErrInvalid) {
				t.Errorf("%+v: got %v, want ErrInvalid", bad, err)
			}
		}
		time.Sleep(time.Hour)
	})
}

type funcJob func()

func (f funcJob) Run() { f() }
