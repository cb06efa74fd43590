//go:build linux || windows

package sqllock

import (
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watchFiles has the system report changes of files by watching one of them, or their folder. If the system has no watch
// left (each user has a limited number), it falls back to polling.
func watchFiles(target string, files ...string) *watchfile {
	n, err := fsnotify.NewBufferedWatcher(16)
	if err != nil {
		return pollFiles(files...)
	}
	if err := n.Add(target); err != nil {
		n.Close()
		return pollFiles(files...)
	}
	w := &watchfile{news: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	w.stop = func() {
		n.Close() // closes its channels
		wg.Wait()
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	wg.Go(func() {
		for {
			select {
			case e, ok := <-n.Events:
				if !ok {
					return
				}
				if slices.Contains(names, filepath.Base(e.Name)) {
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
