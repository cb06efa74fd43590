//go:build unix && !linux

package seckill

import "syscall"

// detached keeps the terminal's Ctrl-C away from a server, which is its parent's to end.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
