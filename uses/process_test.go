package uses

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

var long = flag.Bool("long", false, "let the scheduled job run for 60 s, with a kill every 10 s")

// patience is how long anything may take that must happen: long, since the machine may be busy.
const patience = 2 * time.Minute

// The test binary is also the program of the processes: PAWL_USES names its role, the arguments follow.
func TestMain(m *testing.M) {
	mysql.SetLogger(log.New(io.Discard, "", 0)) // the tests end connections
	role := os.Getenv("PAWL_USES")
	if role == "" {
		flag.Parse()
		flag.Set("test.parallel", "8") // the tests wait more than they work
		os.Exit(m.Run())
	}
	w := &worker{args: os.Args[2:], store: os.Args[1], out: os.Stdout, in: bufio.NewScanner(os.Stdin), id: os.Getpid()}
	if err := roles[role](w); err != nil {
		fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

var roles = map[string]func(*worker) error{
	"bank":     bankProcess,
	"holder":   holderProcess,
	"election": electionProcess,
	"once":     onceProcess,
	"cron":     cronProcess,
	"wrapped":  wrappedProcess,
	"guards":   guardsProcess,
}

// worker is a process from inside: it is told what to do by lines, and says by lines what it has done.
type worker struct {
	args   []string
	store  string
	memory *memlock.Driver
	id     int

	mu  sync.Mutex
	out io.Writer
	in  *bufio.Scanner
}

// say writes a line with the time in front.
func (w *worker) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.out, "%d %s\n", time.Now().UnixNano(), fmt.Sprintf(format, args...))
}

// told waits for the next line; false when there are no more.
func (w *worker) told() (string, bool) {
	ok := w.in.Scan()
	return w.in.Text(), ok
}

// open makes the worker's client. What it loses is said.
func (w *worker) open(ttl time.Duration) (*pawl.Client, error) {
	return open(w.store, w.memory, pawl.Options{TTL: ttl, OnEvent: func(e pawl.Event) {
		if e.Op == pawl.Lost {
			w.say("lost %s", e.Name)
		}
	}})
}

// lock takes a lock, also from a store that answers errors for a while: it may be down, or the machine busy.
func (w *worker) lock(l interface {
	Lock(context.Context) (*pawl.Lease, error)
}) (*pawl.Lease, error) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		lease, err := l.Lock(context.Background())
		if err == nil || time.Since(begin) > patience {
			return lease, err
		}
	}
}

// until is a context that ends when no more lines can come.
func (w *worker) until() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for {
			if _, ok := w.told(); !ok {
				stop()
				return
			}
		}
	}()
	return ctx
}

// process is a worker from outside.
type process struct {
	t     *testing.T
	b     *backend
	id    int
	cmd   *exec.Cmd // nil: a goroutine
	in    io.WriteCloser
	ended chan struct{}

	mu    sync.Mutex
	lines []line
	err   error
}

// line is something that a process has said.
type line struct {
	at    time.Time
	id    int // of the process
	words []string
}

func (l line) String() string {
	return fmt.Sprintf("%s %d %s", l.at.Format("05.000"), l.id, strings.Join(l.words, " "))
}

func (l line) is(what string) bool { return l.words[0] == what }

func (l line) number(i int) int64 {
	n, _ := strconv.ParseInt(l.words[i], 10, 64)
	return n
}

// goroutines counts the processes that are none.
var goroutines atomic.Int64

func (b *backend) process(t *testing.T, role string, args ...string) *process {
	t.Helper()
	p := &process{t: t, b: b, ended: make(chan struct{})}
	var out io.ReadCloser
	var wait func() error
	if b.memory != nil {
		r, in := io.Pipe()
		o, w := io.Pipe()
		p.in, out = in, o
		p.id = int(goroutines.Add(1))
		done := make(chan error, 1)
		go func() {
			err := roles[role](&worker{args: args, memory: b.memory, out: w, in: bufio.NewScanner(r), id: p.id})
			done <- err
			w.Close()
		}()
		wait = func() error { return <-done }
	} else {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		p.cmd = exec.Command(exe, append([]string{b.url}, args...)...)
		p.cmd.Env = append(os.Environ(), "PAWL_USES="+role, "GORACE=atexit_sleep_ms=0")
		p.cmd.Stderr = os.Stderr
		if p.in, err = p.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if out, err = p.cmd.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.id = p.cmd.Process.Pid
		wait = p.cmd.Wait
	}
	go func() {
		defer close(p.ended)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			words := strings.Fields(sc.Text())
			if len(words) > 1 {
				ns, err := strconv.ParseInt(words[0], 10, 64)
				if err == nil {
					words = words[1:]
				}
				p.mu.Lock()
				p.lines = append(p.lines, line{time.Unix(0, ns), p.id, words})
				p.mu.Unlock()
			}
		}
		p.err = wait()
	}()
	t.Cleanup(func() { // also after a failure
		if p.cmd != nil {
			p.cmd.Process.Kill()
		}
		p.in.Close()
		<-p.ended
	})
	return p
}

func (b *backend) processes(t *testing.T, n int, role string, args ...string) (all []*process) {
	t.Helper()
	for range n {
		all = append(all, b.process(t, role, args...))
	}
	return all
}

// said is what the process has said so far.
func (p *process) said() []line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// tell sends a line.
func (p *process) tell(what string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.t.Fatalf("process %d does not listen: %v; it said %v", p.id, err, p.said())
	}
}

// await waits until the process has said such a line, from its n-th line on.
func (p *process) await(n int, words ...string) line {
	p.t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(2 * time.Millisecond) {
		lines := p.said()
		for _, l := range lines[min(n, len(lines)):] {
			if len(l.words) >= len(words) && slices.Equal(l.words[:len(words)], words) {
				return l
			}
		}
		select {
		case <-p.ended:
			if len(p.said()) == len(lines) {
				p.t.Fatalf("process %d has ended (%v) without %q; it said %v", p.id, p.err, words, lines)
			}
		default:
		}
	}
	p.t.Fatalf("process %d does not say %q; it said %v", p.id, words, p.said())
	return line{}
}

// finish tells the process that nothing more will come, and waits for a good end.
func (p *process) finish() {
	p.t.Helper()
	p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("process %d does not end; it said %v", p.id, p.said())
	}
	if p.err != nil {
		p.t.Errorf("process %d: %v; it said %v", p.id, p.err, p.said())
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// stop freezes the process, and answers when it stands still: outside of a write, where a file is the store. Whoever is stopped inside
// of one keeps the whole file locked, and nobody can help that.
func (p *process) stop() {
	p.t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		p.freeze()
		if p.b.free == nil || p.b.free() {
			return
		}
		p.cont()
	}
	p.t.Fatalf("process %d is always writing", p.id)
}

func (p *process) freeze() {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGSTOP)
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.id))
		if errors.Is(err, os.ErrNotExist) && !exists("/proc/self/stat") {
			return // no such thing here
		}
		if _, state, ok := strings.Cut(string(text), ") "); ok && strings.HasPrefix(state, "T") {
			return
		}
	}
	p.t.Fatalf("process %d does not stop", p.id)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func (p *process) cont() { p.cmd.Process.Signal(syscall.SIGCONT) }

// all is what several processes have said, in the order of time.
func all(ps []*process) (lines []line) {
	for _, p := range ps {
		lines = append(lines, p.said()...)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	return lines
}

// within waits until what is true.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
