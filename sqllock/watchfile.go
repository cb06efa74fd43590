package sqllock

import (
	"os"
	"sync"
	"time"
)

// watchfile reports that files have been written to. One write may be reported once, twice, or together with others.
type watchfile struct {
	news chan struct{}
	stop func() // and waits
}

func (w *watchfile) ring() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// heard is news, of nothing if there is no watch.
func (w *watchfile) heard() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.news
}

func (w *watchfile) close() {
	if w != nil {
		w.stop()
	}
}

// pollEvery is how often files are looked at where the system cannot report changes.
const pollEvery = 25 * time.Millisecond

// pollFiles compares the sizes and times of files again and again. It does not open them: closing a database file takes
// away the locks that this process has on it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
func pollFiles(files ...string) *watchfile {
	w := &watchfile{news: make(chan struct{}, 1)}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	w.stop = func() {
		close(quit)
		wg.Wait()
	}
	last := make([]look, len(files))
	look1 := func() (changed bool) {
		for i, name := range files {
			if info, err := os.Stat(name); err == nil {
				now := look{info.Size(), info.ModTime()}
				changed = changed || now != last[i]
				last[i] = now
			}
		}
		return changed
	}
	look1()
	wg.Go(func() {
		for {
			t := time.NewTimer(jitter(pollEvery))
			select {
			case <-t.C:
			case <-quit:
				t.Stop()
				return
			}
			if look1() {
				w.ring()
			}
		}
	})
	return w
}

type look struct {
	size int64
	time time.Time
}
