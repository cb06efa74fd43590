package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/sqllock"
)

var dialects = map[string]sqllock.Dialect{
	"mysql": sqllock.MySQL, "mariadb": sqllock.MySQL, "postgres": sqllock.PostgreSQL, "postgresql": sqllock.PostgreSQL, "sqlite": sqllock.SQLite,
}

func newSchema() *cobra.Command {
	var dialect string
	o := &sqllock.Options{}
	c := &cobra.Command{
		Use:   "schema --dialect mysql|postgres|sqlite",
		Short: "Print the SQL that creates the tables for locks",
		Long: `Print the SQL that creates the tables for locks, for a migration of your own.
Nothing is connected to. Without it, pawl creates the tables by itself, if its
user may.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, ok := dialects[strings.ToLower(dialect)]
			if !ok {
				return usage("--dialect is %q: it must be mysql (also for MariaDB), postgres or sqlite", dialect)
			}
			text, err := sqllock.Schema(d, o)
			if err != nil {
				return usage("--table: %v", err)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&dialect, "dialect", "", "the `KIND` of database: mysql, postgres or sqlite")
	c.Flags().StringVar(&o.Table, "table", "", "the `NAME` of the table (default: pawl_lock)")
	c.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions([]string{"mysql", "postgres", "sqlite"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}
