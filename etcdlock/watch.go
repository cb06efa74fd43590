package etcdlock

import (
	"context"
	"sync"
)

// Watch ticks when a contender comes to a name or goes, and when something may have been missed.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	ticks := make(chan struct{}, 1)
	var mu sync.Mutex
	over := false
	base := d.base(name)
	s := d.ear.watch(first(base), last(base), true, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			select {
			case ticks <- struct{}{}:
			default:
			}
		}
	})
	if !d.ear.wait(ctx, s) {
		d.ear.drop(s)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errDeaf
	}
	if !d.run(func() {
		select {
		case <-ctx.Done():
		case <-d.life.Done():
		}
		d.ear.drop(s)
		mu.Lock()
		defer mu.Unlock()
		over = true
		close(ticks)
	}) {
		return nil, errClosed
	}
	return ticks, nil
}
