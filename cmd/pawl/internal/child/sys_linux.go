package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of descendants whose own parent has ended.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent kills a process when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// dieWithParentToo keeps what dieWithParent did over an exec on this thread. The kernel notes the death signal for one
// thread, the first one here, and of the threads only the one that calls exec lives on. Until then the first one's holds.
func dieWithParentToo() { unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }

// setName is how ps and killall call this process. It is the name of its first thread, on which we may not be.
func setName(s string) { os.WriteFile("/proc/self/comm", []byte(s), 0) }

// stopJob stops this process's group as Ctrl-Z does, and returns when it has been continued, or soon if the kernel does
// not stop it: in a group that no shell looks after it never does.
//
// signal.Reset is not enough for that: the runtime, which once it has a handler keeps it, would swallow the signal.
func stopJob() {
	var none, handler [8]uint64 // struct sigaction, with room to spare; zeros are SIG_DFL
	const setSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP), uintptr(unsafe.Pointer(&none)),
		uintptr(unsafe.Pointer(&handler)), setSize, 0, 0)
	if errno != 0 {
		return
	}
	unix.Kill(0, unix.SIGTSTP)
	time.Sleep(50 * time.Millisecond) // the stop may take effect on another thread a little later
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP), uintptr(unsafe.Pointer(&handler)), 0, setSize, 0, 0)
}

// members counts the processes of a group that live; dead ones that nobody has waited for are left out. -1: not known.
func members(group int) int {
	dir, err := os.Open("/proc")
	if err != nil {
		return -1
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return -1
	}
	n, seen := 0, false
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		seen = true
		// pid (comm) state ppid pgrp …; comm may hold anything
		var state string
		var ppid, pgrp int
		if i := bytes.LastIndexByte(b, ')'); i < 0 {
			continue
		} else if _, err := fmt.Sscan(string(b[i+1:]), &state, &ppid, &pgrp); err != nil {
			continue
		}
		if pgrp == group && state != "Z" && state != "X" {
			n++
		}
	}
	if !seen {
		return -1
	}
	return n
}
