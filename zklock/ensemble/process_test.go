package ensemble

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
)

// The test binary runs itself as another process. Its role, servers, lock and session timeout are in the environment; it
// reads commands from standard input, one a line, and answers each with one line.
const roleVar = "PAWL_ZK_CHILD"

func child() int {
	session, err := time.ParseDuration(os.Getenv("PAWL_ZK_SESSION"))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	d, err := zklock.Open(ctx, "zookeeper://"+os.Getenv("PAWL_ZK_ADDRS")+"/locks", &zklock.Options{SessionTimeout: session})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	locks := pawl.New(d)
	defer locks.Close()
	m := locks.FairMutex(os.Getenv("PAWL_ZK_LOCK"))
	fmt.Println("ready")
	var lease *pawl.Lease
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "lock":
			if lease, err = m.Lock(ctx); err != nil {
				fmt.Println("error", err)
			} else {
				fmt.Println("locked", lease.Token())
			}
		case "unlock":
			fmt.Println("unlocked", lease.Unlock())
		case "stop": // it is stopped from outside, and looks at its lease the instant it runs again
			at := driver.Now() // before the stop, which may come as soon as the word is out
			fmt.Println("stopping")
			for {
				now := driver.Now()
				if now.Sub(at) > session*4/5 {
					break
				}
				at = now
			}
			held := lease.Err() == nil
			fmt.Println("resumed", held, lease.Token())
		}
	}
	return 0
}

// process is a child.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, addrs, lock string, session time.Duration) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVar+"=1", "PAWL_ZK_ADDRS="+addrs, "PAWL_ZK_LOCK="+lock, "PAWL_ZK_SESSION="+session.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	p.want("ready")
	return p
}

func (p *process) say(command string) { fmt.Fprintln(p.in, command) }

// want reads the next answer, which must begin like that.
func (p *process) want(prefix string) string {
	p.t.Helper()
	silent := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer silent.Stop()
	line, err := p.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		p.t.Fatalf("a process says %q (%v), want %q within %v", line, err, prefix, patience)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, prefix))
}

// TestFIFOOverProcesses: four processes queue in a known order, several times, and are served in that order.
func TestFIFOOverProcesses(t *testing.T) {
	t.Parallel()
	conn := connect(t, three[0].Addr)
	name := fresh()
	var ps []*process
	for i := range 4 {
		ps = append(ps, start(t, three[i%3].Addr, name, 20*time.Second))
	}
	waiters := func(n int) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
			conn.Sync("/locks/" + name)
			children, _, err := conn.Children("/locks/" + name)
			if err == nil && len(children) == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d nodes, want %d (%v)", len(children), n, err)
			}
		}
	}
	ps[0].say("lock")
	last, _ := strconv.ParseInt(ps[0].want("locked "), 10, 64)
	for round := range 10 {
		order := []int{1, 2, 3}
		if round%2 == 1 {
			order = []int{3, 1, 2}
		}
		for i, k := range order {
			ps[k].say("lock")
			waiters(i + 2)
		}
		holder := 0
		for _, k := range append(order, 0) {
			ps[holder].say("unlock")
			ps[holder].want("unlocked <nil>")
			if k == 0 {
				ps[0].say("lock")
			}
			token, _ := strconv.ParseInt(ps[k].want("locked "), 10, 64)
			if token <= last {
				t.Errorf("token %d follows %d", token, last)
			}
			last, holder = token, k
			if k != 0 {
				waiters(len(order) - indexOf(order, k))
			}
		}
	}
}

func indexOf(list []int, x int) int {
	for i, v := range list {
		if v == x {
			return i
		}
	}
	return -1
}

// TestStoppedHolder: a process that was stopped for longer than its session is told of the loss by the first look at its
// lease after it goes on, before anything else could tell it; and somebody else had the lock meanwhile.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	const session = 3 * time.Second
	name := fresh()
	p := start(t, three.Addrs(), name, session)
	p.say("lock")
	token, _ := strconv.ParseInt(p.want("locked "), 10, 64)
	p.say("stop")
	p.want("stopping")
	p.cmd.Process.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	rival := client(t, three.Addrs(), session)
	ctx, cancel := context.WithTimeout(t.Context(), session+patience)
	defer cancel()
	lease, err := rival.FairMutex(name).Lock(ctx)
	if err != nil {
		t.Fatalf("nobody gets the name of a stopped holder: %v", err)
	}
	if lease.Token() <= token {
		t.Errorf("token %d follows %d", lease.Token(), token)
	}
	// The servers count from the session's last word, which came before the stop; the process must see a gap of its own.
	time.Sleep(time.Until(stopped.Add(session)))
	p.cmd.Process.Signal(syscall.SIGCONT)
	if got := p.want("resumed "); !strings.HasPrefix(got, "false") {
		t.Errorf("a holder that was stopped for longer than its session still trusts its lease: %q", got)
	}
	lease.Unlock()
	p.say("lock") // it is usable as before
	p.want("locked ")
}
