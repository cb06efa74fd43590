//go:build !linux && !windows

package sqllock

// watchFile polls: to report changes, these systems want the files opened.
func watchFile(file string) *watchfile { return pollFile(file) }
