package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// program is what the whole comparison does over one kind of store.
type program struct {
	kind  string
	cases []string
	once  []string // one round: counts without noise
	slow  bool     // the hot cases need longer rounds, or the peers hardly finish a cycle
}

var programs = []program{
	{kind: "redis", cases: []string{"uncontended-1", "uncontended-16", "uncontended-256", "uncontended-1000", "hot-1", "hot-4", "handover",
		"read-mostly", "sem", "linger"}, once: []string{"idle", "held"}},
	{kind: "etcd", cases: onStores, once: []string{"idle"}, slow: true},
	{kind: "zk", cases: onStores, once: []string{"idle"}, slow: true},
	{kind: "mysql", cases: onStores, once: []string{"idle"}, slow: true},
	{kind: "postgres", cases: onStores, once: []string{"idle"}, slow: true},
	{kind: "sqlite", cases: []string{"uncontended-1", "uncontended-1000", "hot-1", "hot-4", "handover"}},
	{kind: "redlock", cases: []string{"uncontended-1", "uncontended-16", "hot-1", "handover"}},
}

var onStores = []string{"uncontended-1", "uncontended-1000", "hot-1", "hot-4", "handover"}

// settings are how long it takes.
type settings struct {
	rounds, hotRounds int           // hotRounds where the ratios are so large that noise does not matter
	length, hot, rest time.Duration // of a round; of a hot one on a slow store; of watching what rests
}

var (
	full  = settings{5, 3, 1200 * time.Millisecond, 2 * time.Second, 2 * time.Second}
	quick = settings{1, 1, 300 * time.Millisecond, 600 * time.Millisecond, 500 * time.Millisecond}
)

// near reports whether the clients of a case are so near to each other that more rounds are needed.
func near(c bench.Case) bool { return c.Own || c.Kind == bench.Handover }

// suite is a run over several stores, one kind after the other, so that only one is at work.
type suite struct {
	*bench.Plan // Openers, Worker and so on; Cases, Targets, Rounds and For are set for each part

	stores  []*store
	results []bench.Result
	say     func(string)
}

// peers measures everything. What was done before ctx ended is in the suite.
func (su *suite) peers(ctx context.Context, set settings, kinds []string) error {
	// A quorum does not trust a member that may have forgotten holds: those start first, and have been up for a TTL when
	// their turn comes.
	early := &stage{}
	defer early.close()
	var quorum []*store
	began := time.Now()
	if slices.Contains(kinds, "redlock") {
		quorum = early.launch([]string{"redlock"}, su.say)
	}
	for _, pr := range programs {
		if !slices.Contains(kinds, pr.kind) || ctx.Err() != nil {
			continue
		}
		err := func() error {
			s := &stage{}
			defer s.close()
			stores := quorum
			if pr.kind != "redlock" {
				stores = s.launch([]string{pr.kind}, su.say)
			} else {
				awaitQuorum(ctx, began, su.say)
			}
			if len(stores) == 0 {
				return nil // told
			}
			su.stores = append(su.stores, stores...)
			stores[0].learn()
			targets := targets(stores[0], nil)
			hot := func(c bench.Case) bool { return !near(c) }
			all := func(bench.Case) bool { return true }
			for _, part := range []struct {
				names  []string
				of     func(bench.Case) bool
				rounds int
				length time.Duration
			}{{pr.cases, near, set.rounds, set.length}, {pr.cases, hot, set.hotRounds, set.length}, {pr.once, all, 1, set.rest}} {
				p := *su.Plan
				p.Targets, p.Rounds, p.For = targets, part.rounds, part.length
				p.Cases = nil
				for _, c := range bench.Cases() {
					if !slices.Contains(part.names, c.Name) || !part.of(c) {
						continue
					}
					if pr.slow && !c.Own && c.Kind == bench.Cycles {
						c.For = set.hot
					}
					p.Cases = append(p.Cases, c)
				}
				if len(p.Cases) == 0 {
					continue
				}
				rs, err := p.Run(ctx)
				su.results = append(su.results, rs...)
				if err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitQuorum waits until the members of a quorum, started at began, trust themselves.
func awaitQuorum(ctx context.Context, began time.Time, say func(string)) {
	wait := time.Until(began.Add(bench.DefaultTTL + time.Second))
	if wait <= 0 {
		return
	}
	say(fmt.Sprintf("wait %.0f s, until the quorum's members trust themselves", wait.Seconds()))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// writePeers measures and writes the page.
func (su *suite) writePeers(ctx context.Context, set settings, kinds []string, page string) error {
	began := time.Now()
	err := su.peers(ctx, set, kinds)
	text := su.page(set, began, err)
	if page == "" {
		fmt.Print(text)
		return err
	}
	return errors.Join(err, replacePart(page, "make bench-peers", text))
}

// replacePart puts text between the two marks of a page that name who writes it.
func replacePart(page, who, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+who+" writes from here -->\n", "<!-- to here -->\n"
	_, i := index(string(old), begin, 0)
	if i < 0 {
		return fmt.Errorf("%s: the mark %q is missing", page, begin)
	}
	j, _ := index(string(old), end, i)
	if j < 0 {
		return fmt.Errorf("%s: the mark %q is missing", page, end)
	}
	return os.WriteFile(page, []byte(string(old[:i])+text+string(old[j:])), 0o644)
}

// index is where sub begins and ends in s, from a place on; -1 if it is not there.
func index(s, sub string, from int) (begin, end int) {
	i := strings.Index(s[from:], sub)
	if i < 0 {
		return -1, -1
	}
	return from + i, from + i + len(sub)
}
