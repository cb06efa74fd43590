// Package seckill is the flash sale that started pawl: many buyers, few items, several server processes behind a
// balancer, one database, and one table line for each way to sell.
package seckill

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
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

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

// Exit codes.
const (
	codeFailed      = 2  // a promise was broken, or a broken strategy did not break
	codeUsage       = 64 // bad flags
	codeUnavailable = 69 // the lock store cannot be reached
	codeInternal    = 70
	codePermission  = 77 // the lock store does not let us in
)

// ExitError is an error that names the process's exit code.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }
func (e *ExitError) ExitCode() int { return e.Code }

// serverFlag makes this program a server of the shop. It is not for people.
const serverFlag = "as-server"

// Command is `pawl seckill`. Its errors are *ExitError.
func Command() *cobra.Command {
	var o options
	var asServer bool
	cmd := &cobra.Command{
		Use:   "seckill [flags]",
		Short: "Run a flash sale on several servers: see it oversell without a lock, and not with one",
		Long: `Run a flash sale: many buyers, few items, several server processes behind a balancer, one
database. Each strategy sells from its own fresh stock, and what it sold is counted in the database
afterwards. No server is needed: by default the shop and the locks live in SQLite files that are
removed at the end.

With a postgres:// or mysql:// backend, stock, orders, marks and locks are in tables of that
database, named pawl_seckill_ID_…, with a random ID. They are dropped at the end and at Ctrl-C, and
no other table is touched. With every other backend only the locks are there.

Strategies:
` + strategyList() + `
Exit code: 0 if every strategy that promises not to oversell kept its promise and the broken ones
were seen to break; 2 if not; 64 for bad flags; 69 if the lock store cannot be used, 77 if it
refuses us; 130 or 143 after Ctrl-C or TERM; 70 for anything else.`,
		Example: `  pawl seckill
  pawl seckill --strategy none,lock,lock+token --buyers 20000
  pawl seckill --backend redis://localhost:6379 --html sale.html`,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asServer {
				return asExit(codeInternal, serve(cmd.InOrStdin(), cmd.OutOrStdout()))
			}
			o.prefix, o.quiet = global(cmd, "prefix"), global(cmd, "quiet") == "true"
			if o.timeout, _ = time.ParseDuration(global(cmd, "timeout")); o.timeout == 0 {
				o.timeout = 10 * time.Second
			}
			return o.run(cmd)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return asExit(codeUsage, err) })
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&o.buyers, "buyers", 100_000, "how many people want one")
	f.IntVar(&o.stock, "stock", 100, "how many there are")
	f.IntVar(&o.servers, "servers", 3, "server processes behind the balancer")
	f.StringSliceVar(&o.strategies, "strategy", nil, "sell this way, repeated or with commas (default all)")
	f.StringVar(&o.backend, "backend", "", "`URL` of the lock store, such as redis://host:6379, postgres://user@host/database or sqlite:///path (default a fresh SQLite file)")
	f.Float64Var(&o.rate, "rate", 0, "buyers per second; 0: as fast as the shop lets them in")
	f.Uint64Var(&o.seed, "seed", 1, "same seed, same buyers")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.StringVar(&o.html, "html", "", "write a page with charts to `FILE` too")
	f.BoolVar(&asServer, serverFlag, false, "")
	f.MarkHidden(serverFlag)
	cmd.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions(strategyNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// global is the value of a flag that all commands of the program have, if they have it.
func global(cmd *cobra.Command, name string) string {
	if f := cmd.Flag(name); f != nil {
		return f.Value.String()
	}
	return ""
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return asExit(codeUsage, fmt.Errorf("unexpected argument %q: seckill takes flags only", args[0]))
	}
	return nil
}

func strategyList() string {
	var b strings.Builder
	for _, s := range strategies {
		fmt.Fprintf(&b, "  %-14s %s\n", s.name, s.about)
	}
	return b.String()
}

func asExit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{code, fmt.Errorf("seckill: %w", err)}
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ sig os.Signal }

func (e interrupted) Error() string { return "interrupted (" + e.sig.String() + ")" }

func (o *options) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return asExit(codeUsage, err)
	}
	chosen, left, err := o.chosen()
	if err != nil {
		return asExit(codeUsage, err)
	}
	leaveOut := func(s strategy, why string) {
		if !o.quiet {
			fmt.Fprintf(cmd.ErrOrStderr(), "seckill: %s is left out: %s\n", s.name, why)
		}
	}
	for _, s := range left {
		leaveOut(s, "it cannot be shown on this kind of store")
	}
	var html *os.File
	if o.html != "" {
		if html, err = reserve(o.html); err != nil {
			return asExit(codeUsage, err)
		}
		defer os.Remove(html.Name()) // after success it has its other name
		defer html.Close()
	}

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

	dir, err := os.MkdirTemp("", "pawl-seckill-")
	if err != nil {
		return asExit(codeInternal, fmt.Errorf("make a temporary directory: %w", err))
	}
	defer os.RemoveAll(dir)
	r := &run{options: *o, id: newID(), dir: dir, own: o.backend == "", clicks: clicks(o)}
	if r.own {
		r.backend = (&url.URL{Scheme: "sqlite", Path: filepath.Join(dir, "locks.db")}).String()
	}
	if r.command, err = serverCommand(cmd.CommandPath()); err != nil {
		return asExit(codeInternal, err)
	}
	if scheme, err := backend.Scheme(r.backend); err == nil && onServer(scheme) {
		leave, err := r.openServer(ctx, cmd.ErrOrStderr())
		if err != nil {
			return o.ended(ctx, storeCode(err), err)
		}
		defer leave()
	}
	if slices.ContainsFunc(chosen, func(s strategy) bool { return s.store }) {
		tokens, err := r.tryStore(ctx)
		if err != nil {
			return o.ended(ctx, storeCode(err), fmt.Errorf("lock store: %w", err))
		}
		if i := slices.IndexFunc(chosen, func(s strategy) bool { return s.token }); i >= 0 && !tokens {
			const why = "this store gives no tokens"
			if len(o.strategies) > 0 {
				return asExit(codeUsage, fmt.Errorf("--backend: %s: leave %s out", why, chosen[i].name))
			}
			leaveOut(chosen[i], why)
			chosen = slices.Delete(slices.Clone(chosen), i, i+1)
		}
	}
	rep, err := r.all(ctx, chosen, cmd.ErrOrStderr())
	if err != nil {
		return o.ended(ctx, codeInternal, err)
	}
	if err := o.print(rep, cmd.OutOrStdout(), html, r.where()); err != nil {
		return asExit(codeInternal, err)
	}
	if f := rep.failures(); f != "" {
		return asExit(codeFailed, errors.New(f))
	}
	return nil
}

// ended is the error of a run that did not come to its end.
func (o *options) ended(ctx context.Context, code int, err error) error {
	if i, ok := errors.AsType[interrupted](context.Cause(ctx)); ok {
		code, err = 130, i
		if i.sig == syscall.SIGTERM {
			code = 143
		}
	}
	return asExit(code, err)
}

func (r *run) all(ctx context.Context, chosen []strategy, stderr io.Writer) (*report, error) {
	line := newProgress(stderr, r.quiet)
	defer line.clear()
	rep := &report{Buyers: r.buyers, Stock: r.stock, Servers: r.servers}
	if !r.own && r.server == nil && slices.ContainsFunc(chosen, func(s strategy) bool { return s.naive }) {
		defer func() { // also after Ctrl-C
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer stop()
			if err := dropNaive(ctx, r.backend); err != nil {
				fmt.Fprintf(stderr, "seckill: the table %s is left in the lock store: %v\n", naiveTables+"setnx", err)
			}
		}()
	}
	for _, st := range chosen {
		line.show("%-14s starting %d servers", st.name, r.servers)
		res, err := r.sale(ctx, st, func(done, sold int) {
			line.show("%-14s %3d%% of the buyers served, %d sold", st.name, 100*done/len(r.clicks), sold)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", st.name, err)
		}
		rep.Strategies = append(rep.Strategies, res)
		if res.errors > 0 {
			line.clear()
			fmt.Fprintf(stderr, "seckill: %s: %d requests failed and were repeated, the last one: %s\n", st.name, res.errors, res.lastErr)
		}
	}
	return rep, nil
}

func (o *options) print(rep *report, stdout io.Writer, html *os.File, store string) error {
	if html != nil {
		if err := rep.writePage(html, o.seed, store, time.Now()); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
		if err := errors.Join(html.Chmod(0o644), html.Close()); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
		if err := os.Rename(html.Name(), o.html); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	if o.json {
		return rep.writeJSON(stdout)
	}
	fmt.Fprintf(stdout, "%d buyers, %d items, %d servers, seed %d, %s\n\n", o.buyers, o.stock, o.servers, o.seed, store)
	return rep.writeTable(stdout)
}

// kind names the lock store for people, without telling where it is.
func (r *run) kind() string {
	names := map[string]string{"sqlite": "SQLite", "redis": "Redis", "redlock": "Redlock", "postgres": "PostgreSQL", "mysql": "MySQL", "etcd": "etcd", "zk": "ZooKeeper"}
	kind := backend.Kind(r.backend)
	return cmp.Or(names[kind], kind)
}

// where says in which kinds of store the locks and the stock are.
func (r *run) where() string {
	if r.server != nil {
		return "locks and stock in " + r.kind()
	}
	return "locks in " + r.kind()
}

func newID() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
