// Command bench measures pawl beside other people's locks, over servers that it starts for itself.
//
//	go run .                                  one hot key and many held leases on Redis
//	go run . -case all -backend etcd,zk       what there is, over those stores
//	go run . -counts                          what has no noise, on every store; fails above a goal
//	go run . -growth ../docs                  cost as work grows: charts, and its part of the page there
//	go run . -peers ../docs/benchmarks.md     everything; writes its part of that page. With -quick in two minutes
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

type options struct {
	rounds                   int
	length                   time.Duration
	cases, backends, clients string
	profile, json            string
	peers, growth            string
	counts, quick            bool
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each client, interleaved")
	flag.DurationVar(&o.length, "for", 1200*time.Millisecond, "length of a round")
	flag.StringVar(&o.cases, "case", "hot-1,held", "cases, with commas; all: every one")
	flag.StringVar(&o.backends, "backend", "", "kinds of stores, with commas; all: every one (default redis; with -peers all)")
	flag.StringVar(&o.clients, "client", "", "clients, with commas; of \"table, every 10 ms\" just table (default all)")
	flag.StringVar(&o.profile, "profile", "", "write CPU, allocation, block and mutex profiles to this folder")
	flag.StringVar(&o.json, "json", "", "write the results to this file as JSON")
	flag.StringVar(&o.peers, "peers", "", "measure everything and write its part of this page; -: print it")
	flag.BoolVar(&o.counts, "counts", false, "measure the counts that have no noise, and fail if one is above its goal")
	flag.StringVar(&o.growth, "growth", "", "measure cost as work grows, and write charts and their part of benchmarks.md to this folder")
	flag.BoolVar(&o.quick, "quick", false, "with -peers and -growth: one short round, to see that it works")
	worker := flag.Bool(workerFlag, false, "be a worker process; not for people")
	flag.Parse()
	if *worker {
		bench.Worker(os.Stdin, os.Stdout, openers)
		return
	}
	if flag.NArg() > 0 || o.rounds < 1 || o.length <= 0 {
		fmt.Fprintln(os.Stderr, "bench: all numbers must be positive, and there are no arguments")
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
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

func (o *options) kinds(usual ...string) []string {
	ks := list(o.backends)
	if len(ks) == 0 {
		ks = usual
	}
	if slices.Contains(ks, "all") {
		ks = nil
		for _, st := range starters {
			ks = append(ks, st.kind)
		}
	}
	return ks
}

func (o *options) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	say := func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }
	p := &bench.Plan{Openers: openers, Rounds: o.rounds, For: o.length, Warmup: 300 * time.Millisecond, Timeout: 30 * time.Second,
		Worker: []string{self, "-" + workerFlag}, Profile: o.profile, Progress: say, Note: say}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return err
		}
	}
	var rs []bench.Result
	switch {
	case o.counts:
		rs, err = counts(ctx, p, o.kinds("all"), say)
	case o.growth != "":
		rs, err = growth(ctx, p, o.growth, o.quick, say)
	case o.peers != "":
		su := &suite{Plan: p, say: say}
		set := full
		if o.quick {
			set = quick
		}
		err = su.writePeers(ctx, set, o.kinds("all"), strings.TrimPrefix(o.peers, "-"))
		rs = su.results
	default:
		rs, err = o.some(ctx, p, say)
	}
	if o.json != "" {
		f, ferr := os.Create(o.json)
		if ferr != nil {
			return ferr
		}
		err = errors.Join(err, bench.JSON(f, rs), f.Close())
	}
	return err
}

// some measures what was asked for, and prints it.
func (o *options) some(ctx context.Context, p *bench.Plan, say func(string)) ([]bench.Result, error) {
	s := &stage{}
	defer s.close()
	cases := list(o.cases)
	for _, c := range bench.Cases() {
		if slices.Contains(cases, c.Name) || slices.Contains(cases, "all") {
			p.Cases = append(p.Cases, c)
		}
	}
	began := time.Now()
	for _, st := range s.launch(o.kinds("redis"), say) {
		if st.kind == "redlock" {
			awaitQuorum(ctx, began, say)
		}
		p.Targets = append(p.Targets, targets(st, list(o.clients))...)
	}
	if len(p.Cases) == 0 || len(p.Targets) == 0 {
		return nil, errors.New("nothing to measure: no such case, store or client")
	}
	rs, err := p.Run(ctx)
	return rs, errors.Join(err, bench.Table(os.Stdout, rs))
}
