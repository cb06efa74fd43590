package sqllock

import (
	"os"
)

// bell is a file of one byte beside the database that belongs to one driver, while it has places in line. Others write
// that byte anew to wake it. A bell that is not heard costs a second at most.
type bell struct {
	name string
	file *watchfile
}

// open makes the bell if it is not there, or not any more, and reports whether it did.
func (b *bell) open(name string, mode os.FileMode) bool {
	if b.file != nil {
		if _, err := os.Stat(name); err == nil {
			return false
		}
		b.close() // whoever thought this driver dead has deleted it
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return false // the waiters are found by the look at all places
	}
	f.Chmod(mode) // who may write to the database may ring
	f.Write([]byte{'.'})
	f.Close()
	b.name, b.file = name, watchFiles(name, name)
	return true
}

func (b *bell) news() <-chan struct{} { return b.file.heard() }

func (b *bell) close() {
	if b.file != nil {
		b.file.close()
		os.Remove(b.name)
		b.file = nil
	}
}

// bellOf is the file of a driver's bell.
func (s *setup) bellOf(process string) string { return s.path() + "-bell-" + process }

// mode is the database file's, which the files beside it share.
func (s *setup) mode() os.FileMode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info.Mode().Perm()
}

// ring wakes drivers, after the commit that called their places.
func (s *setup) ring(processes map[string]bool) {
	for process := range processes {
		if process == s.d.process {
			s.d.waker.look()
			continue
		}
		f, err := os.OpenFile(s.bellOf(process), os.O_WRONLY, 0)
		if err != nil {
			continue // it is gone, or has not hung up its bell yet and will look
		}
		f.Write([]byte{'.'})
		f.Close()
	}
}

// bury deletes the bells of drivers that died.
func (s *setup) bury(processes []string) {
	for _, process := range processes {
		os.Remove(s.bellOf(process))
	}
}
