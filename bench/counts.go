package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// shortTTL is that of the leases whose commands are counted: each is renewed within the round.
const shortTTL = 6 * time.Second

// countCases are small: what they count does not depend on how fast the machine is.
var countCases = []bench.Case{
	{Name: "cycle", Kind: bench.Cycles, Goroutines: 1, Processes: 1, Own: true, TTL: shortTTL},
	{Name: "hot", Kind: bench.Cycles, Goroutines: 200, Processes: 1, TTL: shortTTL},
	{Name: "idle", Kind: bench.Idle, Goroutines: 200, Processes: 1, TTL: shortTTL, For: 2 * time.Second},
	{Name: "held", Kind: bench.Held, Goroutines: 1000, Processes: 1, TTL: shortTTL, For: shortTTL / 3},
}

// sweepPeriod is longer than a process of sqllock goes without looking for dead rows on a server, which is 2.5 to 7.5 s; and a
// multiple of the time between two renewals.
const sweepPeriod = 4 * shortTTL / 3

// withSweeps are cases in which each process sweeps at least once while it is watched.
func withSweeps(cases []bench.Case) []bench.Case {
	cases = slices.Clone(cases)
	for i := range cases {
		if c := &cases[i]; c.Kind != bench.Cycles {
			c.For = max(c.For, sweepPeriod)
		}
	}
	return cases
}

// countGoals are the most that pawl may need.
var countGoals = []struct {
	name, field, what string
	most              float64
	except            map[string]float64
}{
	// The tenth is for what happens beside the cycles, of which a busy machine does few: a keep-alive, a look at the clock.
	{"cycle", "commands_per_cycle", "commands of a cycle nobody else wants", 2.1, map[string]float64{"zk": 2.5, "redlock": 3 * 4.1}}, // vote, life, token, release
	{"hot", "commands_per_cycle", "commands of a cycle on a hot key", 0.1, nil},
	// MySQL cannot call: a process that waits looks ten times a second, with one statement for all its waiters. On PostgreSQL it looks
	// once. Besides, it says each 2 s that it lives (1 statement), the holder renews each 2 s (2), and each of both looks for dead rows
	// every 5 s (2 or 3). That makes 13 and 4 a second.
	{"idle", "commands_per_s", "commands a second while 200 wait", 5, map[string]float64{"mysql": 15, "redlock": 3 * 5}},
	{"idle", "goroutines_per_item", "goroutines for each that waits", 0.05, map[string]float64{"redlock": 0.1}}, // some a member
	{"held", "commands_per_s", "commands a second to renew 1,000 leases of 6 s", 20, map[string]float64{"redlock": 3 * 20}},
	{"held", "goroutines_per_item", "goroutines for each lease", 0.01, map[string]float64{"redlock": 0.02}}, // up to five a member, however many leases
}

// counts measures what has no noise, on all stores at once, and tells what is above its goal.
func counts(ctx context.Context, p *bench.Plan, kinds []string, say func(string)) ([]bench.Result, error) {
	s := &stage{}
	defer s.close()
	began := time.Now()
	stores := s.launch(kinds, say)
	if len(stores) < len(kinds) {
		return nil, errors.New("a store is missing")
	}
	found := make([][]bench.Result, len(stores))
	errs := make([]error, len(stores))
	turns := make(chan struct{}, 3)
	var wg sync.WaitGroup
	for i, st := range stores {
		if st.kind == "redlock" { // its members are young, and so are its leases
			st.hosts = st.hosts[:3]
			st.url = "redlock://" + strings.Join(st.hosts, ",") + "?max_ttl=" + shortTTL.String()
		}
		wg.Go(func() {
			if st.kind == "redlock" {
				time.Sleep(time.Until(began.Add(shortTTL + time.Second)))
			}
			turns <- struct{}{}
			defer func() { <-turns }()
			q := *p
			q.Cases, q.Rounds, q.For = countCases, 1, time.Second
			if st.kind == "mysql" || st.kind == "postgres" {
				q.Cases = withSweeps(countCases)
			}
			q.Targets = targets(st, []string{"pawl"})
			found[i], errs[i] = q.Run(ctx)
		})
	}
	wg.Wait()
	var rs []bench.Result
	for _, f := range found {
		rs = append(rs, f...)
	}
	if err := errors.Join(errs...); err != nil {
		return rs, err
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STORE\tCOUNT\tGOAL\tFOUND\t")
	bad := 0
	for _, st := range stores {
		for _, g := range countGoals {
			if st.kind == "mem" && g.name == "idle" {
				continue // it is within one process: nobody else can hold the lock
			}
			most := g.most
			if x, ok := g.except[st.kind]; ok {
				most = x
			}
			r := bench.Find(rs, g.name, st.kind, "pawl")
			x, ok := r.Get(g.field)
			text, mark := "-", ""
			switch {
			case !ok:
				mark = "NOT MEASURED"
				if r != nil && r.Error != "" {
					mark += ": " + r.Error
				}
				bad++
			case x > most:
				mark = "ABOVE"
				bad++
			}
			if ok {
				text = fmt.Sprintf("%.3f", x)
			}
			fmt.Fprintf(t, "%s\t%s\t%g\t%s\t%s\n", st.kind, g.what, most, text, mark)
		}
	}
	t.Flush()
	if bad > 0 {
		return rs, fmt.Errorf("%d counts are above their goals or missing", bad)
	}
	return rs, nil
}
