//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package join

import (
	"os"

	"golang.org/x/sys/unix"
)

const supported = true

// lock tries to get a lock on f's file, which ends when all descriptors of this opening are closed.
func lock(f *os.File, alone bool) bool {
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	return control(f, how|unix.LOCK_NB) == nil
}

func unlock(f *os.File) { control(f, unix.LOCK_UN) }

func control(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
