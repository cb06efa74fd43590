package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl"
)

func newInspect(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show who holds a lock",
		Long: `Show who holds the lock NAME, and who waits for it.

Exit code 0: it is held; 1: it is free. The answer may be old when you read it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(c.Context(), g.timeout)
			defer stop()
			locks, err := g.client(ctx)
			if err != nil {
				return err
			}
			defer locks.Close()
			i, err := locks.Inspect(ctx, args[0])
			if err != nil {
				return storeFailure("inspect", err)
			}
			i.Name = args[0]
			if asJSON {
				err = json.NewEncoder(c.OutOrStdout()).Encode(newEntry(i))
			} else {
				err = show(c.OutOrStdout(), i)
			}
			if err == nil && len(i.Holders) == 0 {
				return &failure{code: 1}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as a JSON object")
	return c
}

func show(w io.Writer, i pawl.Info) error {
	line := func(key string, value any) { fmt.Fprintf(w, "%-9s %v\n", key+":", value) }
	line("name", plain(i.Name))
	if len(i.Holders) == 0 {
		line("state", "free")
		return nil
	}
	line("kind", i.Kind)
	if i.Limit > 0 {
		line("permits", i.Limit)
	}
	if i.Waiters >= 0 {
		line("waiters", i.Waiters)
	}
	for _, h := range i.Holders {
		line("holder", h)
		line("  id", plain(h.ID))
		if h.Token != 0 {
			line("  fence", h.Token)
		}
		if !h.Since.IsZero() {
			line("  since", fmt.Sprintf("%s (%s ago)", h.Since.Format(time.RFC3339), short(max(0, time.Since(h.Since)).Round(time.Second))))
		}
		switch {
		case h.Remaining > 0:
			line("  ttl", short(h.Remaining)+" left")
		case h.Remaining < 0:
			line("  ttl", "none: it never expires")
		}
	}
	return nil
}
