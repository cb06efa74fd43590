//go:build unix

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is the supervisor's handle of its guard process. The two talk by lines through a pipe, whose end is the guard's
// signal to act:
//
//	group N    the command's process group; 0: there is none, only pid
//	pid N      the command's first process
//	kill T     kill at T of Now unless a later line says otherwise; 0: never
//
// Once the group is gone the supervisor ends its guard by SIGKILL.
type guard struct {
	pid int
	w   *os.File
}

// startGuard starts the guard of a command.
func startGuard(c Command) (*guard, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	argv, files := []string{helperName, "guard"}, []uintptr{r.Fd(), 2, 2}
	if c.Scratch != "" {
		argv = append(argv, c.Scratch)
	}
	if c.Hold != nil {
		files = append(files, c.Hold.Fd())
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true}, // no Ctrl-C, no hangup, no kill of the supervisor's group reaches it
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return &guard{pid: pid, w: w}, nil
}

// tell sends one line. A guard that is dead is noticed when it is reaped; one that is stopped must not stop us.
func (g *guard) tell(word string, n int64) {
	g.w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	fmt.Fprintf(g.w, "%s %d\n", word, n)
}

type order struct {
	word string
	n    int64
}

// runGuard is the guard process.
func runGuard(in io.Reader, out io.Writer, scratch string) int {
	setName(helperName)
	// Whoever stops a whole service (systemd) means the command, which the supervisor will end.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)

	orders := make(chan order)
	go func() {
		defer close(orders)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var o order
			if _, err := fmt.Sscanf(lines.Text(), "%s %d", &o.word, &o.n); err == nil {
				orders <- o
			}
		}
	}()

	var group, pid int
	var killAt int64
	kill := func() error {
		switch {
		case group > 1:
			return unix.Kill(-group, unix.SIGKILL)
		case pid > 1:
			return unix.Kill(pid, unix.SIGKILL)
		}
		return nil
	}
	tick := time.NewTimer(0)
	for {
		wait := time.Second // timers stand still while the machine is suspended, Now does not
		if killAt != 0 {
			wait = min(wait, max(0, time.Duration(killAt-Now())))
		}
		tick.Reset(wait)
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				if scratch != "" {
					defer os.Remove(scratch)
				}
				if err := kill(); err == nil && (group != 0 || pid != 0) {
					fmt.Fprintln(out, "pawl: guard: pawl has gone: the command was killed")
				} else if err != nil && !errors.Is(err, unix.ESRCH) {
					fmt.Fprintln(out, "pawl: guard: pawl has gone and the command cannot be killed:", err)
					return 1
				}
				awaitEnd(group)
				return 0
			case o.word == "group":
				group = int(o.n)
			case o.word == "pid":
				pid = int(o.n)
			case o.word == "kill":
				killAt = o.n
			}
		case <-tick.C:
			if killAt != 0 && Now() >= killAt {
				kill()
				killAt = 0
			}
		}
	}
}

// awaitEnd waits, not for ever, until a group that was killed is gone: dying takes a moment.
func awaitEnd(group int) {
	for end := time.Now().Add(10 * time.Second); group > 1 && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if unix.Kill(-group, 0) != nil || members(group) == 0 {
			return
		}
	}
}
