package sqllock

import (
	"context"
)

// watch is one observer of a name.
type watch struct {
	name  []byte
	ticks chan struct{}
	saw   string // the ID of the hold, "" while the name is free
}

// Watch reports when the hold of a name begins or ends; renewals and waiters are not reported. The end of a hold whose
// process died is noticed within about a second.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	t := &watch{name: d.stored(name), ticks: make(chan struct{}, 1)}
	row, _, _, err := d.see(ctx, t.name)
	if err != nil {
		return nil, err
	}
	t.saw = row.id
	if !d.waker.watch(t) {
		return nil, errClosed()
	}
	context.AfterFunc(ctx, func() { d.waker.unwatch(t) })
	return t.ticks, nil
}

func (w *waker) watch(t *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.watches == nil {
		w.watches = make(map[*watch]struct{})
	}
	w.watches[t] = struct{}{}
	w.start()
	return true
}

func (w *waker) unwatch(t *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.watches[t]; ok {
		delete(w.watches, t)
		t.close()
	}
}

// lookAtWatches compares the watched names with what was seen of them last.
func (w *waker) lookAtWatches(v *view) {
	w.mu.Lock()
	var all []*watch
	for t := range w.watches {
		all = append(all, t)
	}
	w.mu.Unlock()
	for _, t := range all {
		row, _, m, err := w.d.see(w.d.ctx, t.name)
		if err != nil {
			return
		}
		if row.found {
			v.nextEnd = min(v.nextEnd, m.left(row.until))
		}
		w.mu.Lock()
		_, on := w.watches[t]
		if on && t.saw != row.id {
			t.tick()
		}
		t.saw = row.id
		w.mu.Unlock()
	}
}

// tick and close are called with waker.mu, so that they never meet. Neither blocks.
func (t *watch) tick() {
	select {
	case t.ticks <- struct{}{}:
	default:
	}
}

func (t *watch) close() { close(t.ticks) }
