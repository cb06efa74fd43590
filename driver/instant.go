package driver

import "time"

// An Instant is a reading of the clock on which pawl counts trust: it never steps, and unlike Go's monotonic clock it
// goes on while the machine is suspended (CLOCK_BOOTTIME on Linux; elsewhere the monotonic clock plus every jump of the
// wall clock ahead of it, so that a wall clock set forward ends leases early, never late). Instants mean something only
// inside the process that read them. The zero Instant is "not known".
type Instant int64

// Now reads the clock. Inside a testing/synctest bubble it reads the bubble's fake time.
func Now() Instant {
	// The monotonic clock of a bubble starts decades after that of any real process, which is how the two are told
	// apart: package time has no way to ask.
	if up := time.Since(start); up > 20*365*24*time.Hour {
		return Instant(up)
	}
	return realNow()
}

var start = time.Now()

// Add is the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub is the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Until is the time left until i, negative once it has passed.
func (i Instant) Until() time.Duration { return i.Sub(Now()) }
