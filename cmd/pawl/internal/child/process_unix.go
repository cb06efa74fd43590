//go:build unix

package child

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a started command. It is safe for concurrent use. There is one at a time in a program, which starts no other
// children meanwhile: the command's orphans are waited for, and with them everything else.
type Process struct {
	c     Command
	pid   int
	group int // 0: none (Foreground)
	ended chan struct{}
	gone  chan struct{}
	tty   *terminal
	lost  *os.File // the end that we hold; nil: none

	mu     sync.Mutex
	guard  *guard
	killAt int64
	result Result
	wants  bool // the command is to have the terminal
	closed bool
	atTTY  bool
}

// Start runs c, which is to be killed at the instant killAt of Now unless KillAt says otherwise; 0: never. When it has
// returned nil, the command runs. Close must be called in the end.
func Start(c Command, killAt int64) (*Process, error) {
	p := &Process{c: c, killAt: killAt, ended: make(chan struct{}), gone: make(chan struct{})}
	adoptOrphans()
	closeStrays()
	fail := func(err error) (*Process, error) {
		p.Close()
		var se *StartError
		if !errors.As(err, &se) {
			err = &StartError{Path: c.Path, Code: 70, Err: err}
		}
		return nil, err
	}
	var err error
	if p.guard, err = startGuard(p.c); err != nil {
		close(p.gone)
		return fail(err)
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		<-p.gone
		return fail(err)
	}
	return p, nil
}

// run starts the command and waits for it, on one thread for as long as the command lives: Linux ties the death signal to
// the thread that forked.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.gone)
	news := make(chan os.Signal, 1)
	signal.Notify(news, syscall.SIGCHLD)
	defer signal.Stop(news)
	if err := p.start(); err != nil {
		if p.pid != 0 {
			wait(p.pid) // the gate
			close(p.ended)
		}
		started <- err
		return
	}
	close(started)

	pause := 5 * time.Millisecond
	for {
		p.reap()
		select {
		case <-p.ended:
			if !p.alive() {
				return
			}
			// Of most that is left we are the parent, or will be. Of the rest nothing tells us.
			t := time.NewTimer(pause)
			select {
			case <-news:
			case <-t.C:
				pause = min(2*pause, time.Second)
			}
			t.Stop()
		default:
			<-news
		}
	}
}

// start forks the gate, tells the guard, and opens the gate.
func (p *Process) start() error {
	path, err := program()
	if err != nil {
		return err
	}
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			open = append(open, r, w)
		}
		return r, w, err
	}
	gateR, gateW, err1 := pipe()
	statusR, statusW, err2 := pipe()
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	stdin := uintptr(0)
	if p.c.NoStdin {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		open = append(open, null)
		stdin = null.Fd()
	}
	fds := newTable(stdin)
	env := p.c.Env
	if p.c.LostFD != "" {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		open = append(open, r)
		p.lost = w
		env = append(env[:len(env):len(env)], p.c.LostFD+"="+strconv.Itoa(fds.add(r.Fd())))
	}
	gate, status := fds.add(gateR.Fd()), fds.add(statusW.Fd())
	argv := append([]string{helperName, "gate", strconv.Itoa(gate), strconv.Itoa(status), p.c.Path}, p.c.Argv...)

	attr := &syscall.SysProcAttr{Setpgid: !p.c.Foreground}
	dieWithParent(attr)
	p.pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: fds, Sys: attr})
	if err != nil {
		return err
	}
	if !p.c.Foreground {
		p.group = p.pid
	}
	p.mu.Lock()
	p.brief()
	p.mu.Unlock()
	if p.tty = openTerminal(); p.group != 0 && !p.c.NoStdin && p.tty.interactive() {
		p.wants = p.tty.give(p.group)
	}
	if _, err := gateW.Write([]byte{1}); err != nil {
		return err
	}
	statusW.Close()
	b, _ := io.ReadAll(statusR)
	if len(b) == 0 {
		return nil
	}
	n, _ := strconv.Atoi(string(b))
	return startError(p.c.Path, syscall.Errno(n))
}

func startError(path string, errno syscall.Errno) error {
	e := &StartError{Path: path, Code: NotExecutable, Err: errno}
	switch errno {
	case syscall.ENOENT:
		e.Code = NotFound
		if _, err := os.Stat(path); err == nil {
			e.Err = errors.New("its interpreter does not exist")
		}
	case syscall.ENOEXEC:
		e.Err = errors.New("it is no program for this machine and has no #! line")
	}
	return e
}

// brief tells a guard everything. The caller holds mu.
func (p *Process) brief() {
	p.guard.tell("group", int64(p.group))
	p.guard.tell("pid", int64(p.pid))
	p.guard.tell("kill", p.killAt)
}

// reap waits for what has ended or stopped, without blocking.
func (p *Process) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || pid <= 0:
			return
		case pid == p.pid && ws.Stopped():
			p.stopped(ws.StopSignal())
		case ws.Stopped():
		case pid == p.pid:
			p.mu.Lock()
			p.result = Result{Code: ws.ExitStatus()}
			if ws.Signaled() {
				p.result = Result{Code: 128 + int(ws.Signal()), Signal: ws.Signal()}
			}
			p.mu.Unlock()
			close(p.ended)
		default:
			p.replaceGuard(pid)
		}
	}
}

// replaceGuard starts a new guard if pid was the guard.
func (p *Process) replaceGuard(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guard == nil || pid != p.guard.pid {
		return
	}
	p.guard.w.Close()
	if p.guard = nil; p.closed {
		return
	}
	if g, err := startGuard(p.c); err == nil {
		p.guard = g
		p.brief()
	}
}

// alive reports whether anything of the group is left.
func (p *Process) alive() bool {
	if p.group == 0 || errors.Is(unix.Kill(-p.group, 0), unix.ESRCH) {
		return false
	}
	return members(p.group) != 0
}

// Members is the number of living processes of the command's group, or -1 where that is not known.
func (p *Process) Members() int {
	if p.group == 0 {
		return -1
	}
	return members(p.group)
}

// Ended is closed when the command's first process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Gone is closed when its whole group has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Result is how the first process ended; zero before Ended.
func (p *Process) Result() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// Signal sends a signal to the whole group. A group that has ended is no error.
//
// With Foreground, SIGINT, SIGQUIT and SIGTSTP are not sent while the terminal is at this process's group: then the
// terminal has sent them to the command already.
func (p *Process) Signal(s os.Signal) error {
	n, ok := s.(syscall.Signal)
	if !ok {
		return errors.ErrUnsupported
	}
	select {
	case <-p.gone:
		return nil
	default:
	}
	if n == syscall.SIGCONT {
		return p.resume()
	}
	return p.send(n)
}

func (p *Process) send(n syscall.Signal) error {
	to := -p.group
	if p.group == 0 {
		to = p.pid
		switch n {
		case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP:
			if p.tty.ours() {
				return nil
			}
		}
		select {
		case <-p.ended:
			return nil
		default:
		}
	}
	if err := unix.Kill(to, n); err != nil && err != unix.ESRCH {
		return err
	}
	return nil
}

// KillAt moves the instant of Now at which the guard kills the group, whatever this process does; 0: never.
func (p *Process) KillAt(t int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t == p.killAt {
		return
	}
	p.killAt = t
	if p.guard != nil && !p.closed {
		p.guard.tell("kill", t)
	}
}

// Lose ends the descriptor that Command.LostFD names.
func (p *Process) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		p.lost.Close()
		p.lost = nil
	}
}

// Dismiss takes the terminal back and ends the guard, once Gone is closed; before that it waits.
func (p *Process) Dismiss() {
	<-p.gone
	p.Lose()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.tty.takeBack(p.group)
	p.atTTY = p.tty.ours()
	p.tty.close()
	if p.guard != nil {
		unix.Kill(p.guard.pid, unix.SIGKILL) // nothing is left to guard
	}
}

// Close is Dismiss, and waits until the guard has ended.
func (p *Process) Close() {
	p.Dismiss()
	p.mu.Lock()
	g := p.guard
	p.guard = nil
	p.mu.Unlock()
	if g != nil {
		wait(g.pid)
		g.w.Close()
	}
}

// wait waits for a child that has ended, or is about to.
func wait(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
