package cli

import (
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// lossPolicy is --on-loss.
type lossPolicy uint8

const (
	lossTerm lossPolicy = iota // a signal, and SIGKILL at the end of the grace
	lossKill                   // SIGKILL only
	lossWarn                   // nothing but a message
)

// action is what a lossWatch wants done now.
type action uint8

const (
	doNothing action = iota
	doSignal         // tell the command to end: the lease is lost, or is not being renewed and will be
	doKill           // kill it
	doWarn           // tell the user that the lease is lost
)

// lossWatch decides when a command must be told and when it must be killed, so that it is gone before the trust deadline
// of its lease. It knows no clock: step is told the time.
//
// An unrenewed lease ends at a known instant, so the command is told a grace before that. A lease that is lost at once
// (revoked, held too long) leaves it the grace or the time until that instant, whichever ends first.
type lossWatch struct {
	policy lossPolicy
	grace  time.Duration // between doSignal and doKill
	lead   time.Duration // doKill comes this long before the trust deadline: dying takes a moment too

	deadline driver.Instant // the last one known before the loss
	killAt   driver.Instant // set once the command was told
	told     bool
	killed   bool
}

// leadOf is the lead for a TTL. The trust deadline itself is ahead of the store's by a tenth.
func leadOf(ttl time.Duration) time.Duration {
	return min(max(ttl/50, 5*time.Millisecond), 250*time.Millisecond)
}

// step takes the time, the lease's trust deadline and whether the lease is lost, and answers what to do and when to ask
// again at the latest (0: nothing more can come).
func (w *lossWatch) step(now, deadline driver.Instant, lost bool) (action, driver.Instant) {
	if !w.told && !lost {
		w.deadline = deadline
	}
	switch {
	case w.killed:
		return doNothing, 0
	case w.policy == lossWarn:
		if lost {
			w.told, w.killed = true, true
			return doWarn, 0
		}
		return doNothing, w.deadline
	}
	end := w.deadline.Add(-w.lead)
	grace := w.grace
	if w.policy == lossKill {
		grace = 0
	}
	switch {
	case w.told && now >= w.killAt, !w.told && now >= end, !w.told && lost && grace == 0:
		w.told, w.killed = true, true
		return doKill, 0
	case w.told:
		return doNothing, w.killAt
	case lost:
		w.told, w.killAt = true, min(now.Add(grace), end)
		return doSignal, w.killAt
	case grace > 0 && now >= end.Add(-grace):
		w.told, w.killAt = true, end
		return doSignal, w.killAt
	}
	return doNothing, end.Add(-grace)
}

// guardAt is the instant at which the guard is to kill, whatever happens to this process; 0: never.
func (w *lossWatch) guardAt() driver.Instant {
	switch {
	case w.policy == lossWarn:
		return 0
	case w.told:
		return max(w.killAt, 1)
	}
	return w.deadline.Add(-w.lead)
}
