//go:build !linux

package driver

import (
	"sync"
	"time"
)

var (
	aheadMu sync.Mutex
	ahead   time.Duration // the most that the wall clock was seen ahead of the monotonic one
)

func realNow(time.Duration) Instant {
	now := time.Now()
	mono := now.Sub(start)
	wall := now.Round(0).Sub(start.Round(0))
	aheadMu.Lock()
	defer aheadMu.Unlock()
	ahead = max(ahead, wall-mono)
	return Instant(mono + ahead + 1)
}
