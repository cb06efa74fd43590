package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// brokenClient can be reached, and then fails.
const brokenClient = "broken"

// TestMain lets the test binary be a worker.
func TestMain(m *testing.M) {
	openers[brokenClient] = func(ctx context.Context, url string, c bench.Case) (*bench.Session, error) {
		if c.Name == "reach" {
			return openPolling(ctx, url, c)
		}
		return nil, errors.New("it is broken")
	}
	if slices.Contains(os.Args, "-"+workerFlag) {
		bench.Worker(os.Stdin, os.Stdout, openers)
		return
	}
	os.Exit(m.Run())
}

func testPlan(t *testing.T) *bench.Plan {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &bench.Plan{Openers: openers, Rounds: 1, For: 200 * time.Millisecond, Warmup: 50 * time.Millisecond, Timeout: 30 * time.Second,
		Worker: []string{self, "-" + workerFlag}, Note: func(text string) { t.Log(text) }}
}

// TestClientsExclude: what is measured beside pawl are locks, between two processes' sessions and within one.
func TestClientsExclude(t *testing.T) {
	s := &stage{}
	t.Cleanup(s.close) // when the parallel tests have ended
	for _, st := range s.launch([]string{"redis", "etcd", "zk", "mysql", "postgres", "sqlite"}, func(text string) { t.Log(text) }) {
		for _, target := range targets(st, nil) {
			if target.Client == limit {
				continue
			}
			t.Run(st.kind+"/"+target.Client, func(t *testing.T) {
				t.Parallel()
				ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
				defer stop()
				c := bench.Case{Kind: bench.Handover, Goroutines: 4, Processes: 1}
				a, err := openers[target.Client](ctx, target.URL, c)
				if err != nil {
					t.Fatal(err)
				}
				b, err := openers[target.Client](ctx, target.URL, c)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				defer a.Close()
				key := "exclude:" + target.Client
				held, err := a.Lock(ctx, key)
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 2)
				for _, s := range []*bench.Session{a, b} {
					go func() {
						u, err := s.Lock(ctx, key)
						got <- err
						if err == nil {
							u.Unlock()
						}
					}()
				}
				select {
				case err := <-got:
					t.Fatalf("a lock that is held was given to another one (%v)", err)
				case <-time.After(300 * time.Millisecond):
				}
				if err := held.Unlock(); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := <-got; err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestFailuresAreShown: a client that fails and a server that is not there have a result that says so, and the others go on.
func TestFailuresAreShown(t *testing.T) {
	s := &stage{}
	defer s.close()
	p := testPlan(t)
	st := s.launch([]string{"redis"}, func(string) {})
	if len(st) != 1 {
		t.Fatal("no Redis")
	}
	p.Targets = targets(st[0], []string{"pawl", "SET NX PX, every 10 ms"})
	nobody := p.Targets[1]
	nobody.URL, nobody.Count, nobody.Backend = "redis://127.0.0.1:1", []string{"redis://127.0.0.1:1"}, "nobody"
	broken := p.Targets[1]
	broken.Client, broken.Backend = brokenClient, "redis"
	p.Targets = append(p.Targets, nobody, broken)
	for _, c := range bench.Cases() {
		if c.Name == "hot-4" || c.Name == "linger" {
			p.Cases = append(p.Cases, c)
		}
	}
	rs, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{"pawl", "SET NX PX, every 10 ms"} {
		if r := bench.Find(rs, "hot-4", "redis", client); r == nil || r.Rounds != 1 || r.Error != "" || *r.CyclesPerS <= 0 {
			t.Errorf("%s: %+v", client, r)
		}
	}
	if r := bench.Find(rs, "hot-4", "nobody", nobody.Client); r == nil || r.Error == "" || r.Rounds != 0 {
		t.Errorf("a server that is not there: %+v", r)
	}
	if r := bench.Find(rs, "hot-4", "redis", brokenClient); r == nil || !strings.Contains(r.Error, "broken") || r.Rounds != 0 {
		t.Errorf("a client that fails: %+v", r)
	}
	pawl := bench.Find(rs, "hot-4", "redis", "pawl")
	if *pawl.CommandsPerCycle > 0.5 || *pawl.Jain <= 0 || *pawl.Jain > 1 {
		t.Errorf("pawl on a hot key: %.3f commands a cycle, Jain %.3f", *pawl.CommandsPerCycle, *pawl.Jain)
	}
	if r := bench.Find(rs, "linger", "redis", "SET NX PX, every 10 ms"); r != nil {
		t.Errorf("a case that is not for a client: %+v", r)
	}
}

// TestProfiles: each client has its profiles, whatever it is called.
func TestProfiles(t *testing.T) {
	s := &stage{}
	defer s.close()
	p := testPlan(t)
	p.Profile = t.TempDir()
	p.Note = func(text string) { t.Error(text) }
	st := s.launch([]string{"redis"}, func(string) {})
	if len(st) != 1 {
		t.Fatal("no Redis")
	}
	p.Targets = targets(st[0], []string{"bsm/redislock"})
	p.Cases = []bench.Case{{Name: "cycle", Kind: bench.Cycles, Goroutines: 1, Processes: 1, Own: true}}
	if _, err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"cpu", "allocs", "block", "mutex"} {
		if i, err := os.Stat(filepath.Join(p.Profile, "cycle.redis.bsm-redislock."+kind)); err != nil || i.Size() == 0 {
			t.Errorf("no profile %s: %v", kind, err)
		}
	}
}

// TestGoalsAreMeasured: each goal is about something that the program of its store measures.
func TestGoalsAreMeasured(t *testing.T) {
	var rs []bench.Result
	one := func() *float64 { x := 1.0; return &x }
	for _, pr := range programs {
		for _, name := range append(slices.Clone(pr.cases), pr.once...) {
			if !slices.ContainsFunc(bench.Cases(), func(c bench.Case) bool { return c.Name == name }) {
				t.Errorf("%s: no case is called %q", pr.kind, name)
			}
			for _, target := range targets(&store{kind: pr.kind, hosts: []string{"h"}}, nil) {
				if slices.Contains(target.Skip, name) {
					continue
				}
				r := bench.Result{Case: name, Backend: pr.kind, Client: target.Client, Rounds: 1,
					CyclesPerS: one(), P50: one(), P99: one(), Max: one(), Mean: one(), CommandsPerCycle: one(), Jain: one(), Starved: one(),
					LowestShare: one(), HighestShare: one(), CommandsPerS: one(), HeapBytesPerItem: one(), GoroutinesPerItem: one()}
				rs = append(rs, r)
			}
		}
	}
	for _, v := range judgeAll(rs, 1) {
		if v.pawl == "" || v.pawl == "-" {
			t.Errorf("%s: pawl is not measured", v.what)
		}
		if v.ratio == "" && v.beside == "" && v.goal[len(v.goal)-1:] == "×" {
			t.Errorf("%s: what it is compared with is not measured", v.what)
		}
	}
}
