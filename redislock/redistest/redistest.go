// Package redistest starts real Redis servers for tests: private ones, on a free port of the loopback interface and a Unix
// socket in a temporary directory, without persistence unless asked for.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Server is one redis-server. Its methods fail the test when they cannot do their work. They are for one goroutine.
type Server struct {
	Addr   string // "127.0.0.1:port"
	URL    string // "redis://127.0.0.1:port"
	Socket string // path of the Unix socket
	Dir    string // its working directory

	t      testing.TB
	conf   string // path of the configuration file, or ""
	args   []string
	cmd    *exec.Cmd
	output *os.File
	frozen bool
}

// patience is how long a server may take to come up: long, since the machine may be busy.
const patience = 30 * time.Second

// Start starts a server and waits until it answers. args are added to its command line. The server ends with the test. A
// machine without redis-server fails the test: install the package redis-server (Debian), or say where it is in the
// environment variable REDIS_SERVER.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, "", args...)
}

// start is Start, with a configuration file of that text unless it is empty.
func start(t testing.TB, conf string, args ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // a socket's path must be short, so not t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, args: args, Dir: dir, Socket: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.end()
		}
		os.RemoveAll(dir)
	})
	if conf != "" {
		s.conf = filepath.Join(dir, "conf")
		if err := os.WriteFile(s.conf, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for tries := 0; ; tries++ {
		s.Addr = freeAddr(t)
		s.URL = "redis://" + s.Addr
		if i := slices.Index(args, anyPort); i >= 0 {
			s.args = slices.Clone(args)
			_, s.args[i], _ = net.SplitHostPort(freeAddr(t))
		}
		err := s.launch()
		if err == nil {
			return s
		}
		if tries == 5 { // somebody else may have taken the port each time, but hardly
			t.Fatalf("redis-server does not start: %v", err)
		}
	}
}

// anyPort, as an argument of a server, stands for a port that is free.
const anyPort = "<any port>"

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *Server) launch() error {
	bin := os.Getenv("REDIS_SERVER")
	if bin == "" {
		bin = "redis-server"
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	out, err := os.Create(filepath.Join(s.Dir, "output"))
	if err != nil {
		return err
	}
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--unixsocket", s.Socket, "--dir", s.Dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no"}, s.args...)
	if s.conf != "" {
		args = append([]string{s.conf}, args...)
	}
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		out.Close()
		return fmt.Errorf("%w (install redis-server, or set REDIS_SERVER)", err)
	}
	s.cmd, s.output = cmd, out
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if ready(s.Addr) {
			return nil
		}
		if exited(cmd) || time.Now().After(end) {
			s.end()
			text, _ := os.ReadFile(filepath.Join(s.Dir, "output"))
			return fmt.Errorf("it printed:\n%s", text)
		}
	}
}

// ready reports whether the server answers, be it that it wants a password or is loading no more.
func ready(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "PING\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH")
}

func exited(cmd *exec.Cmd) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid == cmd.Process.Pid
}

func (s *Server) end() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.output.Close()
	s.cmd, s.frozen = nil, false
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatal("redistest: the server does not run")
	}
	s.end()
}

// Restart starts a server that was killed again, at the same address; a running one is killed first.
func (s *Server) Restart() {
	s.t.Helper()
	if s.cmd != nil {
		s.end()
	}
	if err := s.launch(); err != nil {
		s.t.Fatalf("redis-server does not start again: %v", err)
	}
}

// Stop freezes the server: it takes connections and requests, and answers none until Cont.
func (s *Server) Stop() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.frozen = true
}

// Cont lets a frozen server go on. It does nothing to one that runs.
func (s *Server) Cont() {
	s.t.Helper()
	if s.frozen {
		s.signal(syscall.SIGCONT)
		s.frozen = false
	}
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatal("redistest: the server does not run")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

// Command sends one command to the server, on a connection of its own.
func (s *Server) Command(args ...string) (rueidis.RedisMessage, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	return c.Do(ctx, c.B().Arbitrary(args...).Build()).ToMessage()
}

// Do is Command for one that must work. It answers the text of the answer.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	msg, err := s.Command(args...)
	if err != nil && !rueidis.IsRedisNil(err) {
		s.t.Fatalf("redistest: %q: %v", args, err)
	}
	text, err := msg.ToString()
	if err != nil {
		text = msg.String()
	}
	return text
}

// eventually repeats f until it answers true, for as long as a busy machine may need.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * patience); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("redistest: it never happened: %s", what)
		}
	}
}

var (
	wrote    = regexp.MustCompile(`(?m)^master_repl_offset:(\d+)`)
	replicas = regexp.MustCompile(`(?m)^slave\d+:.*state=(\w+),offset=(\d+)`)
)

// InStep waits until each replica of the server has said that it got all that the server has written by now.
func (s *Server) InStep() {
	s.t.Helper()
	var by int
	if m := wrote.FindStringSubmatch(s.Do("INFO", "replication")); m != nil {
		by, _ = strconv.Atoi(m[1])
	}
	eventually(s.t, "all replicas in step", func() bool {
		all := replicas.FindAllStringSubmatch(s.Do("INFO", "replication"), -1)
		for _, m := range all {
			if got, err := strconv.Atoi(m[2]); err != nil || m[1] != "online" || got < by {
				return false
			}
		}
		return len(all) > 0
	})
}

// Is reports whether the server says that it is a "master" or a "slave". One that does not answer is neither.
func (s *Server) Is(role string) bool {
	msg, err := s.Command("INFO", "replication")
	text, err2 := msg.ToString()
	return err == nil && err2 == nil && strings.Contains(text, "role:"+role)
}

// PID is the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Port is the server's port.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.Addr)
	n, _ := strconv.Atoi(port)
	return n
}
