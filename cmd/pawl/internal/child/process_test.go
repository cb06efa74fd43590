//go:build linux

package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limit is how long anything may take that is expected to happen at once.
const limit = 20 * time.Second

// held names a file that a supervisor has a lock on.
const held = "PAWL_TEST_HELD"

// elsewhere makes a helper do its work on another thread than its first one.
const elsewhere = "PAWL_TEST_ELSEWHERE"

func init() {
	if os.Getenv(elsewhere) != "" {
		runtime.LockOSThread() // what runs main has the first thread
	}
}

// TestMain lets the test binary be a helper, and a supervisor of a shell script that is to be killed.
func TestMain(m *testing.M) {
	helped := make(chan struct{})
	go func() {
		defer close(helped)
		if os.Getenv(elsewhere) != "" {
			Helper()
		}
	}()
	<-helped
	Helper()
	if len(os.Args) == 3 && os.Args[0] == "supervisor" {
		os.Exit(supervise(os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

// supervise runs a script until all of it has gone. It prints "pid N" and "code N".
func supervise(script, killAfter string) int {
	var at int64
	if d, _ := time.ParseDuration(killAfter); d > 0 {
		at = Now() + int64(d)
	}
	c := Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: os.Environ(), LostFD: "LOST"}
	if path := os.Getenv(held); path != "" {
		f, err := os.Open(path)
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		c.Hold, c.Scratch = f, path
	}
	p, err := Start(c, at)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer p.Close()
	fmt.Println("pid", p.pid)
	<-p.Ended()
	fmt.Println("code", p.Result().Code)
	<-p.Gone()
	fmt.Println("gone 0")
	return 0
}

type supervised struct {
	*exec.Cmd
	out *bufio.Scanner
	pid int // of the command, and its group
}

func startSupervisor(t *testing.T, script, killAfter string, env ...string) *supervised {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), env...)
	c.Args = []string{"supervisor", script, killAfter}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &supervised{Cmd: c, out: bufio.NewScanner(out)}
	s.pid = s.expect(t, "pid")
	t.Cleanup(func() {
		unix.Kill(-s.pid, unix.SIGKILL)
		c.Process.Kill()
		c.Wait()
	})
	return s
}

// expect reads the next line of the supervisor, which must be a word and a number.
func (s *supervised) expect(t *testing.T, word string) int {
	t.Helper()
	if !s.out.Scan() {
		t.Fatalf("supervisor ended; want %q", word)
	}
	got, n, _ := strings.Cut(s.out.Text(), " ")
	v, err := strconv.Atoi(n)
	if got != word || err != nil {
		t.Fatalf("supervisor says %q, want %q", s.out.Text(), word)
	}
	return v
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// guardOf is the pid of the guard of a supervisor, or 0.
func guardOf(supervisor int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		b, _ := os.ReadFile(f)
		var pid, ppid int
		var state string
		s := string(b)
		i := strings.LastIndexByte(s, ')')
		if i < 0 || !strings.Contains(s[:i], "("+helperName) {
			continue
		}
		fmt.Sscan(s, &pid)
		fmt.Sscan(s[i+1:], &state, &ppid)
		if ppid == supervisor && state != "Z" {
			return pid
		}
	}
	return 0
}

// stubborn is a script whose processes ignore everything that can be ignored. It says in a file that it is under way.
func stubborn(t *testing.T) (script string, ready func() bool) {
	file := filepath.Join(t.TempDir(), "ready")
	script = `trap '' TERM HUP INT; (sleep 1000; :) & sleep 1000 & touch ` + file + `; wait`
	return script, func() bool { _, err := os.Stat(file); return err == nil }
}

func TestKilledSupervisor(t *testing.T) {
	t.Parallel()
	script, ready := stubborn(t)
	s := startSupervisor(t, script, "")
	eventually(t, "script ready", ready)
	if n := members(s.pid); n < 3 {
		t.Fatalf("%d processes in the group, want at least 3", n)
	}
	begin := time.Now()
	s.Process.Kill()
	eventually(t, "group gone after kill -9 of the supervisor", func() bool { return members(s.pid) == 0 })
	t.Logf("gone after %v", time.Since(begin))
}

// What a killed supervisor held is kept until its guard has seen the command end.
func TestHoldOutlivesTheSupervisor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hold")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	free := func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
	script, ready := stubborn(t)
	s := startSupervisor(t, script, "", held+"="+path)
	eventually(t, "script ready", ready)
	var guard int
	eventually(t, "a guard", func() bool { guard = guardOf(s.Process.Pid); return guard != 0 })
	unix.Kill(guard, unix.SIGSTOP)
	eventually(t, "guard stopped", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", guard))
		return strings.Contains(string(b), ") T ")
	})
	s.Process.Kill()
	s.Wait()
	if members(s.pid) == 0 {
		t.Fatal("nothing is left of the command, although its guard does not run")
	}
	if free() {
		t.Error("free while the command runs")
	}
	unix.Kill(guard, unix.SIGCONT)
	eventually(t, "free in the end", free)
	if n := members(s.pid); n != 0 {
		t.Errorf("free with %d processes left", n)
	}
	eventually(t, "the file is removed", func() bool { _, err := os.Stat(path); return os.IsNotExist(err) })
}

// A supervisor that does not run cannot act, but the guard can.
func TestStoppedSupervisor(t *testing.T) {
	t.Parallel()
	script, ready := stubborn(t)
	const after = 1500 * time.Millisecond
	begin := time.Now()
	s := startSupervisor(t, script, after.String())
	eventually(t, "script ready", ready)
	s.Process.Signal(syscall.SIGSTOP)
	eventually(t, "group killed by the guard", func() bool { return members(s.pid) == 0 })
	if d := time.Since(begin); d < after-100*time.Millisecond {
		t.Errorf("killed after %v, too early", d)
	} else {
		t.Logf("killed %v after the deadline", d-after)
	}
	s.Process.Signal(syscall.SIGCONT)
	if code := s.expect(t, "code"); code != 137 {
		t.Errorf("code %d, want 137", code)
	}
}

func TestKilledGuard(t *testing.T) {
	t.Parallel()
	script, ready := stubborn(t)
	s := startSupervisor(t, script, "")
	eventually(t, "script ready", ready)
	var first, second int
	eventually(t, "a guard", func() bool { first = guardOf(s.Process.Pid); return first != 0 })
	unix.Kill(first, unix.SIGKILL)
	eventually(t, "a second guard", func() bool { second = guardOf(s.Process.Pid); return second != 0 && second != first })
	if members(s.pid) == 0 {
		t.Fatal("the command died with its guard")
	}
	s.Process.Kill()
	eventually(t, "group gone", func() bool { return members(s.pid) == 0 })
}

// What a user who kills "everything named pawl" does: the guard is not named so.
func TestGuardName(t *testing.T) {
	t.Parallel()
	s := startSupervisor(t, "sleep 1000", "")
	var pid int
	eventually(t, "a guard", func() bool { pid = guardOf(s.Process.Pid); return pid != 0 })
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || string(b) != "lockguard\x00guard\x00" {
		t.Errorf("command line %q, %v", b, err)
	}
	sid, err := unix.Getsid(pid)
	if err != nil || sid != pid {
		t.Errorf("the guard's session is %d, %v, want its own, %d", sid, err, pid)
	}
	// Polite signals are for the command.
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		unix.Kill(pid, sig)
	}
	time.Sleep(100 * time.Millisecond)
	if got := guardOf(s.Process.Pid); got != pid {
		t.Errorf("guard %d was replaced by %d", pid, got)
	}
}

// With supervisor and guard killed at once, the kernel still ends the command itself, whichever thread of the gate became
// the command.
func TestKilledBoth(t *testing.T) {
	for _, env := range []string{elsewhere + "=", elsewhere + "=1"} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			s := startSupervisor(t, "exec sleep 1000", "", env)
			var guard int
			eventually(t, "a guard", func() bool { guard = guardOf(s.Process.Pid); return guard != 0 })
			unix.Kill(s.Process.Pid, unix.SIGSTOP) // so that it starts no other guard
			unix.Kill(guard, unix.SIGKILL)
			s.Process.Kill()
			eventually(t, "command gone", func() bool { return members(s.pid) == 0 })
		})
	}
}

// A command whose supervisor has died before the guard knew of it never runs.
func TestGate(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "ran")
		gateR, gateW, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		statusR, statusW, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("/proc/self/exe")
		c.Args = []string{helperName, "gate", "3", "4", "/bin/sh", "sh", "-c", "touch " + file}
		c.ExtraFiles = []*os.File{gateR, statusW}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		gateR.Close()
		statusW.Close()
		if open {
			gateW.Write([]byte{1})
		} else {
			time.Sleep(50 * time.Millisecond)
			if _, err := os.Stat(file); err == nil {
				t.Fatal("ran before the gate was opened")
			}
		}
		gateW.Close()
		c.Wait()
		statusR.Close()
		_, err = os.Stat(file)
		if ran := err == nil; ran != open {
			t.Errorf("gate opened: %v, command ran: %v", open, ran)
		}
	}
}

// The name must stay taken while a background process of the command works.
func TestGoneWaitsForTheGroup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := startSupervisor(t, `(while ! test -e `+file+`; do sleep 0.01; done) & exit 4`, "")
	if code := s.expect(t, "code"); code != 4 {
		t.Errorf("code %d, want 4", code)
	}
	said := make(chan bool, 1)
	go func() { said <- s.out.Scan() }()
	select {
	case <-said:
		t.Fatalf("said %q while a process of the group was alive", s.out.Text())
	case <-time.After(200 * time.Millisecond):
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-said:
	case <-time.After(limit):
		t.Fatal("not gone after the last process ended")
	}
	if s.out.Text() != "gone 0" {
		t.Errorf("said %q", s.out.Text())
	}
}

// A daemon that leaves the group on purpose is not waited for.
func TestGoneDoesNotWaitForDaemons(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	s := startSupervisor(t, `setsid sh -c 'echo $$ >`+file+`.tmp; mv `+file+`.tmp `+file+`; exec sleep 1000' >/dev/null & while ! test -e `+file+`; do sleep 0.01; done`, "")
	s.expect(t, "code")
	s.expect(t, "gone")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("the daemon did not live on: %v", err)
	}
}

func TestTable(t *testing.T) {
	old := inherited
	defer func() { inherited = old }()
	inherited = []int{3, 5}
	tb := newTable(0)
	if a, b := tb.add(40), tb.add(41); a != 4 || b != 6 {
		t.Errorf("added at %d and %d, want the free 4 and 6", a, b)
	}
	want := table{0, 1, 2, 3, 40, 5, 41}
	if fmt.Sprint(tb) != fmt.Sprint(want) {
		t.Errorf("table %v, want %v", tb, want)
	}
}

func TestParseSignal(t *testing.T) {
	for in, want := range map[string]os.Signal{"TERM": syscall.SIGTERM, "sigusr1": syscall.SIGUSR1, "9": syscall.SIGKILL, "SIGINT": syscall.SIGINT} {
		if got, ok := ParseSignal(in); !ok || got != want {
			t.Errorf("ParseSignal(%q) = %v, %v, want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "SIG", "NOSUCH", "0", "-1", "65", "1x"} {
		if got, ok := ParseSignal(in); ok {
			t.Errorf("ParseSignal(%q) = %v, want none", in, got)
		}
	}
}
