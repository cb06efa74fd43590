// Command bench measures pawl beside other people's locks, over servers that it starts for itself.
//
//	go run .               # one hot key and many held leases on Redis, beside the lock that most programs begin with
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

const workerFlag = "as-worker"

func main() {
	rounds := flag.Int("rounds", 3, "rounds of each client, interleaved")
	per := flag.Duration("for", 1200*time.Millisecond, "length of a round")
	cases := flag.String("case", "hot-1,held", "cases, with commas; all: every one")
	backends := flag.String("backend", "redis", "kinds of stores, with commas; all: every one")
	names := flag.String("client", "", "clients, with commas (default all)")
	profile := flag.String("profile", "", "write CPU, allocation, block and mutex profiles to this folder")
	jsonFile := flag.String("json", "", "write the results to this file as JSON")
	worker := flag.Bool(workerFlag, false, "be a worker process; not for people")
	flag.Parse()
	if *worker {
		bench.Worker(os.Stdin, os.Stdout, openers)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *rounds, *per, list(*cases), list(*backends), list(*names), *profile, *jsonFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func run(ctx context.Context, rounds int, per time.Duration, cases, kinds, names []string, profile, jsonFile string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	say := func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }
	s := &stage{}
	defer s.close()
	if slices.Contains(kinds, "all") {
		kinds = nil
		for _, st := range starters {
			kinds = append(kinds, st.kind)
		}
	}
	p := &bench.Plan{Openers: openers, Rounds: rounds, For: per, Warmup: 300 * time.Millisecond, Timeout: 30 * time.Second,
		Worker: []string{self, "-" + workerFlag}, Profile: profile, Progress: say, Note: say}
	if profile != "" {
		if err := os.MkdirAll(profile, 0o755); err != nil {
			return err
		}
	}
	for _, c := range bench.Cases() {
		if slices.Contains(cases, c.Name) || slices.Contains(cases, "all") {
			p.Cases = append(p.Cases, c)
		}
	}
	for _, st := range s.launch(kinds, say) {
		p.Targets = append(p.Targets, targets(st, names)...)
	}
	if len(p.Cases) == 0 || len(p.Targets) == 0 {
		return errors.New("nothing to measure: no such case, store or client")
	}
	rs, err := p.Run(ctx)
	bench.Table(os.Stdout, rs)
	if jsonFile != "" {
		f, ferr := os.Create(jsonFile)
		if ferr != nil {
			return ferr
		}
		err = errors.Join(err, bench.JSON(f, rs), f.Close())
	}
	return err
}
