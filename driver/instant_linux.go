package driver

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// realNow adds what the machine was suspended to Go's monotonic clock. That is six times as cheap as reading CLOCK_BOOTTIME,
// which the kernel's vDSO offers and Go does not use, and a hand-off reads the clock two or three times.
func realNow(up time.Duration) Instant {
	return asleep.instant(up, boottime, func() time.Duration { return time.Since(start) })
}

func boottime() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("pawl: clock_gettime(CLOCK_BOOTTIME): " + errno.Error())
	}
	return ts.Nano()
}

// suspended is by how much CLOCK_BOOTTIME is ahead of the monotonic clock. It only grows, and only by suspending.
type suspended struct {
	by   atomic.Int64
	read atomic.Int64 // when it was looked at, by the monotonic clock
}

var asleep suspended

const (
	// lookAgain is how old the difference may be, in running time. A suspend is then seen this much after the resume at the
	// latest: less than the smallest margin, and no more than a process may be paused for right after any look at a clock.
	lookAgain = 200 * time.Microsecond
	// sharp bounds the error of the difference: the two clocks were read within this of one another.
	sharp = 20 * time.Microsecond
)

// instant is CLOCK_BOOTTIME at up, or up to sharp before. boot and mono read the two clocks.
func (s *suspended) instant(up time.Duration, boot func() int64, mono func() time.Duration) Instant {
	read := s.read.Load()
	by := s.by.Load() // after read: at least as new as it says
	if read != 0 && up-time.Duration(read) < lookAgain {
		return Instant(int64(up) + by)
	}
	for range 100 { // a goroutine may be preempted between the readings
		before := mono()
		b := boot()
		up = mono()
		by = b - int64(up) // at most what it is
		if up-before <= sharp {
			break
		}
	}
	for old := s.by.Load(); ; old = s.by.Load() {
		if old != 0 && by <= old {
			by = old
			break
		}
		if s.by.CompareAndSwap(old, by) {
			break
		}
	}
	s.read.Store(int64(up))
	return Instant(int64(up) + by)
}
