//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Forwarded are the signals that a supervisor passes on. One that was ignored when this process started (nohup) is left
// out, so that the command finds it ignored too.
func Forwarded() []os.Signal {
	return heeded(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP)
}

// Ending are those of them that end a process which does nothing about them, by custom and not by accident.
func Ending() []os.Signal {
	return heeded(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
}

func heeded(all ...syscall.Signal) []os.Signal {
	var s []os.Signal
	for _, sig := range all {
		if !signal.Ignored(sig) {
			s = append(s, sig)
		}
	}
	return s
}

// ParseSignal reads a signal's name, with or without SIG, or its number.
func ParseSignal(s string) (os.Signal, bool) { return parseSignal(s, unix.SignalNum) }

// SignalName is the name of a signal, such as SIGTERM.
func SignalName(s os.Signal) string {
	if n, ok := s.(syscall.Signal); ok {
		if name := unix.SignalName(n); name != "" {
			return name
		}
	}
	return s.String()
}

// Term and Kill are the signals that end a command, the polite one first.
var (
	Term os.Signal = syscall.SIGTERM
	Kill os.Signal = syscall.SIGKILL
)
