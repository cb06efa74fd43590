// Package sqltest starts real database servers for tests: private ones, on a free port of the loopback interface and a
// Unix socket in a temporary directory. A machine that lacks one fails the test, with the name of the package to install.
//
// They survive kill -9 of their own process without loss, but are not safe against a crash of the machine: they are made
// to be fast.
package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Server is one database server with an empty database "pawl" and an all-powerful user "pawl". Its methods fail the test
// when they cannot do their work. They are for one goroutine.
type Server struct {
	Addr   string // "127.0.0.1:port"
	Socket string // path of the Unix socket
	Dir    string // its working directory
	URL    string // "mysql://pawl:…@127.0.0.1:port/pawl" or "postgres://…"
	DSN    string // the same for database/sql
	Driver string // the name that database/sql knows the driver by: "mysql" or "pgx"

	t       testing.TB
	kind    kind
	args    []string
	cmd     *exec.Cmd     // nil: it does not run
	ended   chan struct{} // closed when cmd has ended
	stopped []int         // the processes that Stop froze
}

// kind is what one product does differently. The commands run in the server's directory.
type kind struct {
	name    string
	install func(s *Server) (*exec.Cmd, error) // makes the data directory
	run     func(s *Server) (*exec.Cmd, error)
	where   func(s *Server) // fills in URL, DSN and Driver
	finish  syscall.Signal  // ends it at once and leaves nothing behind
	ahead   time.Duration   // its wall clock is off by that
}

// StartMariaDBAhead is StartMariaDB with a wall clock that is ahead of the machine's. It takes Debian's package faketime.
func StartMariaDBAhead(t testing.TB, ahead time.Duration, args ...string) *Server {
	t.Helper()
	k := mariadb
	k.ahead = ahead
	return start(t, k, args)
}

// StartPostgresAhead is StartPostgres with a wall clock that is ahead of the machine's. It takes Debian's package faketime.
func StartPostgresAhead(t testing.TB, ahead time.Duration, args ...string) *Server {
	t.Helper()
	k := postgres
	k.ahead = ahead
	return start(t, k, args)
}

// shift has a program see another wall clock. Its monotonic clock, by which it sleeps, stays.
func (k kind) shift(cmd *exec.Cmd) error {
	if k.ahead == 0 {
		return nil
	}
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		return errors.New("libfaketime is not here: install faketime")
	}
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+found[0], fmt.Sprintf("FAKETIME=%+ds", int64(k.ahead.Seconds())), "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_RESET=1")
	return nil
}

// password is what the servers' user pawl has, so that tests can look for it where it should not be.
const password = "sesame-open"

// patience is how long a server may take to come up: long, since the machine may be busy.
const patience = 60 * time.Second

func start(t testing.TB, k kind, args []string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", k.name) // a socket's path must be short, so not t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, kind: k, args: args, Dir: dir}
	t.Cleanup(func() {
		s.end(k.finish)
		os.RemoveAll(dir)
	})
	if err := s.install(); err != nil {
		t.Fatalf("%s cannot be installed: %v", k.name, err)
	}
	for tries := 0; ; tries++ {
		s.Addr = freeAddr(t)
		k.where(s)
		err := s.launch()
		if err == nil {
			return s
		}
		if tries == 3 { // somebody else may have taken the port each time, but hardly
			t.Fatalf("%s does not start: %v", k.name, err)
		}
	}
}

func (s *Server) install() error {
	cmd, err := s.kind.install(s)
	if err != nil {
		return err
	}
	cmd.Dir = s.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// launch starts the server and waits until it answers.
func (s *Server) launch() error {
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	end := time.Now().Add(patience)
	for {
		if err := s.spawn(); err != nil {
			return err
		}
		if s.await(db, end) {
			return nil
		}
		s.end(syscall.SIGKILL)
		text, _ := os.ReadFile(s.log())
		if err := fmt.Errorf("it printed:\n%s", text); time.Now().After(end) || !s.lingering(text) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Output is what the server has printed since it was started last: its log.
func (s *Server) Output() string {
	text, _ := os.ReadFile(s.log())
	return string(text)
}

func (s *Server) log() string { return filepath.Join(s.Dir, "output") }

func (s *Server) spawn() error {
	cmd, err := s.kind.run(s)
	if err == nil {
		err = s.kind.shift(cmd)
	}
	if err != nil {
		return err
	}
	out, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, out, out
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	s.cmd, s.ended = cmd, ended
	return nil
}

// await reports whether the server answers before it ends, or end.
func (s *Server) await(db *sql.DB, end time.Time) bool {
	for time.Now().Before(end) {
		if answers(db) {
			return true
		}
		select {
		case <-s.ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// answers reports whether the server does what it is asked for.
func answers(db *sql.DB) bool {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	return db.PingContext(ctx) == nil
}

// lingering reports whether the server only waits for processes of its former life to end.
func (s *Server) lingering(output []byte) bool {
	return bytes.Contains(output, []byte("still in use")) || bytes.Contains(output, []byte("is another postmaster"))
}

// DB opens a pool that is closed with the test.
func (s *Server) DB() *sql.DB {
	s.t.Helper()
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { db.Close() })
	return db
}

// end ends the server and all its processes, and waits for it.
func (s *Server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	s.thaw()
	all := family(s.cmd.Process.Pid)
	s.cmd.Process.Signal(sig)
	if sig == syscall.SIGKILL {
		for _, pid := range all {
			syscall.Kill(pid, sig)
		}
	}
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		s.cmd.Process.Kill()
		<-s.ended
	}
	s.cmd = nil
}

// Kill ends the server at once, as kill -9 of all its processes does.
func (s *Server) Kill() {
	s.t.Helper()
	s.running()
	s.end(syscall.SIGKILL)
}

// Restart starts a server that was killed again, at the same address; a running one is killed first.
func (s *Server) Restart() {
	s.t.Helper()
	s.end(syscall.SIGKILL)
	if err := s.launch(); err != nil {
		s.t.Fatalf("%s does not start again: %v", s.kind.name, err)
	}
}

// Stop freezes the server and all its processes: it takes connections and requests, and answers none until Cont.
func (s *Server) Stop() {
	s.t.Helper()
	s.running()
	pid := s.cmd.Process.Pid
	s.freeze(pid)
	for _, child := range family(pid) { // it makes no more of them
		s.freeze(child)
	}
}

// freeze stops one process and waits until it stands still: a signal takes its time on a busy machine.
func (s *Server) freeze(pid int) {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); errors.Is(err, syscall.ESRCH) {
		return
	} else if err != nil {
		s.t.Fatalf("sqltest: %v", err)
	}
	s.stopped = append(s.stopped, pid)
	for end := time.Now().Add(10 * time.Second); !still(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("sqltest: process %d does not stop", pid)
		}
	}
}

// Cont lets a frozen server go on. It does nothing to one that runs.
func (s *Server) Cont() {
	s.t.Helper()
	s.running()
	s.thaw()
}

func (s *Server) thaw() {
	for _, pid := range s.stopped {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	s.stopped = nil
}

func (s *Server) running() {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatal("sqltest: the server does not run")
	}
}

// PID is the server's process; on PostgreSQL, the one whose children serve.
func (s *Server) PID() int {
	s.t.Helper()
	s.running()
	return s.cmd.Process.Pid
}
