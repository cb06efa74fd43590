package redislock

import (
	"sync"
	"time"
)

// busy remembers which names others wanted too a moment ago. Their requests go to the full scripts at once instead of
// trying the quick ones first.
type busy struct {
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
	}
	b.names[name] = now
}

func (b *busy) lately(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.names[name]
	return ok && time.Since(t) < busyFor
}
