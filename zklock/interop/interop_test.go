// Package interop tests zklock beside the clients that it shares locks with: Curator, from the Debian package
// libcurator-recipes-java, and kazoo, from python3-kazoo.
package interop

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

var (
	server  *zktest.Server
	classes string // where the compiled Peer is
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // the tests hardly compute; they wait
	flag.Parse()
	os.Exit(func() int {
		var err error
		if server, err = zktest.New(zktest.Config{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		if classes, err = os.MkdirTemp("", "zkinterop"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(classes)
		if out, err := exec.Command("javac", "-cp", classpath(), "-d", classes, "Peer.java").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "javac: %v (install a JDK and libcurator-recipes-java)\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

func classpath() string {
	jars := []string{zktest.Classpath()}
	for _, j := range []string{"curator-recipes", "curator-framework", "curator-client", "guava", "slf4j-api", "zookeeper-jute"} {
		jars = append(jars, "/usr/share/java/"+j+".jar")
	}
	return strings.Join(jars, ":")
}

const patience = 30 * time.Second

func fresh() string { return "t-" + rand.Text()[:12] }

// peer is another client's process.
type peer struct {
	t   *testing.T
	in  io.Writer
	out chan string
}

func curator(t *testing.T, name, kind string, more ...string) *peer {
	t.Helper()
	args := []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", classpath() + ":" + classes, "Peer", server.Addr, "/locks/" + name, kind}
	return start(t, exec.Command("java", append(args, more...)...))
}

// kazoo is started with the Python that Debian packages are for.
func kazoo(t *testing.T, name, kind string) *peer {
	t.Helper()
	return start(t, exec.Command("/usr/bin/python3", "peer.py", server.Addr, "/locks/"+name, kind))
}

func start(t *testing.T, cmd *exec.Cmd) *peer {
	t.Helper()
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
		t.Fatalf("%v (install libcurator-recipes-java, a JDK, and python3-kazoo)", err)
	}
	p := &peer{t, in, make(chan string, 10)}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(p.out)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.out <- s.Text()
		}
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		wg.Wait()
		cmd.Wait()
	})
	p.want("ready")
	return p
}

func (p *peer) say(command string) { fmt.Fprintln(p.in, command) }

func (p *peer) want(answer string) {
	p.t.Helper()
	if got := p.hear(); got != answer {
		p.t.Fatalf("the peer says %q, want %q", got, answer)
	}
}

func (p *peer) hear() string {
	p.t.Helper()
	select {
	case got := <-p.out:
		return got
	case <-time.After(patience):
		p.t.Fatal("the peer says nothing")
		return ""
	}
}

// mustBlock wants no answer for a while.
func (p *peer) mustBlock() {
	p.t.Helper()
	select {
	case got := <-p.out:
		p.t.Fatalf("the peer should wait, but says %q", got)
	case <-time.After(400 * time.Millisecond):
	}
}

func client(t *testing.T, opts *zklock.Options) *pawl.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := zklock.Open(ctx, "zookeeper://"+server.Addr+"/locks", opts)
	if err != nil {
		t.Fatal(err)
	}
	c := pawl.New(d)
	t.Cleanup(func() { c.Close() })
	return c
}

// bothWays: each side is refused and waits while the other holds, and is woken when it lets go.
func bothWays(t *testing.T, ours pawl.Locker, p *peer) {
	t.Helper()
	for range 3 {
		p.say("lock")
		p.want("locked")
		if _, err := ours.TryLock(t.Context()); !errors.Is(err, pawl.ErrHeld) {
			t.Fatalf("TryLock beside the peer's hold: %v", err)
		}
		got := make(chan *pawl.Lease, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			lease, err := ours.Lock(ctx)
			if err != nil {
				t.Errorf("Lock behind the peer: %v", err)
			}
			got <- lease
		}()
		select {
		case <-got:
			t.Fatal("Lock should wait for the peer")
		case <-time.After(300 * time.Millisecond):
		}
		p.say("unlock")
		p.want("unlocked")
		released := time.Now()
		lease := <-got
		if took := time.Since(released); took > 5*time.Second {
			t.Errorf("pawl got in %v after the peer's release: it was not woken, but looked by itself", took)
		}
		if lease == nil {
			return
		}
		p.say("try 300")
		p.want("busy")
		p.say("lock")
		p.mustBlock()
		if err := lease.Unlock(); err != nil {
			t.Fatalf("Unlock: %v", err)
		}
		released = time.Now()
		p.want("locked")
		if took := time.Since(released); took > 5*time.Second {
			t.Errorf("the peer got in %v after pawl's release", took)
		}
		p.say("unlock")
		p.want("unlocked")
	}
}

func TestCuratorMutex(t *testing.T) {
	t.Parallel()
	name := fresh()
	bothWays(t, client(t, nil).Mutex(name), curator(t, name, "mutex"))
}

func TestCuratorWriteLock(t *testing.T) {
	t.Parallel()
	name := fresh()
	bothWays(t, client(t, nil).RWMutex(name), curator(t, name, "write"))
}

func TestCuratorReaderExcludesOurWriter(t *testing.T) {
	t.Parallel()
	name := fresh()
	bothWays(t, client(t, nil).RWMutex(name), curator(t, name, "read"))
}

func TestCuratorWriterExcludesOurReader(t *testing.T) {
	t.Parallel()
	name := fresh()
	bothWays(t, client(t, nil).RWMutex(name).RLocker(), curator(t, name, "write"))
}

func TestCuratorSemaphoreOfOne(t *testing.T) {
	t.Parallel()
	name := fresh()
	bothWays(t, client(t, nil).Semaphore(name, 1), curator(t, name, "semaphore", "1"))
}

func TestCuratorReadersShare(t *testing.T) {
	t.Parallel()
	name := fresh()
	p := curator(t, name, "read")
	ours := client(t, nil).RWMutex(name).RLocker()
	for range 2 {
		lease, err := ours.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.say("try 5000")
		p.want("locked")
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		if lease, err = ours.TryLock(t.Context()); err != nil {
			t.Fatalf("TryLock beside Curator's reader: %v", err)
		}
		p.say("unlock")
		p.want("unlocked")
		lease.Unlock()
	}
}

// TestCuratorSemaphore: permits of both clients count against one limit.
func TestCuratorSemaphore(t *testing.T) {
	t.Parallel()
	name := fresh()
	p := curator(t, name, "semaphore", "3")
	sem := client(t, nil).Semaphore(name, 3)
	two, err := sem.Weight(2).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.say("lock")
	p.want("locked")
	if _, err := sem.TryLock(t.Context()); !errors.Is(err, pawl.ErrHeld) {
		t.Errorf("the fourth of three permits: %v", err)
	}
	p.say("unlock")
	p.want("unlocked")
	third, err := sem.TryLock(t.Context())
	if err != nil {
		t.Fatalf("the third permit: %v", err)
	}
	p.say("try 300")
	p.want("busy")
	p.say("lock")
	p.mustBlock()
	if err := two.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.want("locked")
	third.Unlock()
}

// TestCuratorLatch: one leader over both, and each sees the other's participants.
func TestCuratorLatch(t *testing.T) {
	t.Parallel()
	name := fresh()
	p, watcher := curator(t, name, "latch"), curator(t, name, "latch")
	d, err := zklock.Open(t.Context(), "zookeeper://"+server.Addr+"/locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	news := make(chan driver.Signal, 10)
	ask := func(n int) driver.Place {
		t.Helper()
		r := driver.Request{Hold: driver.Hold{Kind: driver.Leader, Name: name, ID: fmt.Sprintf("0f1e2d3c-4b5a-4678-9abc-def012345678:%d", n),
			Permits: 1, TTL: time.Minute}, Value: []byte("pawl-peer"), Wait: true, Notify: func(s driver.Signal) { news <- s }}
		place, err := d.Enter(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	ours := ask(1)
	if _, err := ours.Try(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	p.say("lock")
	p.mustBlock()
	watcher.say("leader")
	watcher.want("participants pawl-peer* curator-peer")
	if err := ours.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.want("locked")
	watcher.say("leader")
	watcher.want("participants curator-peer*")
	next := ask(2)
	var held *driver.HeldError
	if _, err := next.Try(t.Context(), 1); !errors.As(err, &held) || string(held.By.Value) != "curator-peer" {
		t.Fatalf("beside Curator's leader: %v", err)
	}
	p.say("unlock")
	p.want("unlocked")
	select {
	case <-news:
	case <-time.After(patience):
		t.Fatal("not told that Curator's leader resigned")
	}
	if _, err := next.Try(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := next.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCuratorCrowd: many of both kinds at once, and never two inside.
func TestCuratorCrowd(t *testing.T) {
	t.Parallel()
	const rounds = 60
	for _, kind := range []string{"mutex", "write", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name, file := fresh(), filepath.Join(t.TempDir(), "inside")
			var peers []*peer
			for range 2 {
				peers = append(peers, curator(t, name, kind, "1"))
			}
			crowd(t, peers, file, func() pawl.Locker {
				switch c := client(t, nil); kind {
				case "write":
					return c.RWMutex(name)
				case "semaphore":
					return c.Semaphore(name, 1)
				default:
					return c.Mutex(name)
				}
			}, rounds)
		})
	}
}

func crowd(t *testing.T, peers []*peer, file string, ours func() pawl.Locker, rounds int) {
	t.Helper()
	for _, p := range peers {
		p.say(fmt.Sprintf("hammer %d %s", rounds, file))
	}
	var wg sync.WaitGroup
	for range 2 {
		l := ours()
		wg.Go(func() {
			for range rounds {
				err := l.Do(t.Context(), func(context.Context) error {
					f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
					if err != nil {
						return err
					}
					f.Close()
					return os.Remove(file)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, p := range peers {
		p.want("hammered")
	}
}

// TestCuratorHonoursAMinimumHold: what keeps the name taken after a release stands in the hold's place in line.
func TestCuratorHonoursAMinimumHold(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mutex", "write", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := fresh()
			p := curator(t, name, kind, "1")
			c := client(t, nil).With(pawl.Options{MinHold: 3 * time.Second})
			var l pawl.Locker = c.Mutex(name)
			switch kind {
			case "write":
				l = c.RWMutex(name)
			case "semaphore":
				l = c.Semaphore(name, 1)
			}
			begin := time.Now()
			lease, err := l.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.say("lock")
			p.mustBlock()
			if err := lease.Unlock(); err != nil {
				t.Fatal(err)
			}
			p.want("locked")
			if took := time.Since(begin); took < 2900*time.Millisecond {
				t.Errorf("Curator got in after %v of a minimum of 3s", took)
			}
		})
	}
}

// TestCuratorMismatch: another recipe on the path is refused, not waited for.
func TestCuratorMismatch(t *testing.T) {
	t.Parallel()
	name := fresh()
	p := curator(t, name, "semaphore", "1")
	p.say("lock")
	p.want("locked")
	c := client(t, nil)
	if _, err := c.Mutex(name).TryLock(t.Context()); !errors.Is(err, pawl.ErrMismatch) {
		t.Errorf("a mutex on Curator's semaphore: %v", err)
	}
	p.say("unlock")
	p.want("unlocked")
	lease, err := c.Mutex(name).TryLock(t.Context())
	if err != nil {
		t.Errorf("a mutex where Curator's semaphore was: %v", err)
	}
	lease.Unlock()
}

// TestStealFromCurator shows Curator's holder by its node's name, and ends it.
func TestStealFromCurator(t *testing.T) {
	t.Parallel()
	name := fresh()
	p := curator(t, name, "mutex")
	p.say("lock")
	p.want("locked")
	d, err := zklock.Open(t.Context(), "zookeeper://"+server.Addr+"/locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := d.Inspect(t.Context(), name)
	if err != nil || len(r.Holds) != 1 || !strings.HasPrefix(r.Holds[0].ID, "_c_") || r.Holds[0].Token == 0 || r.Holds[0].Since.IsZero() {
		t.Fatalf("Inspect: %+v, %v", r, err)
	}
	if err := d.Release(t.Context(), r.Holds[0].Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	lease, err := client(t, nil).Mutex(name).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lease.Unlock()
}

// TestKazoo: taught the others' names, kazoo and pawl exclude and wake each other.
func TestKazoo(t *testing.T) {
	t.Parallel()
	name := fresh()
	bothWays(t, client(t, nil).Mutex(name), kazoo(t, name, "taught"))
	p := kazoo(t, name, "taught")
	crowd(t, []*peer{p, kazoo(t, name, "taught")}, filepath.Join(t.TempDir(), "inside"), func() pawl.Locker { return client(t, nil).Mutex(name) }, 40)
}

// TestUntaughtKazoo: pawl honours a kazoo that does not honour it, and says so.
func TestUntaughtKazoo(t *testing.T) {
	t.Parallel()
	name := fresh()
	seen := make(chan zklock.Stranger, 10)
	m := client(t, &zklock.Options{OnStranger: func(s zklock.Stranger) { seen <- s }}).Mutex(name)
	p := kazoo(t, name, "default")
	p.say("lock")
	p.want("locked")
	_, err := m.TryLock(t.Context())
	var held *pawl.HeldError
	if !errors.As(err, &held) || held.Holder.Label != "kazoo-peer" {
		t.Errorf("TryLock beside an untaught kazoo: %v", err)
	}
	select {
	case s := <-seen:
		if !strings.Contains(s.Trouble, "kazoo") {
			t.Errorf("reported was %+v", s)
		}
	case <-time.After(patience):
		t.Error("the untaught kazoo was not reported")
	}
	p.say("unlock")
	p.want("unlocked")
	lease, err := m.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What nobody can help: it does not see pawl.
	p.say("lock")
	p.want("locked")
	lease.Unlock()
}
