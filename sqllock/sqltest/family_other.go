//go:build !linux

package sqltest

import "os/exec"

func dieWithParent(*exec.Cmd) {}

// family cannot be told here: Kill and Stop reach the server's first process only.
func family(int) []int { return nil }

func still(int) bool { return true }
