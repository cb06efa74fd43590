// Package peers tests pawl beside the other clients that lock with the same keys: etcd's own package concurrency and the
// command etcdctl lock.
package peers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

const (
	short    = 150 * time.Millisecond // long enough to show that somebody is blocked
	patience = 20 * time.Second       // generous: the machine may be busy
)

// locker is a client of any kind at one name.
type locker struct {
	what   string
	lock   func(t testing.TB) (token int64)
	unlock func(t testing.TB)
}

func pawlLocker(t testing.TB, c *etcdtest.Cluster, name string, opts *etcdlock.Options) *locker {
	d := etcdlock.New(c.Client(), opts)
	locks := pawl.New(d)
	t.Cleanup(func() { locks.Close(); d.Close() })
	var l *pawl.Lease
	return &locker{"pawl",
		func(t testing.TB) int64 {
			var err error
			if l, err = locks.Mutex(name).Lock(context.Background()); err != nil {
				t.Error(err)
			}
			return l.Token()
		},
		func(t testing.TB) {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}}
}

// mutexLocker is concurrency.Mutex; its token is its header's revision, which etcdctl exports too.
func mutexLocker(t testing.TB, c *etcdtest.Cluster, name string) *locker {
	s, err := concurrency.NewSession(c.Client(), concurrency.WithTTL(10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m := concurrency.NewMutex(s, name)
	return &locker{"concurrency.Mutex",
		func(t testing.TB) int64 {
			if err := m.Lock(context.Background()); err != nil {
				t.Error(err)
				return 0
			}
			return m.Header().Revision
		},
		func(t testing.TB) {
			if err := m.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		}}
}

// ctlLocker is the command etcdctl lock, with a child that prints its revision and runs until a pipe is written to.
func ctlLocker(t testing.TB, c *etcdtest.Cluster, name string) *locker {
	bin, err := etcdtest.Etcdctl()
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "end")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	return &locker{"etcdctl lock",
		func(t testing.TB) int64 {
			ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
			t.Cleanup(cancel)
			cmd = exec.CommandContext(ctx, bin, "--endpoints", c.Members[0].Addr, "lock", name, "--", "sh", "-c", `echo "$ETCD_LOCK_REV"; read line <"$END"`)
			cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3", "END="+pipe)
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return 0
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			rev, err2 := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			if err != nil || err2 != nil {
				t.Errorf("etcdctl lock printed %q: %v", line, err)
			}
			return rev
		},
		func(t testing.TB) {
			f, err := os.OpenFile(pipe, os.O_RDWR, 0) // which waits for no reader
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			fmt.Fprintln(f)
			cmd.Wait() // etcdctl 3.4 answers the child's status in its own way
		}}
}

// Each client blocks each other one, and is woken by its release.
func TestBlockAndWake(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	all := func(name string) []*locker {
		return []*locker{pawlLocker(t, c, name, nil), mutexLocker(t, c, name), ctlLocker(t, c, name)}
	}
	for _, pair := range [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}} {
		name := fmt.Sprintf("block/%d-%d", pair[0], pair[1])
		ls := all(name)
		a, b := ls[pair[0]], ls[pair[1]]
		t.Run(a.what+" before "+b.what, func(t *testing.T) {
			a.lock(t)
			got := make(chan struct{})
			go func() {
				b.lock(t)
				close(got)
			}()
			select {
			case <-got:
				t.Fatalf("%s got the name that %s holds", b.what, a.what)
			case <-time.After(short):
			}
			waitQueued(t, c, name, 2)
			select {
			case <-got:
				t.Fatalf("%s got the name that %s holds", b.what, a.what)
			case <-time.After(short):
			}
			a.unlock(t)
			select {
			case <-got:
			case <-time.After(patience):
				t.Fatalf("%s was not woken by the release of %s", b.what, a.what)
			}
			b.unlock(t)
		})
	}
}

// waitQueued waits until n contenders are at a name.
func waitQueued(t testing.TB, c *etcdtest.Cluster, name string, n int) {
	t.Helper()
	cli := c.Client()
	defer cli.Close()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r, err := cli.Get(context.Background(), name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if r.Count >= int64(n) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d contenders are at %q, not %d", r.Count, name, n)
		}
	}
}

// A mixed line is served by age, one at a time, and with PeerToken all tokens rise.
func TestLineAndTokens(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	noise := c.Client()
	peer := &etcdlock.Options{PeerToken: true}
	for _, opts := range []*etcdlock.Options{nil, peer} {
		name := "line"
		if opts != nil {
			name = "line with PeerToken"
		}
		t.Run(name, func(t *testing.T) {
			line := []*locker{mutexLocker(t, c, name), pawlLocker(t, c, name, opts), ctlLocker(t, c, name), pawlLocker(t, c, name, opts),
				mutexLocker(t, c, name), ctlLocker(t, c, name), pawlLocker(t, c, name, opts), mutexLocker(t, c, name)}
			type turn struct {
				i     int
				token int64
			}
			turns := make(chan turn, len(line))
			for i, l := range line {
				go func() { turns <- turn{i, l.lock(t)} }()
				waitQueued(t, c, name, i+1)
				for range 3 { // revisions that have nothing to do with the lock
					if _, err := noise.Put(context.Background(), "noise", ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			last := map[string]int64{}
			for i := range line {
				var got turn
				select {
				case got = <-turns:
				case <-time.After(patience):
					t.Fatalf("number %d of the line got no turn", i)
				}
				if got.i != i {
					t.Fatalf("number %d of the line (%s) got its turn before number %d", got.i, line[got.i].what, i)
				}
				select {
				case other := <-turns:
					t.Fatalf("number %d holds the name beside number %d", other.i, i)
				case <-time.After(short / 3):
				}
				// pawl's own tokens are a numbering of their own.
				numbering := "peers"
				if opts == nil && line[i].what == "pawl" {
					numbering = "pawl"
				}
				if got.token <= last[numbering] {
					t.Errorf("the token of number %d (%s) is %d, after %d", i, line[i].what, got.token, last[numbering])
				}
				last[numbering] = got.token
				line[i].unlock(t)
			}
		})
	}
}

// The key of a mutex is exactly that of concurrency.NewMutex under pawl's session.
func TestKey(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	cli := c.Client()
	l := pawlLocker(t, c, "orders/4711", nil)
	token := l.lock(t)
	r, err := cli.Get(t.Context(), "orders/4711/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%d keys, %v", len(r.Kvs), err)
	}
	kv := r.Kvs[0]
	if want := fmt.Sprintf("orders/4711/%x", kv.Lease); string(kv.Key) != want || kv.Lease == 0 {
		t.Errorf("the key is %q with lease %x, right would be %q", kv.Key, kv.Lease, want)
	}
	if token != kv.CreateRevision<<8 {
		t.Errorf("the token is %d, the create revision %d", token, kv.CreateRevision)
	}
	l.unlock(t)
}

// The names "a" and "a/b" have nothing to do with each other for pawl, while concurrency.Mutex of "a" waits for all of "a/".
func TestNested(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	outer, inner := pawlLocker(t, c, "a", nil), pawlLocker(t, c, "a/b", nil)
	deep, foreign := pawlLocker(t, c, "a/1f/2e", nil), mutexLocker(t, c, "a/c")
	for _, l := range []*locker{inner, deep, foreign, outer} {
		within(t, l.what, func() { l.lock(t) })
	}
	for _, l := range []*locker{inner, deep, foreign, outer} {
		l.unlock(t)
	}
}

func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s is blocked", what)
	}
}

// A foreign contender is shown, and can be ended from what is shown.
func TestInspectAndSteal(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	d := suite.Open(t, c.URL, nil)
	m := mutexLocker(t, c, "shown")
	m.lock(t)
	waiter := mutexLocker(t, c, "shown")
	got := make(chan struct{})
	go func() { waiter.lock(t); close(got) }()
	waitQueued(t, c, "shown", 2)
	r, err := d.Inspect(t.Context(), "shown")
	if err != nil || len(r.Holds) != 1 || r.Waiters != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	h := r.Holds[0]
	if h.Kind != driver.Exclusive || h.Token != 0 || h.Remaining <= 0 || h.Remaining > 11*time.Second {
		t.Errorf("shown is %+v", h)
	}
	if err := d.Release(t.Context(), h.Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(patience):
		t.Fatal("the next one was not let in")
	}
	if err := d.Release(t.Context(), h.Hold, driver.End{}); err != driver.ErrNotHeld {
		t.Errorf("ending it again: %v", err)
	}
	found := false
	for r, err := range d.List(t.Context(), "sh") {
		if err != nil {
			t.Fatal(err)
		}
		found = found || r.Name == "shown" && len(r.Holds) == 1
	}
	if !found {
		t.Error("the foreign lock is not listed")
	}
}

// Readers, writers and permits exclude a foreign mutex of the same name, both ways.
func TestOtherKinds(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	d := etcdlock.New(c.Client(), nil)
	locks := pawl.New(d)
	t.Cleanup(func() { locks.Close(); d.Close() })
	kinds := map[string]func(name string) pawl.Locker{
		"read":    func(name string) pawl.Locker { return locks.RWMutex(name).RLocker() },
		"write":   func(name string) pawl.Locker { return locks.RWMutex(name) },
		"permits": func(name string) pawl.Locker { return locks.Semaphore(name, 3) },
	}
	for what, of := range kinds {
		t.Run(what, func(t *testing.T) {
			name := "kind " + what
			m := mutexLocker(t, c, name)
			m.lock(t)
			if _, err := of(name).TryLock(t.Context()); err == nil {
				t.Fatal("taken beside a foreign mutex")
			}
			m.unlock(t)
			l, err := of(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan struct{})
			go func() { m.lock(t); close(got) }()
			waitQueued(t, c, name, 2)
			select {
			case <-got:
				t.Fatal("a foreign mutex was taken beside it")
			case <-time.After(short):
			}
			l.Unlock()
			select {
			case <-got:
			case <-time.After(patience):
				t.Fatal("the foreign mutex was not woken")
			}
			m.unlock(t)
		})
	}
}

// Elections: pawl and concurrency.Election lead by turns, and each sees the other's leader and value.
func TestElection(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	d := etcdlock.New(c.Client(), &etcdlock.Options{PeerToken: true})
	t.Cleanup(func() { d.Close() })
	s, err := concurrency.NewSession(c.Client(), concurrency.WithTTL(10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e := concurrency.NewElection(s, "leader")
	told := make(chan struct{}, 16)
	r := driver.Request{Hold: driver.Hold{Kind: driver.Leader, Name: "leader", ID: "11111111-2222-4333-8444-555555555555:1", Permits: 1, TTL: 10 * time.Second},
		Wait: true, Value: []byte("pawl leads"), Notify: func(driver.Signal) {
			select {
			case told <- struct{}{}:
			default:
			}
		}}
	if err := e.Campaign(t.Context(), "a peer leads"); err != nil {
		t.Fatal(err)
	}
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Try(t.Context(), 1); err == nil {
		t.Fatal("pawl leads beside the peer")
	}
	rec, err := d.Inspect(t.Context(), "leader")
	if err != nil || len(rec.Holds) != 1 {
		t.Fatalf("%+v, %v", rec, err)
	}
	first := e.Rev()
	if err := e.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	var g driver.Grant
	for end := time.Now().Add(patience); ; {
		if g, err = p.Try(t.Context(), 1); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("pawl does not lead: %v", err)
		}
		select {
		case <-told:
		case <-time.After(time.Second):
		}
	}
	if g.Token <= first {
		t.Errorf("pawl's term is %d, the one before was %d", g.Token, first)
	}
	resp, err := e.Leader(t.Context())
	if err != nil || string(resp.Kvs[0].Value) != "pawl leads" || resp.Kvs[0].CreateRevision != g.Token {
		t.Fatalf("the peer sees %+v, %v", resp, err)
	}
	led := make(chan error, 1)
	go func() { led <- e.Campaign(context.Background(), "a peer leads again") }()
	waitQueued(t, c, "leader", 2)
	r.Hold.Token = g.Token
	if err := d.Release(t.Context(), r.Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-led:
		if err != nil || e.Rev() <= g.Token {
			t.Errorf("the peer's term is %d after %d, %v", e.Rev(), g.Token, err)
		}
	case <-time.After(patience):
		t.Fatal("the peer does not lead")
	}
}

// Processes of all kinds that take turns never meet.
func TestNeverBoth(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	const name = "mixed"
	ls := []*locker{pawlLocker(t, c, name, nil), pawlLocker(t, c, name, nil), mutexLocker(t, c, name), mutexLocker(t, c, name), ctlLocker(t, c, name)}
	var mu sync.Mutex
	inside := ""
	var wg sync.WaitGroup
	var order []string
	for i, l := range ls {
		rounds := 25
		if l.what == "etcdctl lock" {
			rounds = 4 // it makes a session each time
		}
		wg.Go(func() {
			for range rounds {
				l.lock(t)
				mu.Lock()
				if inside != "" {
					t.Errorf("%s %d is inside beside %s", l.what, i, inside)
				}
				inside = fmt.Sprint(l.what, " ", i)
				order = append(order, l.what)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				inside = ""
				mu.Unlock()
				l.unlock(t)
			}
		})
	}
	wg.Wait()
	if slices.Index(order, "concurrency.Mutex") < 0 || slices.Index(order, "etcdctl lock") < 0 {
		t.Error("some got no turn")
	}
}

// A waiting etcdctl that is interrupted leaves the line, and pawl behind it gets in.
func TestInterrupted(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	bin, err := etcdtest.Etcdctl()
	if err != nil {
		t.Fatal(err)
	}
	a, b := pawlLocker(t, c, "signal", nil), pawlLocker(t, c, "signal", nil)
	a.lock(t)
	cmd := exec.Command(bin, "--endpoints", c.Members[0].Addr, "lock", "signal")
	cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitQueued(t, c, "signal", 2)
	got := make(chan struct{})
	go func() { b.lock(t); close(got) }()
	waitQueued(t, c, "signal", 3)
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	select {
	case <-got:
		t.Fatal("the name is held")
	case <-time.After(short):
	}
	a.unlock(t)
	select {
	case <-got:
	case <-time.After(patience):
		t.Fatal("the one behind was not let in")
	}
	b.unlock(t)
}
