// Package benchcmd is the command "pawl bench".
package benchcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

// Exit codes.
const (
	codeWorse       = 3  // than --compare's file
	codeUsage       = 64 // bad flags
	codeUnavailable = 69 // a store cannot be used; the others were measured
	codeInternal    = 70
)

// ExitError is an error that names the process's exit code.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return "bench: " + e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }
func (e *ExitError) ExitCode() int { return e.Code }

func exit(code int, format string, args ...any) error {
	return &ExitError{code, fmt.Errorf(format, args...)}
}

// workerFlag makes this program a worker process. It is not for people.
const workerFlag = "as-worker"

type options struct {
	backends, cases []string
	rounds          int
	length, warmup  time.Duration
	json, classic   bool
	html, compare   string
	tolerance       float64
	profile         string

	timeout time.Duration
	quiet   bool
}

// openers are the clients: pawl alone.
var openers = map[string]bench.Opener{"pawl": bench.Pawl(bench.OpenStore)}

// Command is `pawl bench`. Its errors are *ExitError.
func Command() *cobra.Command {
	var o options
	var asWorker bool
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure locks over your stores: throughput, waits, fairness, what it costs the store",
		Long: `Measure locks over one or several stores, beside each other: each round runs in processes of
its own, the rounds of all stores are interleaved, and the figures are medians with their spread.
The store's commands are read from its own counters. Load is closed: each goroutine locks again
when it has unlocked. Keys begin with "bench:" and are left to their expiry if a round is cut off.

Cases:
` + caseList() + `
Exit code: 0; 3 if something is worse than in --compare's file; 64 for bad flags; 69 if a store cannot
be used (the others are measured all the same); 130 after Ctrl-C, with what was done until then.`,
		Example: `  pawl bench --backend redis://localhost:6379
  pawl bench --backend redis://localhost --backend postgres://localhost/app --case hot-1,handover
  pawl bench --backend redis://localhost --classic-table
  pawl bench --json >old.json; pawl bench --compare old.json --tolerance 0.2`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit(codeUsage, "unexpected argument %q: it takes flags only", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asWorker {
				bench.Worker(cmd.InOrStdin(), cmd.OutOrStdout(), openers)
				return nil
			}
			o.quiet = global(cmd, "quiet") == "true"
			if o.timeout, _ = time.ParseDuration(global(cmd, "timeout")); o.timeout == 0 {
				o.timeout = 10 * time.Second
			}
			return o.run(cmd)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &ExitError{codeUsage, err} })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.backends, "backend", nil, "`URL` of a store, repeated for several (default: PAWL_BACKEND, else a fresh SQLite file)")
	f.StringSliceVar(&o.cases, "case", nil, "measure this case, repeated or with commas (default all)")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of each store, interleaved")
	f.DurationVar(&o.length, "duration", time.Second, "length of a round")
	f.DurationVar(&o.warmup, "warmup", 300*time.Millisecond, "what goes before each round and does not count")
	f.BoolVar(&o.json, "json", false, "print a JSON array, one object a case and store")
	f.StringVar(&o.html, "html", "", "write a page with charts to `FILE` too")
	f.StringVar(&o.compare, "compare", "", "say what changed since `FILE`, which --json wrote")
	f.Float64Var(&o.tolerance, "tolerance", 0.1, "with --compare: how much worse is bearable, as a fraction")
	f.BoolVar(&o.classic, "classic-table", false, "print mean response and requests per second at 1,000 concurrent, a line a store")
	f.StringVar(&o.profile, "profile", "", "write CPU, allocation, block and mutex profiles of each case to `FOLDER`, from rounds that do not count")
	f.BoolVar(&asWorker, workerFlag, false, "")
	f.MarkHidden(workerFlag)
	var names []string
	for _, c := range bench.Cases() {
		names = append(names, c.Name)
	}
	cmd.RegisterFlagCompletionFunc("case", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func caseList() string {
	var b strings.Builder
	for _, c := range bench.Cases() {
		fmt.Fprintf(&b, "  %-17s %s\n", c.Name, c.About)
	}
	return b.String()
}

// global is the value of a flag that all commands of the program have, if they have it.
func global(cmd *cobra.Command, name string) string {
	if f := cmd.Flag(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// plan checks the flags. Paths and URLs that cannot work are told before anything is measured.
func (o *options) plan(cmd *cobra.Command) (*bench.Plan, error) {
	if o.rounds < 1 || o.length < time.Millisecond || o.warmup < 0 || o.tolerance < 0 {
		return nil, exit(codeUsage, "--rounds and --duration must be above zero, --warmup and --tolerance not below it")
	}
	if o.classic && len(o.cases) == 0 {
		o.cases = bench.ClassicCases()
	}
	p := &bench.Plan{Openers: openers, Rounds: o.rounds, For: o.length, Warmup: o.warmup, Timeout: o.timeout, Profile: o.profile}
	for _, c := range bench.Cases() {
		if len(o.cases) == 0 || slices.Contains(o.cases, c.Name) {
			p.Cases = append(p.Cases, c)
		}
	}
	for _, name := range o.cases {
		if !slices.ContainsFunc(p.Cases, func(c bench.Case) bool { return c.Name == name }) {
			return nil, exit(codeUsage, "no case is called %q; there are:\n%s", name, caseList())
		}
	}
	names := map[string]int{}
	for _, raw := range o.backends {
		if _, err := backend.Scheme(raw); err != nil {
			return nil, exit(codeUsage, "--backend: %w", err)
		}
		name := backend.Kind(raw)
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s %d", name, names[name])
		}
		p.Targets = append(p.Targets, bench.Target{Client: "pawl", Backend: name, URL: raw})
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return nil, exit(codeUsage, "--profile: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, exit(codeInternal, "find this program: %w", err)
	}
	p.Worker = append([]string{self}, strings.Fields(cmd.CommandPath())[1:]...)
	p.Worker = append(p.Worker, "--"+workerFlag)
	return p, nil
}

func (o *options) run(cmd *cobra.Command) (err error) {
	if len(o.backends) == 0 {
		o.backends = []string{os.Getenv("PAWL_BACKEND")}
		if o.backends[0] == "" {
			dir, err := os.MkdirTemp("", "pawl-bench-")
			if err != nil {
				return exit(codeInternal, "make a temporary directory: %w", err)
			}
			defer os.RemoveAll(dir)
			o.backends[0] = (&url.URL{Scheme: "sqlite", Path: filepath.ToSlash(filepath.Join(dir, "locks.db"))}).String()
		}
	}
	p, err := o.plan(cmd)
	if err != nil {
		return err
	}
	var old []bench.Result
	if o.compare != "" {
		text, err := os.ReadFile(o.compare)
		if err == nil {
			err = json.Unmarshal(text, &old)
		}
		if err != nil {
			return exit(codeUsage, "--compare: %w", err)
		}
	}
	var html *os.File
	if o.html != "" {
		if html, err = os.Create(o.html); err != nil {
			return exit(codeUsage, "--html: %w", err)
		}
		defer html.Close()
	}
	line := &progress{w: cmd.ErrOrStderr(), quiet: o.quiet}
	p.Progress, p.Note = line.show, line.note

	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(sigs)
	go func() {
		select {
		case s := <-sigs:
			stop(interrupted{s})
		case <-ctx.Done():
		}
	}()
	rs, cut := p.Run(ctx)
	line.clear()
	if err := o.print(cmd.OutOrStdout(), html, rs); err != nil {
		return exit(codeInternal, "%w", err)
	}
	if cut != nil {
		code := 130
		if i, ok := errors.AsType[interrupted](cut); ok && i.sig == syscall.SIGTERM {
			code = 143
		}
		return exit(code, "%w: what is above was done until then", cut)
	}
	if o.compare != "" {
		out := cmd.OutOrStdout()
		if o.json {
			out = cmd.ErrOrStderr()
		}
		worse, err := bench.Compare(out, old, rs, o.tolerance)
		if err != nil {
			return exit(codeInternal, "%w", err)
		}
		if len(worse) > 0 {
			return exit(codeWorse, "worse by more than %.0f %%: %s", 100*o.tolerance, strings.Join(worse, "; "))
		}
	}
	failed := map[string]string{}
	for _, r := range rs {
		if r.Error != "" {
			failed[r.Backend] = r.Error
		}
	}
	if len(failed) > 0 {
		var texts []string
		for name, text := range failed {
			texts = append(texts, name+": "+text)
		}
		slices.Sort(texts)
		return exit(codeUnavailable, "%s", strings.Join(texts, "; "))
	}
	return nil
}

func (o *options) print(w io.Writer, html *os.File, rs []bench.Result) error {
	if html != nil {
		if err := errors.Join(bench.HTML(html, rs, time.Now()), html.Close()); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	switch {
	case o.json:
		return bench.JSON(w, rs)
	case o.classic:
		return bench.ClassicTable(w, rs)
	}
	return bench.Table(w, rs)
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ sig os.Signal }

func (e interrupted) Error() string { return "interrupted (" + e.sig.String() + ")" }

// progress says on a terminal what is being done, in one line that is overwritten; elsewhere a line each.
type progress struct {
	w     io.Writer
	quiet bool
	shown bool
}

func (p *progress) show(text string) {
	if p.quiet {
		return
	}
	if f, ok := p.w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		fmt.Fprintf(p.w, "\r%s\x1b[K", text)
		p.shown = true
		return
	}
	fmt.Fprintln(p.w, text)
}

func (p *progress) note(text string) {
	p.clear()
	fmt.Fprintln(p.w, "pawl: bench: "+text)
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
