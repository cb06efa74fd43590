package memlock

import (
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// store is what a server would keep. Everything below is guarded by mu, places and holds included.
type store struct {
	mu      sync.Mutex
	names   map[string]*record // only names in use: somebody holds or waits, or a result is remembered
	floor   int64              // the largest token of any forgotten name
	watches map[string]map[*watch]struct{}
	ending  map[string]*ears // by ID: holds that are over, and whose loss is being reported
	life    life
}

// change runs one atomic step and reports afterwards.
func (s *store) change(f func(*news)) {
	var n news
	s.mu.Lock()
	f(&n)
	for _, h := range n.ended {
		s.ending[h.ID] = h.ears
	}
	s.mu.Unlock()
	n.deliver()
	if len(n.ended) > 0 {
		s.mu.Lock()
		for _, h := range n.ended {
			delete(s.ending, h.ID)
		}
		s.mu.Unlock()
	}
}

// record is one name in use.
type record struct {
	s      *store
	name   string
	family driver.Kind
	limit  int
	last   int64 // the last token given out
	holds  map[string]*hold
	room   room // what holds take
	line   []*place
	done   *result

	due   driver.Instant // when something may be over, or earlier; 0: never
	timer *time.Timer    // runs out at due
}

// hold is one live hold, or one that was released and keeps its name taken.
type hold struct {
	driver.HeldBy
	d     *Driver // got it
	ears  *ears
	span  int
	until driver.Instant
	kept  bool
}

// result is what a Once left behind.
type result struct {
	value []byte
	until driver.Instant
}

// find is the record of a name, without what is over by now; nil: the name is free.
func (s *store) find(name string, now driver.Instant, n *news) *record {
	if r := s.names[name]; r != nil {
		r.sweep(now, n)
	}
	return s.names[name]
}

// create makes the record of a free name.
func (s *store) create(p *place) *record {
	r := &record{s: s, name: p.r.Name, family: p.r.Kind.Family(), last: s.floor, holds: map[string]*hold{}}
	if p.r.Kind == driver.Permits {
		r.limit = p.r.Limit
	}
	s.names[p.r.Name] = r
	return r
}

// reserve gives out the next span tokens. The clock lets them rise over a restart of the process too, unless more than
// a million a second are used.
func (r *record) reserve(span int) int64 {
	first := max(r.last+1, time.Now().UnixMicro())
	r.last = first + int64(span) - 1
	return first
}

// drop ends a hold.
func (r *record) drop(h *hold) {
	delete(r.holds, h.ID)
	r.room.give(h.Kind, h.Permits)
}

// hold finds exactly h, if it lives.
func (r *record) hold(h driver.Hold) *hold {
	if r == nil {
		return nil
	}
	x := r.holds[h.ID]
	if x == nil || x.kept || h.Token != 0 && h.Token != x.Token {
		return nil
	}
	return x
}

// sweep ends what is over.
func (r *record) sweep(now driver.Instant, n *news) {
	if r.due == 0 || now < r.due {
		return
	}
	for _, h := range r.holds {
		if now >= h.until {
			r.drop(h)
			n.lost(h)
		}
	}
	r.line = slices.DeleteFunc(r.line, func(p *place) bool {
		p.inLine = now < p.until
		return !p.inLine
	})
	if r.done != nil && now >= r.done.until {
		r.done = nil
	}
	r.due = 0
	for _, h := range r.holds {
		r.wakeAt(h.until)
	}
	for _, p := range r.line {
		r.wakeAt(p.until)
	}
	if r.done != nil {
		r.wakeAt(r.done.until)
	}
	r.settle(now, n)
}

// settle follows every change: it forgets a name that got free, and tells who may get in.
func (r *record) settle(now driver.Instant, n *news) {
	r.s.tick(r.name)
	if len(r.holds) == 0 && len(r.line) == 0 && r.done == nil {
		// Without the floor a name that is used, forgotten and used again within one tick of the clock, or after a
		// long span, would get the same tokens twice.
		r.s.floor = max(r.s.floor, r.last)
		r.due = 0
		if r.timer != nil {
			r.timer.Stop()
		}
		delete(r.s.names, r.name)
		return
	}
	r.call(now, n)
}

// wakeAt looks at the record again at the given instant, or earlier.
func (r *record) wakeAt(at driver.Instant) {
	if r.due != 0 && r.due <= at {
		return
	}
	r.due = at
	if r.timer == nil {
		r.timer = time.AfterFunc(at.Until(), r.wake)
	} else {
		r.timer.Reset(at.Until())
	}
}

func (r *record) wake() {
	r.s.change(func(n *news) {
		if r.s.names[r.name] != r || r.due == 0 {
			return
		}
		now := driver.Now()
		if now < r.due { // timers do not run on quite the same clock
			r.timer.Reset(r.due.Sub(now))
			return
		}
		r.sweep(now, n)
	})
}
