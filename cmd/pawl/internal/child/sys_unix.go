//go:build unix && !linux

package child

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This system has no such powers: the guard alone ends the command when this process is killed, and a group with a dead
// process that nobody waits for counts as alive.

func adoptOrphans() {}

func dieWithParent(*syscall.SysProcAttr) {}

func dieWithParentToo() {}

func setName(string) {}

func members(int) int { return -1 }

// stopJob stops this process, if its parent is in its session, as a shell that could continue it is.
func stopJob() {
	own, err1 := unix.Getsid(0)
	parent, err2 := unix.Getsid(unix.Getppid())
	if err1 == nil && err2 == nil && own == parent && own != unix.Getpid() {
		unix.Kill(unix.Getpid(), unix.SIGSTOP)
		time.Sleep(50 * time.Millisecond) // the stop may take effect on another thread a little later
	}
}
