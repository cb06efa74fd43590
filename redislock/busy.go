package redislock

import (
	"sync"
	"sync/atomic"
	"time"
)

// busy remembers which names others wanted too a moment ago. Their requests go to the full scripts at once instead of
// trying the quick ones first.
type busy struct {
	some  atomic.Bool // there are or were names
	mu    sync.Mutex
	names map[string]time.Time
}

const (
	busyFor  = 2 * time.Second
	busyMost = 4096
)

func (b *busy) note(name string) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.names) >= busyMost {
		for n, t := range b.names {
			if now.Sub(t) > busyFor {
				delete(b.names, n)
			}
		}
		if len(b.names) >= busyMost {
			clear(b.names)
		}
	}
	if b.names == nil {
		b.names = map[string]time.Time{}
		b.some.Store(true)
	}
	b.names[name] = now
}

func (b *busy) lately(name string) bool {
	if !b.some.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.names[name]
	return ok && time.Since(t) < busyFor
}
