package sqllock

import (
	"context"
	"slices"
	"strings"
)

// watch is one observer of a name.
type watch struct {
	name  string // as stored
	ticks chan struct{}
	saw   string // the IDs of the holds, "" while the name is free
}

// Watch reports when the hold of a name begins or ends; renewals and waiters are not reported. The end of a hold whose
// process died is noticed within about a second.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	t := &watch{name: d.stored(name), ticks: make(chan struct{}, 1)}
	seen, err := d.see(ctx, "watch", []string{t.name}, false)
	if err != nil {
		return nil, err
	}
	t.saw = seen.of(t.name).ids()
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

// ids are those of all holds, as one text.
func (r *record) ids() string {
	var all strings.Builder
	for _, h := range r.Holds {
		all.WriteString(h.ID + " ")
	}
	return all.String()
}

// lookAtWatches compares the watched names with what was seen of them last.
func (w *waker) lookAtWatches(v *view) {
	w.mu.Lock()
	var names []string
	for t := range w.watches {
		names = append(names, t.name)
	}
	w.mu.Unlock()
	if len(names) == 0 {
		return
	}
	seen, err := w.d.see(w.d.ctx, "watch", names, false)
	if err != nil {
		return
	}
	for _, name := range names {
		for _, h := range seen.of(name).Holds {
			v.nextEnd = min(v.nextEnd, seen.left(h.Until))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.watches {
		if r := seen.of(t.name); slices.Contains(names, t.name) && t.saw != r.ids() {
			t.saw = r.ids()
			t.tick()
			v.changed = true
		}
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
