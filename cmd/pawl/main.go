// Command pawl takes distributed locks from the command line.
package main

import (
	"os"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/child"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/cli"
)

func main() {
	child.Helper()
	os.Exit(cli.Main(os.Args[1:]))
}
