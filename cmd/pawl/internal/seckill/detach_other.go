//go:build !unix

package seckill

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
