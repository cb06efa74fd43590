package uses

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

const jobWork = 200 * time.Millisecond

// cronProcess runs a job each second, and says when each run begins and ends. It also says when the machine has kept it from running.
func cronProcess(w *worker) error {
	locks, err := w.open(ttl)
	if err != nil {
		return err
	}
	ctx := w.until()
	go func() {
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			time.Sleep(50 * time.Millisecond)
			if time.Since(last) > 250*time.Millisecond {
				w.say("stall %d", last.UnixNano())
			}
		}
	}()
	w.say("ready to go")
	err = locks.Schedule("report", time.Second).Run(ctx, func(ctx context.Context) error {
		tick := pawl.Tick(ctx).UnixNano()
		w.say("begin %d", tick)
		select {
		case <-time.After(jobWork):
		case <-ctx.Done():
			return ctx.Err()
		}
		w.say("end %d", tick)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return locks.Close()
}

// cron: three processes run a job each second, and now and then the one that is in a run is killed and replaced. No tick is run to
// its end twice, a killed run is taken over, and ticks are missed only within a TTL of a kill.
func cron(t *testing.T, b *backend) {
	total, every := 8*time.Second, 4*time.Second
	if *long {
		total, every = time.Minute, 10*time.Second
	}
	ps := b.processes(t, 3, "cron")
	alive := slices.Clone(ps)
	within(t, "a run begins", func() bool {
		return slices.ContainsFunc(all(ps), func(l line) bool { return l.is("begin") })
	})
	type killed struct {
		at   time.Time
		id   int
		tick int64
	}
	var kills []killed
	start := time.Now()
	for next := start.Add(every / 2); time.Since(start) < total; time.Sleep(5 * time.Millisecond) {
		if b.memory != nil || time.Now().Before(next) {
			continue
		}
		for k, p := range alive {
			said := p.said()
			k2 := slices.IndexFunc(said, func(l line) bool { return l.is("begin") })
			if k2 < 0 || !said[len(said)-1].is("begin") {
				continue
			}
			p.kill()
			if said = p.said(); !said[len(said)-1].is("begin") {
				kills = append(kills, killed{time.Now(), p.id, 0}) // a moment too late: it had ended
			} else {
				kills = append(kills, killed{time.Now(), p.id, said[len(said)-1].number(1)})
			}
			alive[k] = b.process(t, "cron")
			ps = append(ps, alive[k])
			next = next.Add(every)
			break
		}
	}
	within(t, "the last killed run is taken over", func() bool {
		return len(kills) == 0 || kills[len(kills)-1].tick == 0 || slices.ContainsFunc(all(ps), func(l line) bool {
			return l.is("end") && l.number(1) == kills[len(kills)-1].tick
		})
	})
	for _, p := range alive {
		p.finish()
	}

	lines := all(ps)
	ended := map[int64][]line{}
	var ticks []int64
	type span struct{ from, to time.Time }
	var excused []span // times in which a tick may be missed
	around := func(from, to time.Time) {
		excused = append(excused, span{from.Add(-time.Second), to.Add(ttl + time.Second)})
	}
	for _, l := range lines {
		switch l.words[0] {
		case "begin":
			if tick := l.number(1); !slices.Contains(ticks, tick) {
				ticks = append(ticks, tick)
			}
		case "end":
			ended[l.number(1)] = append(ended[l.number(1)], l)
		case "stall":
			around(time.Unix(0, l.number(1)), l.at)
		case "lost":
			around(l.at, l.at)
		}
	}
	// doubtful: it ended, but the record may not have come through.
	doubtful := func(l line) bool {
		if slices.ContainsFunc(kills, func(k killed) bool { return k.id == l.id && l.at.After(k.at.Add(-time.Second)) }) {
			return true
		}
		return slices.ContainsFunc(lines, func(o line) bool { return o.is("lost") && o.id == l.id && o.at.Sub(l.at).Abs() < patience })
	}
	for tick, ls := range ended {
		if sure := slices.DeleteFunc(slices.Clone(ls), doubtful); len(sure) > 1 {
			t.Errorf("the tick %v was run %d times: %v", time.Unix(0, tick), len(sure), ls)
		}
	}
	for _, k := range kills {
		around(k.at, k.at)
		if k.tick != 0 && len(ended[k.tick]) == 0 {
			t.Errorf("the tick %v of process %d, which was killed in it, was not taken over", time.Unix(0, k.tick), k.id)
		}
	}
	slices.Sort(ticks)
	missed := 0
	for tick := ticks[0]; tick < ticks[len(ticks)-1]; tick += int64(time.Second) {
		if slices.Contains(ticks, tick) {
			continue
		}
		missed++
		at := time.Unix(0, tick)
		if !slices.ContainsFunc(excused, func(s span) bool { return s.from.Before(at) && at.Before(s.to) }) {
			t.Errorf("the tick %v was missed, and nobody was killed at that time (%v)", at, kills)
		}
	}
	if b.memory == nil && len(kills) == 0 {
		t.Error("nobody was killed: this shows nothing")
	}
	t.Logf("%d ticks run to the end, %d missed, %d kills, %d spans excused", len(ended), missed, len(kills), len(excused))
}

// noOnce and noSchedule: what a store cannot carry is refused in words, at the first call.
func noOnce(t *testing.T, b *backend) {
	refused(t, b, func(locks *pawl.Client) error {
		_, err := pawl.Once(t.Context(), locks, "k", time.Hour, func(context.Context) (int, error) { return 1, nil })
		return err
	})
}

func noSchedule(t *testing.T, b *backend) {
	refused(t, b, func(locks *pawl.Client) error {
		return locks.Schedule("k", time.Second).Run(t.Context(), func(context.Context) error { return nil })
	})
}

func refused(t *testing.T, b *backend, call func(*pawl.Client) error) {
	locks, err := open(b.url, b.memory, pawl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := call(locks); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	} else {
		t.Log(err)
	}
}
