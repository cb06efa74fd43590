// Package zktest starts real ZooKeeper servers for tests: private ones, on free ports of the loopback interface and in
// temporary directories, alone or as an ensemble. It needs the Debian package zookeeper and a Java runtime; elsewhere, the
// environment variable ZOOKEEPER_CLASSPATH says where the jars are. A machine without them fails the test.
package zktest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Tick is the servers' tickTime. Session timeouts from two ticks up are granted.
const Tick = 400 * time.Millisecond

// patience is how long a server may take to come up: long, since the machine may be busy.
const patience = 60 * time.Second

// Config is what may be different from server to server.
type Config struct {
	Sync  bool                  // write through to the disk, as in production; else the tests are faster
	Lines []string              // further lines of the configuration file
	Java  []string              // further arguments for Java, in front of the class
	Ready func(s *Server) error // nil: the server answers "srvr" with a mode other than read-only
}

// Server is one server. Its methods are for one goroutine.
type Server struct {
	Addr string // "127.0.0.1:port"
	Dir  string

	config Config
	lines  []string
	cmd    *exec.Cmd
	output *os.File
	frozen bool
}

// Classpath is what Java needs to run a server or a client.
func Classpath() string {
	if p := os.Getenv("ZOOKEEPER_CLASSPATH"); p != "" {
		return p
	}
	// The jar's manifest names most of what it needs; netty, for TLS, needs a little more.
	var jars []string
	for _, j := range []string{"zookeeper", "slf4j-simple", "netty-resolver", "netty-codec", "netty-transport-native-unix-common"} {
		jars = append(jars, "/usr/share/java/"+j+".jar")
	}
	return strings.Join(jars, ":")
}

// TB is the part of testing.TB that this package needs; TestMain has none of its own.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Start starts a server of its own for t and waits until it answers.
func Start(t TB, config Config) *Server {
	t.Helper()
	s, err := New(config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// New is Start for TestMain. The caller must Close it.
func New(config Config) (*Server, error) {
	var err error
	for range 5 { // somebody else may take the port
		var s *Server
		if s, err = newServer(config); err != nil {
			return nil, err
		}
		if err = s.launch(); err == nil {
			if err = s.wait(); err == nil {
				return s, nil
			}
		}
		s.Close()
	}
	return nil, fmt.Errorf("zookeeper does not start: %w", err)
}

func newServer(config Config) (*Server, error) {
	dir, err := os.MkdirTemp("", "zktest")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	return &Server{Addr: addr, Dir: dir, config: config}, err
}

// FreeAddr is an address that nobody listens at.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *Server) launch() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	lines := append([]string{
		fmt.Sprintf("tickTime=%d", Tick.Milliseconds()),
		"dataDir=" + filepath.Join(s.Dir, "data"),
		"clientPort=" + port,
		"clientPortAddress=127.0.0.1",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"maxClientCnxns=0",
		"maxSessionTimeout=60000",
	}, append(s.lines, s.config.Lines...)...)
	if err := os.MkdirAll(filepath.Join(s.Dir, "data"), 0o755); err != nil {
		return err
	}
	file := filepath.Join(s.Dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(s.Dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	sync := "no"
	if s.config.Sync {
		sync = "yes"
	}
	args := []string{"-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dzookeeper.forceSync=" + sync, "-Dznode.container.checkIntervalMs=1000", "-Dzookeeper.preAllocSize=1024",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", Classpath()}
	args = append(args, s.config.Java...)
	args = append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	cmd := exec.Command("java", args...)
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		out.Close()
		return fmt.Errorf("%w (install zookeeper and a Java runtime)", err)
	}
	s.cmd, s.output = cmd, out
	return nil
}

// wait waits until the server serves.
func (s *Server) wait() error {
	ready := s.config.Ready
	if ready == nil {
		ready = func(s *Server) error {
			if m := s.Mode(); m == "" || m == "read-only" {
				return fmt.Errorf("its mode is %q", m)
			}
			return nil
		}
	}
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if err = ready(s); err == nil {
			return nil
		}
		if s.exited() || time.Now().After(end) {
			text, _ := os.ReadFile(filepath.Join(s.Dir, "output"))
			return fmt.Errorf("zookeeper (install the package zookeeper): %w; it printed:\n%s", err, text)
		}
	}
}

func (s *Server) exited() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid == s.cmd.Process.Pid
}

// Ask sends one of the four-letter commands and answers what came back.
func (s *Server) Ask(command string) string {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	conn.Write([]byte(command))
	var b bytes.Buffer
	b.ReadFrom(conn)
	return b.String()
}

// Mode is "standalone", "leader", "follower" or "read-only"; "" while the server does not serve.
func (s *Server) Mode() string {
	_, mode, _ := strings.Cut(s.Ask("srvr"), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// Running reports whether there is a process.
func (s *Server) Running() bool { return s.cmd != nil }

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.output.Close()
	s.cmd, s.frozen = nil, false
}

// Restart starts the server again, at the same address and with its data.
func (s *Server) Restart() error {
	s.Kill()
	if err := s.launch(); err != nil {
		return err
	}
	return s.wait()
}

// Stop freezes the server: it takes connections and requests, and answers none until Cont. It returns when no thread of
// the server runs any more.
func (s *Server) Stop() {
	s.cmd.Process.Signal(syscall.SIGSTOP)
	s.frozen = true
	for end := time.Now().Add(patience); !s.stopped() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
}

// stopped reports whether all threads have stopped; where there is no /proc, it takes that for granted.
func (s *Server) stopped() bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
	for _, file := range stats {
		text, err := os.ReadFile(file)
		_, state, ok := strings.Cut(string(text), ") ")
		if err == nil && ok && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// Cont lets a frozen server go on.
func (s *Server) Cont() {
	if s.frozen {
		s.cmd.Process.Signal(syscall.SIGCONT)
		s.frozen = false
	}
}

// Close ends the server and removes what it stored.
func (s *Server) Close() {
	s.Kill()
	os.RemoveAll(s.Dir)
}

// Ensemble is a set of servers that elect a leader.
type Ensemble []*Server

// StartEnsemble starts n servers for t and waits until they have a leader.
func StartEnsemble(t TB, n int, config Config) Ensemble {
	t.Helper()
	e, err := NewEnsemble(n, config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(e.Close)
	return e
}

// NewEnsemble is StartEnsemble for TestMain. The caller must Close it.
func NewEnsemble(n int, config Config) (Ensemble, error) {
	var err error
	for range 3 {
		var e Ensemble
		if e, err = newEnsemble(n, config); err == nil {
			return e, nil
		}
		e.Close()
	}
	return nil, err
}

func newEnsemble(n int, config Config) (Ensemble, error) {
	var e Ensemble
	lines := []string{"initLimit=20", "syncLimit=5", "electionPortBindRetry=20"}
	for i := range n {
		s, err := newServer(config)
		if err != nil {
			return e, err
		}
		e = append(e, s)
		quorum, err := FreeAddr()
		if err != nil {
			return e, err
		}
		election, err := FreeAddr()
		if err != nil {
			return e, err
		}
		_, port, _ := net.SplitHostPort(election)
		lines = append(lines, fmt.Sprintf("server.%d=%s:%s", i+1, quorum, port))
	}
	for i, s := range e {
		s.lines = lines
		if err := os.MkdirAll(filepath.Join(s.Dir, "data"), 0o755); err != nil {
			return e, err
		}
		if err := os.WriteFile(filepath.Join(s.Dir, "data", "myid"), fmt.Appendln(nil, i+1), 0o644); err != nil {
			return e, err
		}
		if err := s.launch(); err != nil {
			return e, err
		}
	}
	for _, s := range e {
		if err := s.wait(); err != nil {
			return e, err
		}
	}
	return e, nil
}

// Addrs are the servers' addresses, with commas between them.
func (e Ensemble) Addrs() string {
	var addrs []string
	for _, s := range e {
		addrs = append(addrs, s.Addr)
	}
	return strings.Join(addrs, ",")
}

// Leader is the server that leads now, or nil.
func (e Ensemble) Leader() *Server {
	for _, s := range e {
		if s.Running() && s.Mode() == "leader" {
			return s
		}
	}
	return nil
}

// Close ends all servers.
func (e Ensemble) Close() {
	for _, s := range e {
		s.Close()
	}
}
