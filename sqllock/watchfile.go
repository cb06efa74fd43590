package sqllock

import (
	"os"
	"sync"
	"time"
)

// watchfile reports that a database has been written to. One write may be reported once, twice, or together with others.
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

// pollEvery is how often a file is looked at where the system cannot report changes.
const pollEvery = 25 * time.Millisecond

// pollFile compares the size and time of the database's files again and again. It does not open them: closing a database
// file takes away the locks that this process has on it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
func pollFile(file string) *watchfile {
	w := &watchfile{news: make(chan struct{}, 1)}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	w.stop = func() {
		close(quit)
		wg.Wait()
	}
	wg.Go(func() {
		names := []string{file, file + "-wal"}
		last := looks(names)
		for {
			t := time.NewTimer(jitter(pollEvery))
			select {
			case <-t.C:
			case <-quit:
				t.Stop()
				return
			}
			if now := looks(names); now != last {
				last = now
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

func looks(names []string) (out [2]look) {
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			out[i] = look{info.Size(), info.ModTime()}
		}
	}
	return out
}
