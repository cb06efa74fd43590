package driver

import "time"

// An Instant is a reading of the clock on which pawl counts trust: it never steps, and unlike Go's monotonic clock it
// goes on while the machine is suspended (CLOCK_BOOTTIME on Linux; elsewhere the monotonic clock plus every jump of the
// wall clock ahead of it, so that a wall clock set forward ends leases early, never late). Instants mean something only
// inside the process that read them. The zero Instant is "not known".
type Instant int64

// Now reads the clock. Inside a testing/synctest bubble it reads the bubble's fake time.
func Now() Instant {
	// A bubble begins in the year 2000, before any real process did. That is how the two are told apart: package time has
	// no way to ask, and no real monotonic clock runs backwards.
	up := time.Since(start)
	if up < 0 {
		return Instant(up + century)
	}
	return realNow(up)
}

const century = 100 * 365 * 24 * time.Hour

var start = time.Now()

// Add is the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub is the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Until is the time left until i, negative once it has passed.
func (i Instant) Until() time.Duration { return i.Sub(Now()) }
