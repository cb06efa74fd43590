//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// limit is how long anything may take that is expected to happen at once.
const limit = 90 * time.Second

// buffer is a bytes.Buffer for a process to write and a test to read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// shop is a store and a folder that the processes of one test share.
type shop struct {
	t   *testing.T
	dir string
	env []string
}

// onSQLite is the default store, in a state folder of its own.
func onSQLite(t *testing.T) *shop {
	dir := t.TempDir()
	return &shop{t, dir, []string{"XDG_STATE_HOME=" + filepath.Join(dir, "state"), "PAWL_BACKEND="}}
}

func onRedis(t *testing.T, server *redistest.Server) *shop {
	return &shop{t, t.TempDir(), []string{"PAWL_BACKEND=" + server.URL}}
}

// stores runs a test on each store.
func stores(t *testing.T, f func(t *testing.T, s *shop)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, onSQLite(t)) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); f(t, onRedis(t, redistest.Start(t))) })
}

// proc is a running pawl.
type proc struct {
	*exec.Cmd
	t        *testing.T
	out, err buffer
	done     chan struct{} // closed when it has ended
}

// start runs "pawl args" in the shop's folder.
func (s *shop) start(args ...string) *proc {
	s.t.Helper()
	p := &proc{Cmd: exec.Command("pawl", args...), t: s.t, done: make(chan struct{})}
	p.Dir = s.dir
	p.Env = append(os.Environ(), s.env...)
	p.Stdout, p.Stderr = &p.out, &p.err
	p.WaitDelay = time.Second
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.Cmd.Wait()
	}()
	s.t.Cleanup(func() {
		p.Process.Signal(syscall.SIGCONT)
		p.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("pawl %q\nstdout: %s\nstderr: %s", args, p.out.String(), p.err.String())
		}
	})
	return p
}

// code waits for the end and answers the exit code, or -n if a signal n ended pawl itself.
func (p *proc) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("pawl did not end within %v; stderr: %s", limit, p.err.String())
	}
	ws := p.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *proc) wantCode(want int) {
	p.t.Helper()
	if got := p.code(); got != want {
		p.t.Errorf("exit code %d, want %d; stderr: %s", got, want, p.err.String())
	}
}

func (p *proc) wantErr(part string) {
	p.t.Helper()
	if !strings.Contains(p.err.String(), part) {
		p.t.Errorf("stderr %q, want it to contain %q", p.err.String(), part)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func (s *shop) path(name string) string { return filepath.Join(s.dir, name) }

func (s *shop) exists(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

func (s *shop) touch(name string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// number reads a file that holds one.
func (s *shop) number(name string) int64 {
	s.t.Helper()
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// group counts the living processes of a process group.
func group(pgid int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	n := 0
	for _, f := range stats {
		b, _ := os.ReadFile(f)
		var state string
		var ppid, pgrp int
		fmt.Sscan(string(b[bytes.LastIndexByte(b, ')')+1:]), &state, &ppid, &pgrp)
		if pgrp == pgid && state != "Z" && state != "X" {
			n++
		}
	}
	return n
}

// lastAlive waits until a process group is gone, and answers the last instant at which it was seen to be there, alive if
// that was the last one: the end of it came later.
func lastAlive(t *testing.T, pgid int, alive time.Time) time.Time {
	t.Helper()
	eventually(t, "the command is gone", func() bool {
		now := time.Now()
		if group(pgid) == 0 {
			return true
		}
		alive = now
		return false
	})
	return alive
}

// holds is a script that says in file "held", with its process group, that it runs, and ends when there is a file "go".
const holds = `echo $$ >held.tmp; mv held.tmp held; while ! test -e go; do sleep 0.005; done; date +%s%N >ended`

// stubborn is a script of several processes that ignore what can be ignored and say so in file "held".
const stubborn = `trap '' TERM HUP INT; (sleep 1000; :) & sleep 1000 & echo $$ >held.tmp; mv held.tmp held; wait; sleep 1000`

// hold starts "pawl run flags x -- sh -c script" and waits until the script runs. It answers its process group too.
func (s *shop) hold(script string, flags ...string) (*proc, int) {
	s.t.Helper()
	p := s.start(append(append([]string{"run"}, flags...), "x", "--", "sh", "-c", script)...)
	eventually(s.t, "the command runs", func() bool {
		select {
		case <-p.done:
			s.t.Fatalf("pawl ended; stderr: %s", p.err.String())
		default:
		}
		return s.exists("held")
	})
	pgid := int(s.number("held"))
	s.t.Cleanup(func() { syscall.Kill(-pgid, syscall.SIGKILL) })
	return p, pgid
}

func TestWaiterGetsTheLock(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		holder, _ := s.hold(holds, "--reason", "shipping")
		waiter := s.start("run", "x", "--", "sh", "-c", "date +%s%N >began")
		eventually(t, "the waiter says whom it waits for", func() bool { return strings.Contains(waiter.err.String(), "waiting for") })
		waiter.wantErr(`pawl: waiting for "x": held by `)
		waiter.wantErr(fmt.Sprintf(`(pid %d, host `, holder.Process.Pid))
		waiter.wantErr(`"shipping"`)
		s.touch("go")
		holder.wantCode(0)
		waiter.wantCode(0)
		waited := time.Duration(s.number("began") - s.number("ended"))
		t.Logf("from the end of the first command to the start of the second: %v", waited)
		if waited < 0 || waited > 10*time.Second {
			t.Errorf("the second command began %v after the first ended", waited)
		}
	})
}

func TestKilledHolder(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		const ttl = 3 * time.Second
		holder, pgid := s.hold(stubborn, "--ttl", ttl.String())
		waiter := s.start("run", "x", "--", "sh", "-c", "date +%s%N >began")
		time.Sleep(300 * time.Millisecond) // it is in line
		killed := time.Now()
		holder.Process.Kill()
		alive := lastAlive(t, pgid, killed)
		holder.wantCode(-9)
		waiter.wantCode(0)
		began := time.Unix(0, s.number("began"))
		t.Logf("command alive until %v after the kill at least; next command began after %v, ttl %v", alive.Sub(killed), began.Sub(killed), ttl)
		if began.Before(alive) {
			t.Errorf("the next command began %v before the last one had ended", alive.Sub(began))
		}
		if d := began.Sub(killed); d > ttl+10*time.Second {
			t.Errorf("the lock was free %v after the kill, ttl %v", d, ttl)
		}
	})
}

// Every signal reaches every process of the command, and the lock is kept until the command has done with it.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := onSQLite(t)
			p, _ := s.hold(fmt.Sprintf(`
				trap "echo >>outer; exit 9" %[1]d
				sh -c 'trap "echo >>inner; exit" %[1]d; echo $PPID >held.tmp; mv held.tmp held; while :; do sleep 0.01; done'
				exit 1`, int(sig)))
			if probe := s.start("run", "-n", "x", "--", "true"); probe.code() != 1 {
				t.Error("the lock is not held")
			}
			p.Process.Signal(sig)
			p.wantCode(9)
			for _, name := range []string{"inner", "outer"} {
				if b, err := os.ReadFile(s.path(name)); err != nil || len(b) != 1 {
					t.Errorf("the %s process got %v %d times (%v), want once", name, sig, len(b), err)
				}
			}
			s.start("run", "-n", "x", "--", "true").wantCode(0)
		})
	}
}

// A command that dies of the signal: 128+n.
func TestSignalEndsCommand(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		s := onSQLite(t)
		p, pgid := s.hold(holds + "; sleep 1000")
		p.Process.Signal(sig)
		p.wantCode(128 + int(sig))
		if n := group(pgid); n != 0 {
			t.Errorf("%v: %d processes are left", sig, n)
		}
	}
}

func TestInterruptedWhileWaiting(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		holder, _ := s.hold(holds)
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			waiter := s.start("run", "x", "--", "sh", "-c", "echo >ran")
			eventually(t, "it waits", func() bool { return strings.Contains(waiter.err.String(), "waiting for") })
			waiter.Process.Signal(sig)
			waiter.wantCode(128 + int(sig))
			waiter.wantErr("before the lock was taken")
		}
		s.touch("go")
		holder.wantCode(0)
		s.start("run", "-w", "20", "x", "--", "true").wantCode(0)
		if s.exists("ran") {
			t.Error("the command of an interrupted pawl ran")
		}
	})
}

// nohup: a signal that pawl was told to ignore is ignored by the command too.
func TestIgnoredHangup(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	c := exec.Command("sh", "-c", `trap '' HUP; exec pawl run x -- sh -c 'kill -HUP $$; echo alive'`)
	c.Dir, c.Env = s.dir, append(os.Environ(), s.env...)
	if out, err := c.CombinedOutput(); err != nil || string(out) != "alive\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// The lock is kept as long as a background process of the command works.
func TestBackgroundProcess(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	p, _ := s.hold(`(` + holds + `) & while ! test -e held; do sleep 0.01; done; exit 5`)
	eventually(t, "pawl says what it waits for", func() bool {
		return strings.Contains(p.err.String(), "has ended, but not its process group: 1 process") || strings.Contains(p.err.String(), "2 processes")
	})
	s.start("run", "-n", "x", "--", "true").wantCode(1)
	s.touch("go")
	p.wantCode(5)
	s.start("run", "-n", "x", "--", "true").wantCode(0)
}

func TestMinHold(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		s.start("run", "--min-hold", "60", "x", "--", "true").wantCode(0)
		s.start("run", "-n", "x", "--", "true").wantCode(1)
		s.start("run", "--min-hold", "0.2", "y", "--", "true").wantCode(0)
		s.start("run", "-w", "20", "y", "--", "true").wantCode(0)
	})
}

func TestLockDelay(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		s.start("run", "--lock-delay", "60", "x", "--", "true").wantCode(0)
		s.start("run", "-n", "x", "--", "true").wantCode(0)
		p := s.start("run", "--lock-delay", "60", "x", "--", "sh", "-c", "exit 3")
		p.wantCode(3)
		p.wantErr("stays taken for 1m (--lock-delay)")
		s.start("run", "-n", "x", "--", "true").wantCode(1)

		begin := time.Now()
		s.start("run", "--lock-delay", "0.5", "y", "--", "false").wantCode(1)
		s.start("run", "-w", "20", "y", "--", "true").wantCode(0)
		if d := time.Since(begin); d < 500*time.Millisecond {
			t.Errorf("free %v after the failure, want at least 500ms", d)
		}
	})
}

// A closed standard error must not end pawl, since the command would go on without it.
func TestBrokenStderr(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	_, _ = s.hold(holds)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("pawl", "run", "-v", "x", "--", "sh", "-c", "echo >ran")
	c.Dir, c.Env, c.Stderr = s.dir, append(os.Environ(), s.env...), w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	time.Sleep(1200 * time.Millisecond) // past the first message
	s.touch("go")
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if !s.exists("ran") {
		t.Error("the command did not run")
	}
}

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "s3cretW0rd")
	run := func(want int, part string, args ...string) {
		t.Helper()
		s := onSQLite(t)
		p := s.start(append(args, "run", "x", "--", "true")...)
		p.wantCode(want)
		p.wantErr(part)
		if strings.Contains(p.err.String(), "s3cret") || strings.Contains(p.err.String(), "panic") {
			t.Errorf("stderr: %s", p.err.String())
		}
	}
	run(0, "", "--backend", "redis://:s3cretW0rd@"+server.Addr)
	run(77, "", "--backend", "redis://:s3cretWrong@"+server.Addr)
	run(77, "", "--backend", server.URL)
	run(69, "", "--backend", "redis://:s3cretW0rd@127.0.0.1:1")
	run(69, "", "--backend", "unix:///no/such/socket")
	run(64, "", "--backend", "redis://:s3cretW0rd@"+server.Addr+"/0?s3cret=1")

	maria := sqltest.StartMariaDB(t)
	run(0, "", "--backend", maria.URL)
	run(77, "refuses user or password", "--backend", strings.Replace(maria.URL, "sesame-open", "s3cretWrong", 1))

	frozen := redistest.Start(t)
	frozen.Stop()
	run(69, "no answer in time", "--timeout", "0.5", "--backend", frozen.URL)

	if os.Getuid() != 0 { // root may write everywhere
		dir := t.TempDir()
		os.Chmod(dir, 0o500)
		run(77, "", "--backend", "sqlite://"+dir+"/locks.db")
	}
	other := filepath.Join(t.TempDir(), "text.db")
	os.WriteFile(other, []byte("this is no database, but long enough to look at it as one"), 0o600)
	run(69, "text.db", "--backend", "sqlite://"+other)
}

// Kinds that a store does not have yet, and names that are in use as another kind.
func TestKinds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := onRedis(t, server)
	for flag, mode := range map[string]string{"-s": "read", "-x": "write", "--fair": "fair", "--permits=2": "permits"} {
		p := s.start("run", flag, "kind"+mode, "--", "sh", "-c", "echo $PAWL_MODE")
		p.wantCode(0)
		if got := strings.TrimSpace(p.out.String()); got != mode {
			t.Errorf("%s: mode %q, want %q", flag, got, mode)
		}
	}
	_, _ = s.hold(holds, "--permits", "2")
	s.start("run", "-n", "--permits", "2", "x", "--", "true").wantCode(0)
	p := s.start("run", "-n", "--permits", "3", "x", "--", "true")
	p.wantCode(64)
	p.wantErr("2")
	p = s.start("run", "-n", "x", "--", "true")
	p.wantCode(64)
	p.wantErr("who shares one with --permits N says the same")
	s.touch("go")
}

// Two programs cannot be in at once, whatever they do: many short runs of one name, each reading and writing a file.
func TestExclusion(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		const workers, rounds = 4, 5
		if err := os.WriteFile(s.path("count"), []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, workers)
		for range workers {
			go func() {
				for range rounds {
					c := exec.Command("pawl", "run", "x", "--", "sh", "-c", `n=$(cat count); sleep 0.01; echo $((n+1)) >count`)
					c.Dir, c.Env = s.dir, append(os.Environ(), s.env...)
					if out, err := c.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
						errs <- fmt.Errorf("%w: %s", err, out)
						return
					}
				}
				errs <- nil
			}()
		}
		for range workers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := s.number("count"); n != workers*rounds {
			t.Errorf("counted to %d, want %d", n, workers*rounds)
		}
	})
}
