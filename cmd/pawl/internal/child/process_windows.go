package child

import (
	"errors"
	"os"
	"syscall"
)

// Process is a started command.
type Process struct {
	p      *os.Process
	ended  chan struct{}
	result Result // set before ended is closed
}

// Helper does nothing here.
func Helper() {}

// Keep fails: there are no numbered descriptors to inherit here.
func Keep(fd int) error {
	if fd == 1 || fd == 2 {
		return nil
	}
	return errors.New("only 1 and 2 can be used on Windows")
}

// Term and Kill are the signals that end a command. Windows knows only the second.
var (
	Term os.Signal = os.Kill
	Kill os.Signal = os.Kill
)

// Forwarded are the signals that a supervisor waits for. Ctrl-C reaches the command by itself.
func Forwarded() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// Ending are the signals that end a process.
func Ending() []os.Signal { return Forwarded() }

// ParseSignal knows no signals here, except by number.
func ParseSignal(s string) (os.Signal, bool) {
	return parseSignal(s, func(name string) syscall.Signal {
		if name == "SIGKILL" {
			return syscall.SIGKILL
		}
		return 0
	})
}

// SignalName is the name of a signal.
func SignalName(s os.Signal) string { return s.String() }

// Start runs c. killAt, Foreground and LostFD mean nothing here.
func Start(c Command, killAt int64) (*Process, error) {
	stdin := os.Stdin
	if c.NoStdin {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, &StartError{Path: c.Path, Code: 70, Err: err}
		}
		defer null.Close()
		stdin = null
	}
	proc, err := os.StartProcess(c.Path, c.Argv, &os.ProcAttr{Env: c.Env, Files: []*os.File{stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return nil, &StartError{Path: c.Path, Code: NotExecutable, Err: err}
	}
	p := &Process{p: proc, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		if st, err := proc.Wait(); err == nil {
			p.result = Result{Code: st.ExitCode()}
		}
	}()
	return p, nil
}

// Members is not known here.
func (p *Process) Members() int { return -1 }

// Ended is closed when the command has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Gone is Ended here.
func (p *Process) Gone() <-chan struct{} { return p.ended }

// Result is how it ended; zero before Ended.
func (p *Process) Result() Result {
	select {
	case <-p.ended:
		return p.result
	default:
		return Result{}
	}
}

// Signal kills the command, whatever the signal, except for an interrupt, which the console delivers by itself.
func (p *Process) Signal(s os.Signal) error {
	if s == os.Interrupt {
		return nil
	}
	return p.p.Kill()
}

// KillAt does nothing here: there is no guard.
func (p *Process) KillAt(int64) {}

// Lose does nothing here.
func (p *Process) Lose() {}

// Dismiss waits for the command.
func (p *Process) Dismiss() { <-p.ended }

// Close waits for the command.
func (p *Process) Close() { <-p.ended }

// AtTerminal is false here.
func (p *Process) AtTerminal() bool { return false }

// HadTerminal is false here.
func (p *Process) HadTerminal() bool { return false }

// DieOf does nothing here.
func DieOf(syscall.Signal, bool) {}
