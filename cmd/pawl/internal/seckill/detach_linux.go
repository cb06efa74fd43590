package seckill

import "syscall"

// detached keeps the terminal's Ctrl-C away from a server, which is its parent's to end, and lets the kernel end it when
// the parent is killed. (The kernel watches the thread that started it; Go ends no thread that nobody locked.)
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
