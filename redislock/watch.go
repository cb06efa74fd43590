package redislock

import (
	"context"
	"time"
)

// watchEvery is how often a watch ticks by itself: an acquisition is told to nobody.
const watchEvery = time.Second

// Watch ticks when a name was released and not called for the next in line, when an election changed, and about once a
// second in any case. The channel is closed when ctx ends or the driver is closed.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if d.lanes.isClosed() {
		return nil, errClosed
	}
	k := d.keys(name)
	w := &watch{news: make(chan struct{}, 1)}
	// The first one tells scripts that a listener of Redisson's channels just watches.
	channels := []string{k.watch(), k.lockChannel(), k.rwChannel(), k.semChannel()}
	d.ear.wait(ctx, w, channels...)
	out := make(chan struct{}, 1)
	d.ear.wg.Add(1)
	go func() {
		defer d.ear.wg.Done()
		defer close(out)
		defer d.ear.forget(w, channels)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.news:
			case <-tick.C:
			case <-ctx.Done():
				return
			case <-d.ear.done:
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}

type watch struct{ news chan struct{} }

func (w *watch) heard() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}
