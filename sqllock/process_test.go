package sqllock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// The test binary is also the program of the other processes: PAWL_TEST_CHILD names what it does, its arguments follow.
func TestMain(m *testing.M) {
	role := os.Getenv("PAWL_TEST_CHILD")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := children[role](os.Args[1:]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

var children = map[string]func(args []string) error{
	"hold":  childHold,
	"count": childCount,
	"pass":  childPass,
	"cycle": childCycle,
	"open":  childOpen,
	"crowd": childCrowd,
}

type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t testing.TB, role string, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startChildAs(t, exec.Command(exe, args...), role)
}

func startChildAs(t testing.TB, cmd *exec.Cmd, role string) *child {
	t.Helper()
	c := &child{Cmd: cmd}
	c.Env = append(os.Environ(), "PAWL_TEST_CHILD="+role)
	c.Stderr = os.Stderr
	var err error
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

func (c *child) line(t testing.TB) string {
	t.Helper()
	silent := time.AfterFunc(2*soon, func() { c.Process.Kill() })
	defer silent.Stop()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child process ended, or said nothing for %v: %v", 2*soon, err)
	}
	return strings.TrimSpace(line)
}

// childHold takes a name, says so with its token, and holds it until it is killed.
func childHold(args []string) error {
	ctx := context.Background()
	file, name := args[0], args[1]
	ttl, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	d, err := sqllock.Open(ctx, "sqlite://"+file, nil)
	if err != nil {
		return err
	}
	a, err := ask(ctx, d, name, ttl, true)
	if err != nil {
		return err
	}
	if err := a.get(ctx); err != nil {
		return err
	}
	fmt.Println(a.Token)
	for {
		time.Sleep(ttl / 4)
		if err := d.Renew(ctx, []driver.Hold{a.Hold})[0]; err != nil {
			return err
		}
	}
}

// A holder that was killed leaves its name to the next within its TTL, and not before.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	const ttl = 2 * time.Second
	c := startChild(t, "hold", file, "job", ttl.String())
	token, err := strconv.ParseInt(c.line(t), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	a := mustAsk(t, d, "job", ttl)
	time.Sleep(ttl + ttl/2) // the child renews
	mustBeHeld(t, d, "job")
	killed := time.Now()
	c.Process.Kill()
	if err := a.get(within(t, ttl+soon)); err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	took := time.Since(killed)
	t.Logf("taken %v after the kill (TTL %v)", took, ttl)
	if a.Token <= token {
		t.Errorf("token %d follows %d", a.Token, token)
	}
	if took > ttl+soon/2 {
		t.Errorf("taken %v after the kill, the TTL is %v", took, ttl)
	}
}

// childCount adds to a number in a file, which nothing but the lock protects, from several goroutines.
func childCount(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	file, counter := args[0], args[1]
	goroutines, _ := strconv.Atoi(args[2])
	rounds, _ := strconv.Atoi(args[3])
	d, err := sqllock.Open(ctx, "sqlite://"+file, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range rounds {
				if errs[g] = countOnce(ctx, d, counter); errs[g] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func countOnce(ctx context.Context, d driver.Driver, counter string) error {
	a, err := ask(ctx, d, "counter", 20*time.Second, true)
	if err != nil {
		return err
	}
	if err := a.get(ctx); err != nil {
		return err
	}
	// Three ways to notice company: the folder exists, a token is not larger than the last one, an addition is lost.
	if err := os.Mkdir(counter+".inside", 0o700); err != nil {
		return fmt.Errorf("two holders at once: %w", err)
	}
	b, err := os.ReadFile(counter)
	if err != nil {
		return err
	}
	var n, token int64
	if _, err := fmt.Sscan(string(b), &n, &token); err != nil {
		return err
	}
	if a.Token <= token {
		return fmt.Errorf("token %d follows %d", a.Token, token)
	}
	if err := os.WriteFile(counter, fmt.Append(nil, n+1, " ", a.Token), 0o600); err != nil {
		return err
	}
	if err := os.Remove(counter + ".inside"); err != nil {
		return err
	}
	return d.Release(ctx, a.Hold, driver.End{})
}

// Processes and goroutines exclude one another: the counter outside of the database is exact.
func TestProcessesExclude(t *testing.T) {
	t.Parallel()
	const processes, goroutines, rounds = 3, 4, 25
	file := newFile(t)
	counter := filepath.Join(filepath.Dir(file), "counter")
	if err := os.WriteFile(counter, []byte("0 0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []*child
	begun := time.Now()
	for range processes {
		all = append(all, startChild(t, "count", file, counter, strconv.Itoa(goroutines), strconv.Itoa(rounds)))
	}
	for _, c := range all {
		out, _ := io.ReadAll(c.out)
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	b, err := os.ReadFile(counter)
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ := strings.Cut(string(b), " ")
	if want := strconv.Itoa(processes * goroutines * rounds); n != want {
		t.Errorf("the counter is %s after %s additions under the lock", n, want)
	}
	t.Logf("%s cycles in %v", n, time.Since(begun))
}

// childPass waits for a name whenever it is told to, says when it got it, and gives it back.
func childPass(args []string) error {
	ctx := context.Background()
	d, err := sqllock.Open(ctx, "sqlite://"+args[0], nil)
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		a, err := ask(ctx, d, "pass", time.Minute, true)
		if err != nil {
			return err
		}
		if _, err := a.place.Try(ctx, 1); err == nil {
			return fmt.Errorf("the name should have been held")
		}
		fmt.Println("waits")
		if err := a.get2(ctx); err != nil {
			return err
		}
		fmt.Println(int64(driver.Now()))
		if err := d.Release(ctx, a.Hold, driver.End{}); err != nil {
			return err
		}
	}
	return nil
}

// get2 is get after a first refusal.
func (a *asker) get2(ctx context.Context) error {
	<-a.news
	return a.get(ctx)
}

// BenchmarkHandover measures the time from before a Release in one process to the grant in another one that waits.
func BenchmarkHandover(b *testing.B) {
	file := newFile(b)
	d := open(b, file)
	c := startChild(b, "pass", file)
	var all []time.Duration
	for b.Loop() {
		a := mustGet(b, d, "pass", time.Minute)
		fmt.Fprintln(c.in)
		if got := c.line(b); got != "waits" {
			b.Fatal(got)
		}
		time.Sleep(3 * time.Millisecond)
		released := driver.Now()
		mustRelease(b, d, a)
		at, err := strconv.ParseInt(c.line(b), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, driver.Instant(at).Sub(released))
		for { // until the child has released
			if r, err := d.Inspect(context.Background(), "pass"); err != nil {
				b.Fatal(err)
			} else if len(r.Holds) == 0 {
				break
			}
		}
	}
	reportQuantiles(b, all)
}
