package sqllock

import (
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// The line of a name is its waiting places, in order of arrival. When there is room for the first, it is called: for the
// length of its turn nobody else gets what it wants. A waiter that lets its turn pass, because it is dead or slow, loses
// its place in line; the first that could come instead was told in advance when to look.

// turnOf is how long a name is kept for a waiter that was called. A dead waiter costs the others that much, once.
func (d *Driver) turnOf(h driver.Hold) time.Duration {
	if h.Kind == driver.Fair || h.Kind == driver.Leader {
		return min(h.TTL, 3*time.Second) // order counts for more than speed
	}
	return d.turn
}

// A driver with places in line says every beatEvery that it is alive. Without a word for processLives it is dead to the
// others, and its places with it.
const (
	processLives = 10 * time.Second
	beatEvery    = 2 * time.Second
)

// room is how much of a name is taken.
type room struct{ holds, permits, writes int }

func (m *room) take(k driver.Kind, permits int) {
	m.holds++
	m.permits += permits
	if k == driver.Write {
		m.writes++
	}
}

// fits reports whether a request fits in beside what is taken.
func (m room) fits(r *record, k driver.Kind, permits int) bool {
	switch k {
	case driver.Read:
		return m.writes == 0
	case driver.Permits:
		return m.permits+permits <= r.limit
	}
	return m.holds == 0
}

// room is what the live holds take.
func (r *record) room(now int64) (m room) {
	for _, h := range r.Holds {
		if h.Until > now {
			m.take(h.Kind, h.Permits)
		}
	}
	return m
}

// mayEnter reports whether a place fits in beside the holds and beside all places ahead of it: all that are in line, if it
// is not.
func (r *record) mayEnter(id string, k driver.Kind, permits int, now int64) bool {
	m := r.room(now)
	for _, w := range r.Line {
		if w.ID == id {
			break
		}
		m.take(w.Kind, w.Permits)
	}
	return m.fits(r, k, permits)
}

// over reports whether a waiter has let its turn pass.
func (w waiter) over(now int64) bool { return w.At != 0 && w.At+w.Turn <= now }

// lapse takes those who let their turn pass out of the line.
func (r *record) lapse(now int64) {
	if r.done() != nil {
		return // there is room for all
	}
	for i := 0; i < len(r.Line); {
		if r.Line[i].over(now) {
			r.quit(i)
		} else {
			i++
		}
	}
}

// settle calls those for whom there is room now, and tells the next one when their turns are over.
func (r *record) settle(now int64) {
	done := r.done() != nil
	held := r.room(now)
	m, i := held, 0
	from := now
	for ; i < len(r.Line); i++ {
		w := &r.Line[i]
		if !done && !m.fits(r, w.Kind, w.Permits) {
			break
		}
		if w.At == 0 || w.At > now {
			r.call(w, now)
		}
		m.take(w.Kind, w.Permits)
		from = max(from, w.At+w.Turn)
	}
	if i < len(r.Line) && i > 0 {
		if w := &r.Line[i]; held.fits(r, w.Kind, w.Permits) {
			if w.At != from {
				r.call(w, from)
			}
			i++
		}
	}
	for ; i < len(r.Line); i++ {
		if r.Line[i].At != 0 {
			r.Line[i].At, r.changed = 0, true
		}
	}
}

func (r *record) call(w *waiter, at int64) {
	w.At, r.changed = at, true
	r.calls = append(r.calls, call{w.Process, w.ID, at})
}

// turnsEnd is when those have had their turn who stand before a place.
func (r *record) turnsEnd(place int) (end int64) {
	for _, w := range r.Line[:place] {
		if w.At != 0 {
			end = max(end, w.At+w.Turn)
		}
	}
	return end
}
