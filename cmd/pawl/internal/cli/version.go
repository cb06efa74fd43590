package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the stores that this build knows",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, rev := "(devel)", ""
			if b, ok := debug.ReadBuildInfo(); ok {
				if b.Main.Version != "" {
					v = b.Main.Version
				}
				for _, s := range b.Settings {
					if s.Key == "vcs.revision" {
						rev = " " + s.Value
					}
				}
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "pawl %s%s %s/%s %s\nstores: %s\n", v, rev, runtime.GOOS, runtime.GOARCH,
				runtime.Version(), strings.Join(backend.Schemes(), " "))
			return err
		},
	}
}
