//go:build !linux && !windows

package sqllock

// watchFiles polls: to report changes, these systems want the files opened.
func watchFiles(target string, files ...string) *watchfile { return pollFiles(files...) }
