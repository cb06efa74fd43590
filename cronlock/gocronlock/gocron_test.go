package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cronlock"
	"github.com/pawl-lock/pawl/cronlock/gocronlock"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func client(t *testing.T, url string, o pawl.Options) *pawl.Client {
	t.Helper()
	d, err := redislock.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := pawl.New(d)
	t.Cleanup(func() { c.Close() })
	return c.With(o)
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// counts is what happened, under a mutex.
type counts struct {
	mu    sync.Mutex
	ticks map[string]int // taken
	runs  map[int]int    // by scheduler
	in    int            // jobs that run now
	twice bool           // two at once
}

func (c *counts) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.runs {
		n += k
	}
	return n
}

// Three schedulers, started at different moments of the second, have a job that is over at once (go-co-op/gocron#841), by period and
// by cron expression: no tick is run twice.
func TestLocker(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, def := range map[string]func() gocron.JobDefinition{ // a definition is for one scheduler
		"duration": func() gocron.JobDefinition { return gocron.DurationJob(time.Second) },
		"cron":     func() gocron.JobDefinition { return gocron.CronJob("* * * * * *", true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &counts{ticks: map[string]int{}, runs: map[int]int{}}
			for k := range 3 {
				locks := client(t, s.URL, pawl.Options{OnEvent: func(e pawl.Event) {
					if _, tick, ok := strings.Cut(e.Name, "@"); ok && e.Op == pawl.Acquired {
						c.mu.Lock()
						defer c.mu.Unlock()
						c.ticks[tick]++
					}
				}})
				locker := &gocronlock.Locker{Locks: locks, Plan: func(job string) pawl.Plan {
					if job != name {
						t.Errorf("a job %q", job)
					}
					return cronlock.Every(time.Second)
				}}
				sched, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sched.Shutdown() })
				_, err = sched.NewJob(def(), gocron.NewTask(func() {
					c.mu.Lock()
					c.runs[k]++
					c.in++
					c.twice = c.twice || c.in > 1
					c.mu.Unlock()
					time.Sleep(time.Millisecond)
					c.mu.Lock()
					c.in--
					c.mu.Unlock()
				}), gocron.WithName(name))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(200 * time.Millisecond)
				sched.Start()
			}
			within(t, "four runs", func() bool { return c.total() >= 4 })
			time.Sleep(100 * time.Millisecond) // for the events
			c.mu.Lock()
			defer c.mu.Unlock()
			for tick, n := range c.ticks {
				if n != 1 {
					t.Errorf("the tick %s was taken %d times", tick, n)
				}
			}
			runs := 0
			for _, n := range c.runs {
				runs += n
			}
			if runs > len(c.ticks) || c.twice {
				t.Errorf("%d runs of %d ticks, two at once: %v", runs, len(c.ticks), c.twice)
			}
			t.Logf("%d runs of %d ticks by %v", runs, len(c.ticks), c.runs)
		})
	}
}

// Without a plan the name stays taken for MinHold.
func TestLockerWithoutPlan(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a := &gocronlock.Locker{Locks: client(t, s.URL, pawl.Options{}), MinHold: time.Second}
	b := &gocronlock.Locker{Locks: client(t, s.URL, pawl.Options{})}
	begin := time.Now()
	l, err := a.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lock(t.Context(), "job"); !errors.Is(err, pawl.ErrHeld) && time.Since(begin) < time.Second {
		t.Errorf("within MinHold: got %v, want ErrHeld", err)
	}
	within(t, "the name is free again", func() bool {
		l, err := b.Lock(t.Context(), "job")
		return err == nil && l.Unlock(t.Context()) == nil
	})
	if d := time.Since(begin); d < time.Second-10*time.Millisecond {
		t.Errorf("it was free after %v", d)
	}
}

// Of three schedulers the one that leads runs all jobs; when it goes, another one does.
func TestElector(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := &counts{runs: map[int]int{}}
	var stops []func()
	var electors []*gocronlock.Elector
	for k := range 3 {
		locks := client(t, s.URL, pawl.Options{})
		e := gocronlock.NewElector(locks, "schedulers", fmt.Sprint("node ", k))
		electors = append(electors, e)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		sched, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sched.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.runs[k]++
		})); err != nil {
			t.Fatal(err)
		}
		sched.Start()
		stops = append(stops, sync.OnceFunc(func() {
			if err := sched.Shutdown(); err != nil {
				t.Error(err)
			}
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run: got %v, want context.Canceled", err)
			}
			if err := e.IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrNotLeader) {
				t.Errorf("after Run: got %v, want ErrNotLeader", err)
			}
		}))
		defer func() { stops[k]() }()
	}
	leader := func() (who int) {
		who = -1
		for k, e := range electors {
			if e.IsLeader(t.Context()) == nil {
				if who >= 0 {
					t.Errorf("%d and %d lead", who, k)
				}
				who = k
			}
		}
		return who
	}
	within(t, "ten runs", func() bool { return c.total() >= 10 })
	first := leader()
	c.mu.Lock()
	if first < 0 || len(c.runs) != 1 || c.runs[first] == 0 {
		t.Errorf("%d leads, and the runs are %v", first, c.runs)
	}
	c.mu.Unlock()
	stops[first]()
	c.mu.Lock()
	had := c.runs[first]
	c.mu.Unlock()
	within(t, "another one runs", func() bool { return c.total() >= had+5 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[first] != had || len(c.runs) != 2 {
		t.Errorf("%d has left, and the runs are %v", first, c.runs)
	}
}

// gocron with each tick on one of the nodes that have this program.
func ExampleLocker() {
	locks := pawl.New(memlock.New()) // or redislock, zklock, etcdlock, sqllock …
	defer locks.Close()
	hourly, err := cronlock.Parse("0 * * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	locker := &gocronlock.Locker{Locks: locks, Plan: func(job string) pawl.Plan {
		return map[string]pawl.Plan{"report": hourly}[job]
	}}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown()
	ran, skipped := make(chan bool), make(chan error, 1)
	j, err := s.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(func() { ran <- true }), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })))
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	j.RunNow() // as when it is due
	fmt.Println("ran:", <-ran)
	j.RunNow() // as on another node: the tick has been run
	fmt.Println("skipped:", errors.Is(<-skipped, pawl.ErrHeld))
	// Output:
	// ran: true
	// skipped: true
}
