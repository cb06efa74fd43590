package sqllock

import (
	"database/sql"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// The line of a name is the rows of waiting places, in order of arrival. When the name gets free, the first is called: for
// the length of its turn nobody else gets the name. A waiter that lets its turn pass, because it is dead or slow, loses
// its place in line; the second was told in advance when to look.

// turnOf is how long a name is kept for a waiter that was called. A dead waiter costs the others that much, once.
func turnOf(h driver.Hold) time.Duration {
	if h.Kind == driver.Fair {
		return min(h.TTL, 3*time.Second) // order counts for more than speed
	}
	return 50 * time.Millisecond
}

// A driver with places in line says every beatEvery that it is alive. Without a word for processLives it is dead to the
// others, and its places with it.
const (
	processLives = 10 * time.Second
	beatEvery    = 2 * time.Second
)

func (b *batch) beat() error {
	_, err := b.exec("beat", b.d.process, b.now+processLives.Microseconds())
	return err
}

// waiter is one row of a line.
type waiter struct {
	seq     int64
	id      string
	process string
	turn    int64 // µs
	until   int64 // its process is dead from then on
	callAt  sql.NullInt64
}

// turnEnd is when the turn of a waiter that was called is over.
func (w waiter) turnEnd() int64 { return w.callAt.Int64 + w.turn }

func (b *batch) front(name []byte) ([]waiter, error) {
	var out []waiter
	err := b.rows("front", []any{name}, func(scan func(...any) error) error {
		var w waiter
		if err := scan(&w.seq, &w.id, &w.process, &w.turn, &w.until, &w.callAt); err != nil {
			return err
		}
		out = append(out, w)
		return nil
	})
	return out, err
}

// next is the waiter for whom a free name is kept; nil if p may have it. nobody says that the line is empty.
func (b *batch) next(p *place) (w *waiter, nobody bool, err error) {
	for {
		line, err := b.front(p.name)
		if err != nil || len(line) == 0 {
			return nil, true, err
		}
		w := line[0]
		switch {
		case w.id == p.r.ID:
			return nil, false, nil
		case w.until <= b.now, w.callAt.Valid && w.turnEnd() <= b.now:
			if _, err := b.exec("quit", w.seq); err != nil {
				return nil, false, err
			}
		case !w.callAt.Valid: // the holder died
			if err := b.call(p.name, b.now); err != nil {
				return nil, false, err
			}
		default:
			return &w, false, nil
		}
	}
}

// call gives the first in line its turn, from an instant on, and tells the second when that is over.
func (b *batch) call(name []byte, at int64) error {
	line, err := b.front(name)
	for err == nil && len(line) > 0 && line[0].until <= b.now {
		if _, err = b.exec("quit", line[0].seq); err == nil {
			line, err = b.front(name)
		}
	}
	for _, w := range line {
		if err != nil {
			return err
		}
		_, err = b.exec("call", w.seq, at)
		at += w.turn
		if b.rings == nil {
			b.rings = make(map[string]bool)
		}
		b.rings[w.process] = true
	}
	return err
}

// join puts p at the end of the line, if it waits and is not in line yet, and counts who is before it.
func (b *batch) join(p *place) (ahead int, err error) {
	var seq int64
	var callAt sql.NullInt64
	in := false
	if p.r.Wait {
		if in, err = b.row("place", []any{p.name, p.r.ID}, &seq, &callAt); err != nil {
			return 0, err
		}
	}
	if !in {
		seq = 1<<63 - 1
	}
	if _, err = b.row("ahead", []any{p.name, seq}, &ahead); err != nil || in || !p.r.Wait {
		return ahead, err
	}
	if err := b.beat(); err != nil {
		return 0, err
	}
	_, err = b.exec("join", p.name, p.r.ID, b.d.process, p.turn.Microseconds())
	return ahead, err
}

// granted takes p, which has the name now, out of the line. Whoever was told to look need not any more.
func (b *batch) granted(p *place) error {
	if _, err := b.quit(p); err != nil {
		return err
	}
	_, err := b.exec("uncall", p.name)
	return err
}

// quit takes p out of the line, and reports whether it had been called.
func (b *batch) quit(p *place) (called bool, err error) {
	var seq int64
	var callAt sql.NullInt64
	in, err := b.row("place", []any{p.name, p.r.ID}, &seq, &callAt)
	if err != nil || !in {
		return false, err
	}
	_, err = b.exec("quit", seq)
	return callAt.Valid, err
}

// leave undoes all that p may have in the database.
func (b *batch) leave(p *place) error {
	called, err := b.quit(p)
	if err != nil {
		return err
	}
	row, err := b.lock(p.name)
	switch {
	case err != nil:
		return err
	case row.id == p.r.ID && row.found:
		_, err = b.release(p.r.Hold, driver.End{})
		return err
	case called && !b.live(row):
		return b.call(p.name, b.now)
	case called:
		return b.call(p.name, row.until) // a minimum hold, after which p would have been the first
	}
	return nil
}
