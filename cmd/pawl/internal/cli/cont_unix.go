//go:build unix

package cli

import (
	"os"
	"syscall"
)

// cont lets a stopped command take the signal that was sent to it.
var cont os.Signal = syscall.SIGCONT
