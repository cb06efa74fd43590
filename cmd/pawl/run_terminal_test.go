//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// screen is a program on a terminal of its own.
type screen struct {
	*exec.Cmd
	t    *testing.T
	tty  *os.File
	text buffer
	done chan struct{}
}

// on starts a program on a new terminal, of which it is the session's leader, in the foreground.
func (s *shop) on(name string, args ...string) *screen {
	s.t.Helper()
	c := &screen{Cmd: exec.Command(name, args...), t: s.t, done: make(chan struct{})}
	c.Dir = s.dir
	c.Env = append(os.Environ(), s.env...)
	c.Env = append(c.Env, "PS1=$ ", "TERM=dumb", "HISTFILE=")
	var err error
	if c.tty, err = pty.StartWithSize(c.Cmd, &pty.Winsize{Rows: 24, Cols: 200}); err != nil {
		s.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := c.tty.Read(b)
			c.text.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(c.done)
		c.Cmd.Wait()
	}()
	s.t.Cleanup(func() {
		c.Process.Kill()
		c.tty.Close()
		<-c.done
		<-read
		if s.t.Failed() {
			s.t.Logf("%s %q on a terminal:\n%s", name, args, c.text.String())
		}
	})
	return c
}

func (c *screen) keys(s string) {
	c.t.Helper()
	if _, err := c.tty.WriteString(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *screen) await(text string) {
	c.t.Helper()
	eventually(c.t, "the terminal shows "+text, func() bool { return strings.Contains(c.text.String(), text) })
}

func (c *screen) state() syscall.WaitStatus {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(limit):
		c.t.Fatal("the program on the terminal does not end")
	}
	return c.ProcessState.Sys().(syscall.WaitStatus)
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// The command reads from the terminal, although its process group is its own.
func TestTerminalInput(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"-q"}, {"--foreground"}} {
		s := onSQLite(t)
		c := s.on("pawl", "run", flags[0], "x", "--", "sh", "-c", `echo ready; read line; echo "<$line>"; exit 7`)
		c.await("ready")
		c.keys("hello\n")
		c.await("<hello>")
		if ws := c.state(); ws.ExitStatus() != 7 {
			t.Errorf("%v: exit code %d, want 7", flags, ws.ExitStatus())
		}
	}
}

// One Ctrl-C arrives once.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-q", "--foreground"} {
		s := onSQLite(t)
		c := s.on("pawl", "run", flag, "x", "--", "sh", "-c", `trap 'echo >>ints' INT; trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
		c.await("ready")
		for n := 1; n <= 3; n++ {
			c.keys(ctrlC)
			eventually(t, "the command got SIGINT", func() bool { b, _ := os.ReadFile(s.path("ints")); return len(b) >= n })
			time.Sleep(100 * time.Millisecond) // for a second one
			if b, _ := os.ReadFile(s.path("ints")); len(b) != n {
				t.Fatalf("%s: %d SIGINTs after %d times Ctrl-C", flag, len(b), n)
			}
		}
		c.Process.Signal(syscall.SIGTERM)
		if ws := c.state(); ws.ExitStatus() != 5 {
			t.Errorf("%s: exit code %d, want 5", flag, ws.ExitStatus())
		}
	}
}

// A command that dies of Ctrl-C takes pawl along in the same way, so that a script stops, as it would without pawl. The command
// is not Debian's sh (dash): that forgets a SIGINT that comes right before it turns into the last command of its -c (once in
// 150 times after an echo, without pawl too), and the sleep goes on.
func TestCtrlCStopsScript(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		`pawl run x -- bash -c 'echo ready; sleep 1000'; echo SURVIVED`,
		`pawl run x -- bash -c 'echo ready >&2; sleep 1000' | cat; echo SURVIVED`,
	} {
		s := onSQLite(t)
		c := s.on("bash", "-c", script)
		c.await("ready")
		c.keys(ctrlC)
		if ws := c.state(); !ws.Signaled() || ws.Signal() != syscall.SIGINT {
			t.Errorf("bash ended with %v, want SIGINT", ws)
		}
		if strings.Contains(c.text.String(), "SURVIVED") {
			t.Errorf("the script went on after Ctrl-C: %q", c.text.String())
		}
		s.start("run", "-n", "x", "--", "true").wantCode(0)
	}
}

// Ctrl-C while waiting for the lock.
func TestCtrlCWhileWaiting(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.hold(holds)
	c := s.on("pawl", "run", "x", "--", "sh", "-c", "echo >ran")
	c.await("waiting for")
	c.keys(ctrlC)
	if ws := c.state(); ws.ExitStatus() != 130 {
		t.Errorf("exit code %v, want 130", ws)
	}
	c.await("interrupted by SIGINT")
	if s.exists("ran") {
		t.Error("the command ran")
	}
}

// The waiting message is one line that is kept up to date.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	holder, _ := s.hold(holds)
	c := s.on("pawl", "run", "x", "--", "echo", "mine")
	eventually(t, "the line is rewritten", func() bool { return strings.Count(c.text.String(), "\rpawl: waiting for \"x\": held by") >= 2 })
	if strings.Contains(c.text.String(), "\n") {
		t.Errorf("the line was not rewritten in its place: %q", c.text.String())
	}
	s.touch("go")
	holder.wantCode(0)
	c.await("\r\x1b[Kmine")
	c.state()
}

// Ctrl-Z stops pawl and its command, and fg continues both, with the terminal where it was.
func TestJobControl(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	c := s.on("bash", "--norc", "--noprofile", "-i")
	c.keys("pawl run x -- sh -c 'echo rea''dy; read line; echo \"<$line>\"'\n")
	c.await("ready")
	c.keys(ctrlZ)
	c.await("the lock is lost and the command killed unless you continue within")
	c.await("Stopped")
	c.keys("echo ba''ck; fg\n")
	c.await("back")
	c.keys("hello\n")
	c.await("<hello>")
	c.keys("echo code $?; exit\n")
	c.await("code 0")
	c.state()
}

// Started in the background, the command runs there; it stops when it wants to read, and goes on in the foreground.
func TestBackgroundJob(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	c := s.on("bash", "--norc", "--noprofile", "-i")
	c.keys("pawl run x -- sh -c 'echo rea''dy; read line; echo \"<$line>\"' &\n")
	c.await("ready")
	c.await("stopped: the lock is lost")
	time.Sleep(100 * time.Millisecond)
	c.keys("\n") // bash tells at its next prompt
	c.await("Stopped")
	c.keys("fg\n")
	time.Sleep(200 * time.Millisecond) // what is typed before is the shell's
	c.keys("hello\n")
	c.await("<hello>")
	c.keys("exit\n")
	c.state()
}

// Stopped for longer than the lease lives, the command is killed, and pawl says so when it is continued.
func TestJobStoppedTooLong(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	c := s.on("bash", "--norc", "--noprofile", "-i")
	c.keys("pawl run --ttl 2 x -- sh -c 'echo $$ >held.tmp; mv held.tmp held; read line; echo SURVIVED >&3' 3>out\n")
	eventually(t, "the command runs", func() bool { return s.exists("held") })
	c.keys(ctrlZ)
	c.await("Stopped")
	pgid := int(s.number("held"))
	eventually(t, "the stopped command is killed", func() bool { return group(pgid) == 0 })
	s.start("run", "-w", "20", "x", "--", "true").wantCode(0)
	c.keys("fg\n")
	c.keys("\necho code $?; exit\n")
	c.await("code 75")
	if b, err := os.ReadFile(s.path("out")); err != nil || len(b) != 0 {
		t.Errorf("the command went on: %q, %v", b, err)
	}
	c.state()
}

// In a group that no shell looks after, Ctrl-Z does not stop anything, as without pawl.
func TestCtrlZWithoutShell(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	c := s.on("pawl", "run", "x", "--", "sh", "-c", `echo ready; read line; echo "<$line>"`)
	c.await("ready")
	c.keys(ctrlZ)
	time.Sleep(200 * time.Millisecond)
	c.keys("hello\n")
	c.await("<hello>")
	if ws := c.state(); ws.ExitStatus() != 0 {
		t.Errorf("%v, want exit code 0", ws)
	}
}

// In a pipeline the terminal stays with those who read from it, until the command asks.
func TestPipeline(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	c := s.on("bash", "--norc", "--noprofile", "-i")
	c.keys("pawl run x -- sh -c 'echo from-command; sleep 0.3' | (read a; read b </dev/tty; echo \"<$a $b>\")\n")
	eventually(t, "the pipeline runs", func() bool { return strings.Contains(c.text.String(), "\n") })
	time.Sleep(200 * time.Millisecond)
	c.keys("typed\n")
	c.await("<from-command typed>")
	c.keys("echo question | pawl run x -- sh -c 'read a; echo as''king; read b </dev/tty; echo \"<$a $b>\"'\n")
	c.await("asking")
	c.keys("answer\n")
	c.await("<question answer>")
	c.keys("exit\n")
	c.state()
}
