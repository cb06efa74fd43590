//go:build unix

package child

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// helperName is the argv[0] of the processes that this package starts from its own program. It does not contain the
// program's name, so that "pkill -9 pawl" does not take the guard along.
const helperName = "lockguard"

// Helper does the work of a guard or a gate if this process was started as one, and then does not return. A program that
// uses this package calls it first in main.
func Helper() {
	if len(os.Args) < 2 || os.Args[0] != helperName {
		return
	}
	switch {
	case os.Args[1] == "guard":
		scratch := ""
		if len(os.Args) > 2 {
			scratch = os.Args[2]
		}
		os.Exit(runGuard(os.Stdin, os.Stderr, scratch))
	case os.Args[1] == "gate" && len(os.Args) > 5:
		os.Exit(runGate(os.Args[2], os.Args[3], os.Args[4], os.Args[5:]))
	}
}

// program is the path of the running program. On Linux it is right even when the file was replaced meanwhile.
func program() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// runGate waits until the supervisor opens the gate and then becomes the command. The gate has opened when a byte can be
// read; its end means that there is no supervisor any more. On failure the error's number is written to status, whose end
// without one tells the supervisor that the command runs.
func runGate(gate, status, path string, argv []string) int {
	g, err1 := strconv.Atoi(gate)
	s, err2 := strconv.Atoi(status)
	if err1 != nil || err2 != nil {
		return 64
	}
	unix.CloseOnExec(g)
	unix.CloseOnExec(s)
	b := make([]byte, 1)
	for {
		n, err := unix.Read(g, b)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			return 70
		}
		break
	}
	runtime.LockOSThread()
	dieWithParentToo()
	err := syscall.Exec(path, argv, os.Environ())
	errno, _ := err.(syscall.Errno)
	unix.Write(s, []byte(strconv.Itoa(int(errno))))
	return NotExecutable
}
