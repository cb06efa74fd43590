//go:build unix

package bench

import (
	"golang.org/x/sys/unix"
)

// now is a clock that all processes of this machine share, in nanoseconds.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Unix has it
	}
	return t.Nano()
}

// cpu is what this process has used so far, in nanoseconds.
func cpu() int64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return -1
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
