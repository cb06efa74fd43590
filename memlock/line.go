package memlock

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// patience is how long the next place that may pass waits for one that was told to come.
const patience = 20 * time.Millisecond

// room is how much of a name is taken.
type room struct {
	used, writes int
}

func (m *room) take(k driver.Kind, permits int) {
	m.used += permits
	if k == driver.Write {
		m.writes++
	}
}

func (m *room) give(k driver.Kind, permits int) {
	m.used -= permits
	if k == driver.Write {
		m.writes--
	}
}

// fits reports whether a request fits in beside what is taken.
func (m room) fits(r *driver.Request) bool {
	switch r.Kind {
	case driver.Read:
		return m.writes == 0
	case driver.Permits:
		return m.used+r.Permits <= r.Limit
	}
	return m.used == 0
}

// passes reports whether a place of kind k may overtake one of another kind of the family.
func passes(k, ahead driver.Kind) bool {
	barges := func(k driver.Kind) bool { return k == driver.Exclusive || k == driver.Once }
	return barges(k) && barges(ahead)
}

// enough is by how many a place is overtaken until, once told to come, it is waited for: a client with many waiters of its own is always
// the quicker one.
const enough = 4

// mayEnter reports whether p fits in beside the holds and beside those ahead whom it may not pass.
func (r *record) mayEnter(p *place, now driver.Instant) bool {
	m := r.room
	for _, q := range r.ahead(p) {
		if !passes(p.r.Kind, q.r.Kind) || q.passed >= enough && q.told != 0 && now < q.told.Add(patience) {
			m.take(q.r.Kind, q.r.Permits)
		}
	}
	return m.fits(&p.r)
}

// ahead is the part of the line in front of p: all of it if p is not in line.
func (r *record) ahead(p *place) []*place {
	if p.inLine {
		return r.line[:slices.Index(r.line, p)]
	}
	return r.line
}

func (r *record) enterLine(p *place) {
	r.line = append(r.line, p)
	p.inLine = true
}

func (r *record) leaveLine(p *place) {
	if p.inLine {
		r.line = slices.DeleteFunc(r.line, func(q *place) bool { return q == p })
		p.inLine = false
	}
}

// call tells those that may get in, once each until they have tried. Whoever was told counts as being in, so that the
// head of a line for one comes alone; only those that the next may pass are not waited for longer than patience.
func (r *record) call(now driver.Instant, n *news) {
	m := r.room
	for i, p := range r.line {
		if r.done == nil && !m.fits(&p.r) {
			return
		}
		if p.told == 0 {
			p.told = now
			n.add(p.ears, driver.Changed)
		}
		if i+1 < len(r.line) && passes(r.line[i+1].r.Kind, p.r.Kind) {
			if late := p.told.Add(patience); now < late {
				r.wakeAt(late)
			} else {
				continue
			}
		}
		m.take(p.r.Kind, p.r.Permits)
	}
}

// refusal says by whom p was kept out.
func (r *record) refusal(p *place, now driver.Instant) *driver.HeldError {
	e := &driver.HeldError{Ahead: len(r.ahead(p))}
	if !r.room.fits(&p.r) {
		// A writer needs every reader to be gone, everybody else the first that goes.
		var by *hold
		for _, h := range r.holds {
			if by == nil || (h.until < by.until) != (p.r.Kind == driver.Write) {
				by = h
			}
		}
		e.By = by.show(now)
		e.Remaining = e.By.Remaining
	}
	if p.r.Wait {
		e.Again = p.r.TTL / 3
	}
	return e
}

// want tells the holds that somebody waits for what they have.
func (r *record) want(n *news) {
	for _, h := range r.holds {
		if !h.kept {
			n.add(h.ears, driver.Wanted)
		}
	}
}
