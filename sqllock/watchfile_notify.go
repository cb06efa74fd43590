//go:build linux || windows

package sqllock

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watchFile has the system report changes. It watches the folder, since the -wal file comes and goes. If the system has no
// watch left (each user has a limited number), it falls back to polling.
func watchFile(file string) *watchfile {
	n, err := fsnotify.NewBufferedWatcher(64)
	if err != nil {
		return pollFile(file)
	}
	if err := n.Add(filepath.Dir(file)); err != nil {
		n.Close()
		return pollFile(file)
	}
	w := &watchfile{news: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	w.stop = func() {
		n.Close() // closes its channels
		wg.Wait()
	}
	wal, main := filepath.Base(file)+"-wal", filepath.Base(file)
	wg.Go(func() {
		for {
			select {
			case e, ok := <-n.Events:
				if !ok {
					return
				}
				if name := filepath.Base(e.Name); name == wal || name == main {
					w.ring()
				}
			case _, ok := <-n.Errors: // too many events: some were lost
				if !ok {
					return
				}
				w.ring()
			}
		}
	})
	return w
}
