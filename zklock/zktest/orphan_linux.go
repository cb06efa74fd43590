package zktest

import (
	"os/exec"
	"syscall"
)

// dieWithParent keeps a server from outliving a test binary that was killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
