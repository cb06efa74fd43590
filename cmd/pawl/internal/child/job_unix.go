//go:build unix

package child

import (
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopped is called when the command was stopped by a signal: by Ctrl-Z, or because it wanted to use the terminal from
// the background. Without a terminal nothing happens: the command stays stopped, and we go on.
func (p *Process) stopped(s syscall.Signal) {
	if p.tty == nil || signal.Ignored(syscall.SIGTSTP) {
		return
	}
	switch s {
	case syscall.SIGTTIN, syscall.SIGTTOU:
		p.setWants()
		if p.group != 0 && p.tty.ours() { // we have it and were only waiting to be asked
			p.resume()
			return
		}
	case syscall.SIGTSTP:
	default: // SIGSTOP came from somebody who knows what he does
		return
	}
	if p.c.Suspending != nil {
		p.c.Suspending()
	}
	// Stop like any other member of the shell's job, and let the shell see it. In a group that no shell looks after the
	// command goes on at once, as it would have without us.
	stopJob()
	p.resume()
}

// resume continues the command, in the foreground if it wants the terminal and we have it.
func (p *Process) resume() error {
	p.mu.Lock()
	wants := p.wants
	p.mu.Unlock()
	if wants && p.group != 0 {
		p.tty.give(p.group)
	}
	return p.send(unix.SIGCONT)
}

func (p *Process) setWants() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wants = true
}

// AtTerminal reports, after Dismiss, whether this process is in the foreground of a terminal.
func (p *Process) AtTerminal() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atTTY
}

// HadTerminal reports whether the command had the terminal to itself: then a Ctrl-C did not reach this process's group.
func (p *Process) HadTerminal() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wants
}

// DieOf ends this process by a signal, as the command ended; with all set, the rest of its process group gets it too. A
// shell script stops at a Ctrl-C only if it got it itself and its command died of it.
func DieOf(s syscall.Signal, all bool) {
	signal.Reset(s)
	to := unix.Getpid()
	if all {
		to = 0
	}
	unix.Kill(to, s)
	time.Sleep(time.Second) // the signal may be taken by another thread
}
