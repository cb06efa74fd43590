package seckill

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

// The test binary is also the program under test: called as "seckill …" it runs the command, in its servers too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "seckill" {
		root := &cobra.Command{Use: "pawl", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Command())
		err := root.Execute()
		if err == nil {
			os.Exit(0)
		}
		fmt.Fprintln(os.Stderr, "pawl:", err)
		if e, ok := errors.AsType[*ExitError](err); ok {
			os.Exit(e.Code)
		}
		os.Exit(1)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each server of a test under the race detector takes a second to end
	os.Exit(m.Run())
}
