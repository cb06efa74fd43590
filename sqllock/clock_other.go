//go:build !linux

package sqllock

import "time"

// machineClock reads the wall clock: there is no clock here that all processes share and that never steps. A step ahead
// ends holds early, a step back late.
func machineClock() (moment, error) {
	now := time.Now().UnixMicro()
	return moment{now: now, wall: now, boot: "wall clock"}, nil
}

// nap sleeps for less than a millisecond, or a little more.
func nap(d time.Duration) { time.Sleep(d) }
