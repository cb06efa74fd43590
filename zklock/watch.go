package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// Watch ticks when a contender of the name comes or goes.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if d.life.Err() != nil {
		return nil, errClosed
	}
	w := &watcher{d: d, dir: d.dir(name), news: make(chan struct{}, 1)}
	first, cancel := d.bound(ctx, inspectLimit)
	err := w.arm(first)
	cancel()
	if err != nil {
		w.end()
		return nil, err
	}
	out := make(chan struct{}, 1)
	running := d.spawn(func() {
		defer close(out)
		defer w.end()
		for {
			select {
			case <-w.news:
			case <-ctx.Done():
				return
			case <-d.life.Done():
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
			for {
				limited, cancel := d.bound(ctx, inspectLimit)
				err := w.arm(limited)
				cancel()
				if err == nil {
					break
				}
				if ctx.Err() != nil || d.life.Err() != nil {
					return
				}
				nap(ctx, time.Second)
			}
		}
	})
	if !running {
		w.end()
		return nil, errClosed
	}
	return out, nil
}

// watcher listens to a lock's directory, and to a semaphore's leases inside it.
type watcher struct {
	d    *Driver
	dir  string
	keys []watchKey
	news chan struct{}
}

func (w *watcher) changed() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watcher) end() {
	for _, k := range w.keys {
		w.d.hub.forget(k, w)
	}
	w.keys = nil
}

// arm sets the watches that are not set.
func (w *watcher) arm(ctx context.Context) error {
	w.end()
	for {
		f, err := w.listen(ctx, watchKey{w.dir, children})
		if errors.Is(err, zk.ErrNoNode) {
			if f, err = w.listen(ctx, watchKey{w.dir, presence}); err == nil && f.stat != nil {
				continue // it was made meanwhile
			}
			return err
		}
		if err != nil || !look(f.children).semaphore {
			return err
		}
		if _, err = w.listen(ctx, watchKey{w.dir + "/" + leasesDir, children}); errors.Is(err, zk.ErrNoNode) {
			_, err = w.listen(ctx, watchKey{w.dir + "/" + leasesDir, presence})
		}
		return err
	}
}

func (w *watcher) listen(ctx context.Context, key watchKey) (found, error) {
	w.keys = append(w.keys, key)
	return w.d.hub.listen(ctx, key, w)
}
