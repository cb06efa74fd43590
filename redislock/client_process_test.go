package redislock_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

var long = flag.Bool("long", false, "let the scheduled job of several processes run for 60 s, with a kill every 10 s")

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
	"transfer": childTransfer,
	"schedule": childSchedule,
}

// child is another process. It ends when its input is closed, or when its work is done.
type child struct {
	*exec.Cmd
	in     io.WriteCloser
	output strings.Builder
}

func startChild(t *testing.T, role string, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(exe, args...)}
	c.Env = append(os.Environ(), "PAWL_TEST_CHILD="+role, "GORACE=atexit_sleep_ms=0")
	c.Stdout, c.Stderr = &c.output, &c.output
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

func childClient(url string, o pawl.Options) (*pawl.Client, error) {
	d, err := redislock.Open(context.Background(), url, nil)
	if err != nil {
		return nil, err
	}
	o.Logger = slog.New(slog.DiscardHandler)
	return pawl.New(d).With(o), nil
}

// childTransfer moves money from one account to the other, as somebody who believes to be alone with both: it reads both
// balances, and writes what it has computed.
func childTransfer(args []string) (err error) {
	url, from, to := args[0], args[1], args[2]
	rounds, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	locks, err := childClient(url, pawl.Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		return err
	}
	opt.DisableCache = true
	bank, err := rueidis.NewClient(opt)
	if err != nil {
		return err
	}
	defer bank.Close()
	for range rounds {
		err := pawl.All(locks.Mutex("lock:"+from), locks.Mutex("lock:"+to)).Do(context.Background(), func(ctx context.Context) error {
			f, err := bank.Do(ctx, bank.B().Get().Key(from).Build()).AsInt64()
			if err != nil {
				return err
			}
			t, err := bank.Do(ctx, bank.B().Get().Key(to).Build()).AsInt64()
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			if err := bank.Do(ctx, bank.B().Set().Key(from).Value(strconv.FormatInt(f-1, 10)).Build()).Error(); err != nil {
				return err
			}
			return bank.Do(ctx, bank.B().Set().Key(to).Value(strconv.FormatInt(t+1, 10)).Build()).Error()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Eight processes transfer between two accounts, half of them in each direction. All ends, and the money is there.
func TestTransferBetweenProcesses(t *testing.T) {
	t.Parallel()
	const processes, rounds, money = 8, 25, 1000
	s := redistest.Start(t)
	raw := connect(t, s)
	for _, account := range []string{"a", "b"} {
		do(t, raw, "SET", account, strconv.Itoa(money))
	}
	var all []*child
	for k := range processes {
		from, to := "a", "b"
		if k%2 == 1 {
			from, to = to, from
		}
		n := rounds
		if k == 0 {
			n++ // one more there than back, so that the balances change
		}
		all = append(all, startChild(t, "transfer", s.URL, from, to, strconv.Itoa(n)))
	}
	for k, c := range all {
		if err := c.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", k, err, &c.output)
		}
	}
	for account, want := range map[string]int64{"a": money - 1, "b": money + 1} {
		msg := do(t, raw, "GET", account)
		if got, err := msg.ToString(); err != nil || got != strconv.FormatInt(want, 10) {
			t.Errorf("account %s: got %s, %v, want %d", account, got, err, want)
		}
	}
}

// How the scheduled job of several processes is run.
const (
	jobName = "report"
	jobTTL  = 2 * time.Second
	jobWork = 300 * time.Millisecond
)

// childSchedule runs a job each second until its input ends, and writes down what happens: "begin" and "end" of each run
// with its tick, "lost" for each lease, and "stall" when the machine has kept this process from running.
func childSchedule(args []string) error {
	url := args[0]
	log, err := os.OpenFile(args[1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	note := func(what, about string) { // one write each: lines of several processes do not mix
		fmt.Fprintf(log, "%d %d %s %s\n", time.Now().UnixMilli(), os.Getpid(), what, about)
	}
	locks, err := childClient(url, pawl.Options{TTL: jobTTL, OnEvent: func(e pawl.Event) {
		if e.Op == pawl.Lost {
			note("lost", e.Name)
		}
	}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var watch sync.WaitGroup
	watch.Go(func() {
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			time.Sleep(50 * time.Millisecond)
			if late := time.Since(last); late > 250*time.Millisecond {
				note("stall", strconv.FormatInt(last.UnixMilli(), 10))
			}
		}
	})
	err = locks.Schedule(jobName, time.Second).Run(ctx, func(ctx context.Context) error {
		tick := pawl.Tick(ctx).UTC().Format(time.RFC3339Nano)
		note("begin", tick)
		select {
		case <-time.After(jobWork):
		case <-ctx.Done():
			return ctx.Err()
		}
		note("end", tick)
		return nil
	})
	watch.Wait()
	if ctx.Err() == nil {
		return fmt.Errorf("Run returned: %w", err)
	}
	return locks.Close()
}

// line is one line of the processes' log.
type line struct {
	at    time.Time
	pid   int
	what  string
	about string
}

func readLog(t *testing.T, path string) []line {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	for sc := bufio.NewScanner(strings.NewReader(string(b))); sc.Scan(); {
		var l line
		var ms int64
		if _, err := fmt.Sscan(sc.Text(), &ms, &l.pid, &l.what, &l.about); err != nil {
			t.Fatalf("%q: %v", sc.Text(), err)
		}
		l.at = time.UnixMilli(ms)
		lines = append(lines, l)
	}
	return lines
}

// running is the process that is in a run now, and its tick; 0: none.
func running(lines []line) (pid int, tick string) {
	for _, l := range lines {
		switch {
		case l.what == "begin":
			pid, tick = l.pid, l.about
		case l.what == "end" && l.pid == pid:
			pid = 0
		}
	}
	return pid, tick
}

// Three processes run a job each second, and now and then the one that is in a run is killed and replaced. No tick is run
// to its end twice, a killed run is taken over, and ticks are missed only within a TTL of a kill.
func TestScheduleOfProcesses(t *testing.T) {
	t.Parallel()
	total, every := 16*time.Second, 5*time.Second
	if *long {
		total, every = time.Minute, 10*time.Second
	}
	s := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := map[int]*child{}
	add := func() {
		c := startChild(t, "schedule", s.URL, path)
		nodes[c.Process.Pid] = c
	}
	for range 3 {
		add()
	}
	for begin := time.Now(); len(readLog(t, path)) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("no run within 30 s")
		}
	}

	type killed struct {
		at   time.Time
		pid  int
		tick string
	}
	var kills []killed
	start := time.Now()
	for next := start.Add(every); time.Since(start) < total; time.Sleep(5 * time.Millisecond) {
		if time.Now().Before(next) {
			continue
		}
		if pid, tick := running(readLog(t, path)); pid != 0 && nodes[pid] != nil {
			nodes[pid].Process.Kill()
			nodes[pid].Wait()
			kills = append(kills, killed{time.Now(), pid, tick})
			delete(nodes, pid)
			add()
			next = next.Add(every)
		}
	}
	time.Sleep(jobTTL + 2*time.Second) // for the last one to be taken over
	for pid, c := range nodes {
		c.in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", pid, err, &c.output)
		}
	}

	// What the log says.
	lines := readLog(t, path)
	ended := map[string][]line{}
	var ticks []time.Time
	type span struct{ from, to time.Time }
	var excused []span // times in which a tick may be missed
	for _, l := range lines {
		switch l.what {
		case "begin":
			tick, err := time.Parse(time.RFC3339Nano, l.about)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(ticks, tick.Equal) {
				ticks = append(ticks, tick)
			}
		case "end":
			ended[l.about] = append(ended[l.about], l)
		case "stall":
			ms, _ := strconv.ParseInt(l.about, 10, 64)
			excused = append(excused, span{time.UnixMilli(ms).Add(-time.Second), l.at.Add(jobTTL + time.Second)})
		case "lost":
			t.Logf("process %d lost %s", l.pid, l.about)
		}
	}
	doubtful := func(tick string, l line) bool { // ended, but the record may not have come through
		return slices.ContainsFunc(kills, func(k killed) bool { return k.pid == l.pid && k.tick == tick }) ||
			slices.ContainsFunc(lines, func(o line) bool {
				return o.what == "lost" && o.pid == l.pid && (o.about == jobName+"@"+tick || o.about == jobName)
			})
	}
	for tick, ls := range ended {
		sure := 0
		for _, l := range ls {
			if !doubtful(tick, l) {
				sure++
			}
		}
		if sure > 1 {
			t.Errorf("the tick %s was run %d times: %v", tick, sure, ls)
		}
	}
	for _, k := range kills {
		excused = append(excused, span{k.at.Add(-time.Second), k.at.Add(jobTTL + time.Second)})
		if len(ended[k.tick]) == 0 {
			t.Errorf("the tick %s of process %d, which was killed in it, was not taken over", k.tick, k.pid)
		}
	}
	slices.SortFunc(ticks, time.Time.Compare)
	missed := 0
	for tick := ticks[0]; tick.Before(ticks[len(ticks)-1]); tick = tick.Add(time.Second) {
		if slices.ContainsFunc(ticks, tick.Equal) {
			continue
		}
		missed++
		if !slices.ContainsFunc(excused, func(s span) bool { return s.from.Before(tick) && tick.Before(s.to) }) {
			t.Errorf("the tick %v was missed, and nobody was killed at that time (%v)", tick, kills)
		}
	}
	if want := int(total/every) - 1; len(kills) < want {
		t.Errorf("%d kills in %v, want %d", len(kills), total, want)
	}
	t.Logf("%d ticks run, %d missed, %d kills, %d spans excused", len(ended), missed, len(kills), len(excused))
}
