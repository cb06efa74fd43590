package cronlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cronlock"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// Three nodes of robfig/cron run a job each second over a real Redis: every tick is run once.
func TestRobfig(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	plan := cronlock.Every(time.Second)
	var mu sync.Mutex
	ticks, ran := map[string]int{}, 0
	var nodes []*cron.Cron
	for range 3 {
		d, err := redislock.Open(t.Context(), s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		locks := pawl.New(d)
		defer locks.Close()
		job := cronlock.Job{Name: "report", Plan: plan, OnError: func(err error) { t.Error(err) },
			Locks: locks.With(pawl.Options{OnEvent: func(e pawl.Event) {
				if _, tick, ok := strings.Cut(e.Name, "@"); ok && e.Op == pawl.Acquired {
					mu.Lock()
					defer mu.Unlock()
					ticks[tick]++
				}
			}})}
		c := cron.New()
		c.Schedule(plan, cron.NewChain(job.Wrap()).Then(cron.FuncJob(func() {
			mu.Lock()
			defer mu.Unlock()
			ran++
		})))
		c.Start()
		nodes = append(nodes, c)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		enough := ran >= 4
		mu.Unlock()
		if enough {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("no four runs within a minute")
		}
	}
	for _, c := range nodes {
		<-c.Stop().Done()
	}
	time.Sleep(100 * time.Millisecond) // for the events
	mu.Lock()
	defer mu.Unlock()
	for tick, n := range ticks {
		if n != 1 {
			t.Errorf("the tick %s was taken %d times", tick, n)
		}
	}
	if ran > len(ticks) {
		t.Errorf("%d runs of %d ticks", ran, len(ticks))
	}
	t.Logf("%d runs of %d ticks", ran, len(ticks))
}

// robfig/cron with its own expressions; each tick is run by one of the nodes that have this program.
func ExampleJob_Wrap() {
	locks := pawl.New(memlock.New()) // or redislock, zklock, etcdlock, sqllock …
	defer locks.Close()
	plan, err := cronlock.Parse("CRON_TZ=Europe/Berlin 30 3 * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	report := cronlock.Job{Locks: locks, Name: "report", Plan: plan}
	chain := cron.NewChain(cron.Recover(cron.DefaultLogger), report.Wrap())

	c := cron.New()
	id := c.Schedule(plan, chain.Then(cron.FuncJob(func() { fmt.Println("reporting") })))
	c.Start()
	defer c.Stop()

	entry := c.Entry(id)
	entry.WrappedJob.Run() // as when it is due
	entry.WrappedJob.Run() // as on another node: the tick has been run
	// Output: reporting
}

// Without a cron library: pawl's Schedule takes the same expressions.
func ExampleParse() {
	plan, err := cronlock.Parse("*/15 * * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := pawl.New(memlock.New())
	defer locks.Close()
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	err = locks.ScheduleOn("quarters", plan).Run(ctx, func(ctx context.Context) error {
		fmt.Println("the quarter of", pawl.Tick(ctx))
		return nil
	})
	fmt.Println(err)
	fmt.Println(plan.Next(time.Date(2026, 3, 1, 8, 20, 0, 0, time.UTC)).Format("15:04"))
	// Output:
	// context deadline exceeded
	// 08:30
}
