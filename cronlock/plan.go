package cronlock

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/pawl-lock/pawl"
)

// Parse reads a cron expression of five fields, or one of @hourly, @daily, @every 1h30m and the like, as robfig/cron does. Its ticks are
// in the time zone that it names ("CRON_TZ=Asia/Shanghai 0 3 * * *"), and otherwise in UTC, so that all nodes have the same ones. The ticks of
// "@every" are those of [Every].
func Parse(spec string) (pawl.Plan, error) {
	s, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, fmt.Errorf("cronlock: %q is no cron expression: %w (%w)", spec, err, pawl.ErrInvalid)
	}
	switch s := s.(type) {
	case cron.ConstantDelaySchedule:
		return Every(s.Delay), nil
	case *cron.SpecSchedule:
		if !strings.HasPrefix(spec, "TZ=") && !strings.HasPrefix(spec, "CRON_TZ=") {
			s.Location = time.UTC
		}
	}
	return s, nil
}

// Every is the plan of a fixed period of at least a second. Its ticks are multiples of the period since the year 1, in UTC, as those of
// pawl's Schedule are, and so the same on every node. The schedules of cron.Every and "@every" count from when they were
// started, so each node has others: they are no plans.
func Every(period time.Duration) pawl.Plan { return every(max(period, time.Second)) }

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.UTC().Truncate(time.Duration(e)).Add(time.Duration(e))
}

// last is the last tick of p up to now; zero: none in the last ten years.
func last(p pawl.Plan, now time.Time) time.Time {
	for back := 2 * time.Second; back < 10*365*24*time.Hour; back *= 2 {
		tick := p.Next(now.Add(-back))
		if tick.IsZero() || tick.After(now) {
			continue
		}
		for next := p.Next(tick); !next.IsZero() && !next.After(now); next = p.Next(tick) {
			tick = next
		}
		return tick
	}
	return time.Time{}
}
