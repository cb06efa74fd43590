//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, and which process group reads from it. A nil terminal does nothing.
type terminal struct {
	f   *os.File
	own int // this process's group
}

func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{f, unix.Getpgrp()}
}

func foreground(fd int) int {
	g, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return g
}

// ours reports whether this process's group is the one in the foreground.
func (t *terminal) ours() bool { return t != nil && foreground(int(t.f.Fd())) == t.own }

// interactive reports whether the terminal is this process's input and output, and so the command's to have from the
// start. In a pipeline (pawl run … | less) others of the group may be reading from it.
func (t *terminal) interactive() bool {
	return t.ours() && foreground(0) == t.own && foreground(1) == t.own
}

// give puts group in the foreground, if this process's is there.
func (t *terminal) give(group int) bool {
	return t.ours() && unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, group) == nil
}

// takeBack puts this process's group in the foreground again, if group is there.
func (t *terminal) takeBack(group int) {
	if t == nil || foreground(int(t.f.Fd())) != group {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // sent to a background process that does this
	unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, t.own)
	signal.Reset(syscall.SIGTTOU)
}

func (t *terminal) close() {
	if t != nil {
		t.f.Close()
	}
}
