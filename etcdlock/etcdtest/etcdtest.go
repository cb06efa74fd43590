// Package etcdtest starts real etcd clusters for tests: private ones, on free ports of the loopback interface and in
// temporary directories. The server is built from its own Go module (see the folder server), or is Debian's.
package etcdtest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Options say what cluster to start. The zero value is one member of the current version.
type Options struct {
	Members  int      // 0: one
	Debian   bool     // the server of Debian's package etcd-server, version 3.4
	Args     []string // added to each member's command line
	Cuttable bool     // members can be cut off from one another
	TLS      *TLS     // for clients
	Durable  bool     // sync each write to the disk, as a cluster in use does; tests that only kill processes need not
}

// TLS names the files of the certificate that the members show to clients.
type TLS struct{ Cert, Key string }

// Cluster is a running cluster. Its methods fail the test when they cannot do their work. They are for one goroutine.
type Cluster struct {
	Members []*Member
	URL     string // "etcd://127.0.0.1:port,…"

	t testing.TB
}

// Member is one server of a cluster.
type Member struct {
	Addr string // "127.0.0.1:port", for clients
	Dir  string

	t      testing.TB
	name   string
	peer   string // where the others reach it
	listen string // where it listens for them
	id     string // in hex
	cuts   *cuts
	tls    bool
	bin    string
	args   []string
	cmd    *exec.Cmd
	output *os.File
	frozen bool
}

// patience is how long a cluster may take to come up: long, since the machine may be busy.
const patience = 60 * time.Second

// Start starts a cluster and waits until it has a leader. It ends with the test. Without a server to start the test fails,
// and says what to install.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	find := built
	if o.Debian {
		find = debian
	}
	bin, err := find()
	if err != nil {
		t.Fatal(err)
	}
	for tries := 0; ; tries++ {
		c, err := start(t, bin, o)
		if err == nil {
			return c
		}
		if tries == 5 { // somebody else may have taken a port each time, but hardly
			t.Fatalf("etcd does not start: %v", err)
		}
	}
}

func start(t testing.TB, bin string, o Options) (*Cluster, error) {
	c := &Cluster{t: t}
	addrs, err := freeAddrs(3 * max(o.Members, 1))
	if err != nil {
		return nil, err
	}
	var all, clients []string
	var cut *cuts
	if o.Cuttable {
		cut = newCuts()
	}
	for i := range max(o.Members, 1) {
		m := &Member{t: t, name: fmt.Sprintf("m%d", i+1), Addr: addrs[3*i], peer: "http://" + addrs[3*i+1], bin: bin, cuts: cut}
		m.listen = m.peer
		if o.Cuttable {
			m.listen = "http://" + addrs[3*i+2]
			p, err := newProxy(addrs[3*i+1], addrs[3*i+2], cut)
			if err != nil {
				return nil, err
			}
			t.Cleanup(p.close)
		}
		all = append(all, m.name+"="+m.peer)
		clients = append(clients, m.Addr)
		c.Members = append(c.Members, m)
	}
	c.URL = "etcd://" + strings.Join(clients, ",")
	for _, m := range c.Members {
		if m.Dir, err = os.MkdirTemp(disk(o), "etcd"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if m.cmd != nil {
				m.end()
			}
			os.RemoveAll(m.Dir)
		})
		scheme := "http://"
		if o.TLS != nil {
			scheme = "https://"
		}
		m.args = []string{"--name", m.name, "--data-dir", filepath.Join(m.Dir, "data"),
			"--listen-client-urls", scheme + m.Addr, "--advertise-client-urls", scheme + m.Addr,
			"--listen-peer-urls", m.listen, "--initial-advertise-peer-urls", m.peer,
			"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new", "--initial-cluster-token", t.Name(),
			"--log-level", "error"}
		if !o.Debian && !o.Durable {
			// What a killed process has written is in the system's cache all the same.
			m.args = append(m.args, "--unsafe-no-fsync")
		}
		if o.TLS != nil {
			m.args = append(m.args, "--cert-file", o.TLS.Cert, "--key-file", o.TLS.Key)
			m.tls = true
		}
		m.args = append(m.args, o.Args...)
		if err := m.launch(); err != nil {
			return nil, err
		}
	}
	if err := c.ready(); err != nil {
		for _, m := range c.Members {
			m.end()
		}
		return nil, err
	}
	return c, c.identify()
}

// identify learns the members' IDs.
func (c *Cluster) identify() error {
	if c.Members[0].cuts == nil {
		return nil
	}
	cli := c.Client()
	defer cli.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := cli.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range c.Members {
		for _, l := range list.Members {
			if l.Name == m.name {
				m.id = strconv.FormatUint(l.ID, 16)
				m.cuts.mu.Lock()
				m.cuts.owner[strings.TrimPrefix(m.listen, "http://")] = m.id
				m.cuts.mu.Unlock()
			}
		}
	}
	return nil
}

// Cut cuts the member off from the other ones, both ways; its clients still reach it. The cluster must be Cuttable.
func (m *Member) Cut() { m.cuts.set(m.id, true) }

// Heal ends a Cut.
func (m *Member) Heal() { m.cuts.set(m.id, false) }

// disk is where a cluster keeps its data: in memory where there is such a place, since etcd waits for each write.
func disk(o Options) string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() && !o.Durable {
		return "/dev/shm"
	}
	return ""
}

// freeAddrs finds some ports that nobody has.
func freeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func (m *Member) launch() error {
	out, err := os.OpenFile(filepath.Join(m.Dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	m.cmd = exec.Command(m.bin, m.args...)
	m.cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+os.Getenv("GOARCH"))
	m.cmd.Stdout, m.cmd.Stderr = out, out
	m.output = out
	dieWithParent(m.cmd)
	if err := m.cmd.Start(); err != nil {
		out.Close()
		m.cmd = nil
		return err
	}
	return nil
}

// ready waits until every member answers a read that needs the quorum.
func (c *Cluster) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, m := range c.Members {
		if err := m.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *Member) ready(ctx context.Context) error {
	cfg := config(m.Addr)
	if m.tls {
		cfg.TLS = &tls.Config{InsecureSkipVerify: true}
		cfg.Endpoints = []string{"https://" + m.Addr}
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		return err
	}
	defer cli.Close()
	for {
		one, cancel := context.WithTimeout(ctx, time.Second)
		_, err := cli.Get(one, "ready")
		cancel()
		if err == nil || strings.Contains(err.Error(), "user name is empty") {
			return nil
		}
		if m.exited() || ctx.Err() != nil {
			text, _ := os.ReadFile(filepath.Join(m.Dir, "output"))
			return fmt.Errorf("member %s: %w; it printed:\n%s", m.name, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (m *Member) exited() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(m.cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid == m.cmd.Process.Pid
}

func config(addrs ...string) clientv3.Config {
	return clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}})}}
}

// Client makes a client of all members, or of the ones that are given. It is closed with the test.
func (c *Cluster) Client(members ...*Member) *clientv3.Client {
	c.t.Helper()
	if len(members) == 0 {
		members = c.Members
	}
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr)
	}
	cli, err := clientv3.New(config(addrs...))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cli.Close() })
	return cli
}

// Leader answers the member that leads, once the running ones agree on one.
func (c *Cluster) Leader() *Member {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, m := range c.Members {
			if m.cmd == nil || m.frozen {
				continue
			}
			cli := c.Client(m)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			st, err := cli.Status(ctx, m.Addr)
			cancel()
			cli.Close()
			if err == nil && st.Leader != 0 && st.Leader == st.Header.MemberId {
				return m
			}
		}
	}
	c.t.Fatal("etcdtest: the cluster has no leader")
	return nil
}

func (m *Member) end() {
	if m.cmd == nil {
		return
	}
	m.cmd.Process.Kill()
	m.cmd.Wait()
	m.output.Close()
	m.cmd, m.frozen = nil, false
}

// Kill ends the member at once, as kill -9 does.
func (m *Member) Kill() {
	m.t.Helper()
	if m.cmd == nil {
		m.t.Fatal("etcdtest: the member does not run")
	}
	m.end()
}

// Restart starts a member that was killed again, with its data and at the same address, and waits until it serves.
func (m *Member) Restart() {
	m.t.Helper()
	m.end()
	err := m.launch()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = m.ready(ctx)
	}
	if err != nil {
		m.t.Fatalf("etcdtest: the member does not start again: %v", err)
	}
}

// Stop freezes the member: it takes connections and requests, and answers none until Cont.
func (m *Member) Stop() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus // all its threads stand still only when the kernel says so
	for {
		_, err := syscall.Wait4(m.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == nil && status.Stopped() {
			break
		}
		if err != nil && err != syscall.EINTR || err == nil {
			m.t.Fatalf("etcdtest: the member ended instead of standing still: %v", err)
		}
	}
	m.frozen = true
}

// Cont lets a frozen member go on. It does nothing to one that runs.
func (m *Member) Cont() {
	m.t.Helper()
	if m.frozen {
		m.signal(syscall.SIGCONT)
		m.frozen = false
	}
}

func (m *Member) signal(sig syscall.Signal) {
	m.t.Helper()
	if m.cmd == nil {
		m.t.Fatal("etcdtest: the member does not run")
	}
	if err := m.cmd.Process.Signal(sig); err != nil {
		m.t.Fatalf("etcdtest: %v", err)
	}
}

// PID is the member's process.
func (m *Member) PID() int { return m.cmd.Process.Pid }
