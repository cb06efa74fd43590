// Package cli is the command line of pawl: one file a command.
package cli

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/benchcmd"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/seckill"
)

// globals are the flags that every command has.
type globals struct {
	backend string
	prefix  string
	timeout time.Duration
	say     printer
}

// Main runs the command line args (without the program's name) and answers the exit code.
func Main(args []string) int {
	g := &globals{say: printer{w: os.Stderr}}
	root := newRoot(g, os.Stdout)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	var f *failure
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &f):
	case errors.As(err, &coded):
		f = &failure{code: coded.ExitCode(), text: err.Error()}
	default: // cobra's own
		f = &failure{code: exitUsage, text: err.Error() + "\nSee 'pawl --help'."}
	}
	if f.text != "" {
		g.say.error(f.text)
	}
	return f.code
}

func newRoot(g *globals, stdout io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Distributed locks",
		Long: `pawl takes distributed locks, over the store that you have.

The store is named by --backend or PAWL_BACKEND. Without either it is a SQLite
file in your state directory, which locks among the processes of one machine.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetOut(stdout)
	root.SetErr(g.say.w)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%v\nSee '%s --help'.", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&g.backend, "backend", "", "`URL` of the store, such as redis://host:6379 or sqlite:///path/locks.db; 'pawl version' lists the kinds\n(default: PAWL_BACKEND, else a file in your state directory)")
	f.StringVar(&g.prefix, "prefix", "", "put `TEXT` before every name in the store")
	g.timeout = 10 * time.Second
	f.Var((*duration)(&g.timeout), "timeout", "give a store this long to connect and to answer questions, as 5, 2.5 or 500ms")
	f.BoolVar(&g.say.quiet, "quiet", false, "no messages except errors")
	f.BoolVarP(&g.say.verbose, "verbose", "v", false, "more messages")
	f.Var(&g.say.format, "log-format", "messages as text or json")
	root.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.MarkFlagsMutuallyExclusive("quiet", "verbose")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if g.timeout <= 0 {
			return usage("--timeout must be above zero")
		}
		return nil
	}
	root.AddCommand(newRun(g), newLs(g), newInspect(g), newSchema(), seckill.Command(), benchcmd.Command(), newVersion())
	return root
}
