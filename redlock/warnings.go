package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// surveyLimit is how long Warnings waits for the members.
const surveyLimit = 3 * time.Second

// Warnings asks the members, for three seconds at most, and lists what makes the quorum weaker than it looks, as whole
// sentences for an operator: members that share a host, that have replicas, that keep too little on disk, or that do not
// answer. Members that cannot tell (driver.Surveyed) are not judged. nil: nothing was found, or the driver was closed.
func (d *Driver) Warnings(ctx context.Context) []string {
	if err := d.Check(); err != nil {
		return []string{err.Error()}
	}
	ctx, stop := context.WithTimeout(ctx, surveyLimit)
	defer stop()
	type answer struct {
		driver.Survey
		addrs []string
		err   error
	}
	answers := make([]answer, len(d.members))
	told := make([]bool, len(d.members))
	err := each(ctx, d, surveyLimit, func(ctx context.Context, m *member) answer {
		s, ok := m.d.(driver.Surveyed)
		if !ok {
			return answer{err: errors.ErrUnsupported}
		}
		v, err := s.Survey(ctx)
		a := answer{Survey: v, err: err}
		if v.Host != "" {
			if a.addrs, err = net.DefaultResolver.LookupHost(ctx, v.Host); err != nil {
				a.addrs = []string{v.Host}
			}
		}
		return a
	}, func(m *member, a answer) bool {
		answers[m.no], told[m.no] = a, true
		return !slices.Contains(told, false)
	})

	if errors.Is(err, driver.ErrClosed) {
		return nil
	}
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i, a := range answers {
		n := i + 1
		switch {
		case !told[i]:
			say("member %d did not answer: %v", n, err)
			continue
		case errors.Is(a.err, errors.ErrUnsupported), errors.Is(a.err, driver.ErrClosed):
			continue
		case a.err != nil:
			say("member %d could not be asked about itself: %v", n, a.err)
			continue
		}
		for j, b := range answers[:i] {
			if slices.ContainsFunc(a.addrs, func(addr string) bool { return slices.Contains(b.addrs, addr) }) {
				say("members %d and %d are on one host (%s) and fail together: put each on a host of its own", j+1, n, a.Host)
				break
			}
		}
		if a.Replicas > 0 {
			say("member %d has replicas (%d): a fail-over to one that lags forgets a vote, and two may hold one name; use servers without replicas", n, a.Replicas)
		}
		switch {
		case d.opts.Durable && (a.Keeps == driver.KeepsNothing || a.Keeps == driver.KeepsMost):
			say("Options.Durable is set, but member %d does not sync every write to disk (Redis: appendonly yes, appendfsync always): after a crash it may vote a second time", n)
		case a.Keeps == driver.KeepsNothing:
			say("member %d keeps nothing on disk: after a restart it does not vote for %v, and tokens rest on the other members", n, d.opts.MaxTTL)
		}
	}
	return out
}
