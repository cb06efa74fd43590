package driver

import (
	"syscall"
	"unsafe"
)

const clockBoottime = 7

func realNow() Instant {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("pawl: clock_gettime(CLOCK_BOOTTIME): " + errno.Error())
	}
	return Instant(ts.Nano())
}
