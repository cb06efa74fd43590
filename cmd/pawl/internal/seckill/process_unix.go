//go:build unix

package seckill

import (
	"os"
	"syscall"
)

// canPause: a process can be stopped from outside, as a collector of garbage or a hypervisor stops it.
const canPause = true

func stopProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
