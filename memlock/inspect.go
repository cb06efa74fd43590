package memlock

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// Inspect shows the holds of a name in the order of their tokens. A hold that was released and keeps its name taken is
// shown too; nobody can release it.
func (d *Driver) Inspect(ctx context.Context, name string) (out driver.Record, err error) {
	d.s.change(func(n *news) {
		if err = d.begin(ctx, "Inspect"); err == nil {
			out = d.s.show(name, n)
		}
	})
	return out, err
}

// List yields the names in use, sorted.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var names []string
		var err error
		d.s.change(func(*news) {
			if err = d.begin(ctx, "List"); err != nil {
				return
			}
			for name := range d.s.names {
				if strings.HasPrefix(name, prefix) {
					names = append(names, name)
				}
			}
		})
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		slices.Sort(names)
		for _, name := range names {
			var r driver.Record
			d.s.change(func(n *news) { r = d.s.show(name, n) })
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *store) show(name string, n *news) driver.Record {
	now := driver.Now()
	out := driver.Record{Name: name}
	r := s.find(name, now, n)
	if r == nil {
		return out
	}
	out.Limit, out.Waiters = r.limit, len(r.line)
	for _, h := range r.holds {
		out.Holds = append(out.Holds, h.show(now))
	}
	slices.SortFunc(out.Holds, func(a, b driver.HeldBy) int { return cmp.Compare(a.Token, b.Token) })
	return out
}

// show is the hold as others see it.
func (h *hold) show(now driver.Instant) driver.HeldBy {
	v := h.HeldBy
	v.Remaining = h.until.Sub(now)
	v.Value = bytes.Clone(h.Value)
	return v
}

// watch is one subscription to a name.
type watch struct {
	d    *Driver
	ch   chan struct{}
	stop func() bool
}

// Watch ticks at every change of who holds name and who waits for it. The channel is closed when ctx ends or d is closed.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := d.begin(ctx, "Watch"); err != nil {
		return nil, err
	}
	w := &watch{d: d, ch: make(chan struct{}, 1)}
	if s.watches[name] == nil {
		s.watches[name] = map[*watch]struct{}{}
	}
	s.watches[name][w] = struct{}{}
	w.stop = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endWatch(name, w)
	})
	return w.ch, nil
}

// endWatch closes a watch, once.
func (s *store) endWatch(name string, w *watch) {
	ws := s.watches[name]
	if _, ok := ws[w]; !ok {
		return
	}
	delete(ws, w)
	if len(ws) == 0 {
		delete(s.watches, name)
	}
	w.stop()
	close(w.ch)
}

// tick tells the watches of a name.
func (s *store) tick(name string) {
	for w := range s.watches[name] {
		select {
		case w.ch <- struct{}{}:
		default:
		}
	}
}
