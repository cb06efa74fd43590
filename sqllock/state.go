package sqllock

import (
	"fmt"
	"math"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// state is the one row that stands for a whole SQLite database.
type state struct {
	version int
	boot    string
	floor   int64 // the largest number of any name that has no row any more: deleting a row loses no number
	horizon int64 // no token was larger before the last power loss
	swept   int64
	cursor  []byte
	changed bool
}

// open reads the state, and starts a new boot if the state is of another one.
func (tx *fileTx) open() error {
	if err := tx.tick(); err != nil {
		return err
	}
	s := &tx.state
	found, err := tx.row("state", nil, &s.version, &s.boot, &s.floor, &s.horizon, &s.swept, &s.cursor)
	if s.cursor == nil {
		s.cursor = []byte{} // an empty value, not NULL
	}
	switch {
	case err != nil:
		return err
	case !found:
		return tx.reboot()
	case s.version != layout:
		return failure{errLayout(s.version)}
	case s.boot == tx.b.boot:
		tx.s.sawBoot.Store(true)
		return nil
	case tx.s.sawBoot.Load():
		// This machine cannot have been booted since: this process lives.
		return failure{fmt.Errorf("another machine uses the same file: SQLite locks work between the processes of one machine only: %w", driver.ErrInvalid)}
	}
	return tx.reboot()
}

func errLayout(version int) error {
	return fmt.Errorf("the tables have layout %d and this program knows layout %d: use one version of pawl everywhere, or another Options.Table: %w",
		version, layout, driver.ErrInvalid)
}

// reboot ends all holds and waiters of an earlier boot, whose processes died with it. A minimum hold goes on: it has no
// process, and its end on the wall clock is known.
func (tx *fileTx) reboot() error {
	all := newSight(0)
	var last int64
	if err := tx.rows("all", nil, all.each); err != nil {
		return err
	}
	for _, r := range all.order {
		last = max(last, r.last)
		kept := r.Holds[:0]
		for _, h := range r.Holds {
			if h.Kept > tx.b.wall {
				h.Until = tx.b.now + min(h.Kept-tx.b.wall, h.Kept-h.Since)
				kept = append(kept, h)
			}
		}
		r.contents, r.changed = contents{Holds: kept}, true
		if err := tx.put(r); err != nil {
			return err
		}
	}
	if err := tx.sweepProcesses(math.MaxInt64); err != nil {
		return err
	}
	s := &tx.state
	*s = state{version: layout, boot: tx.b.boot, floor: max(s.floor, s.horizon, last), horizon: s.horizon, cursor: []byte{}, changed: true}
	return nil
}

// forget remembers the number of a row that is about to be deleted.
func (tx *fileTx) forget(last int64) {
	if last > tx.state.floor {
		tx.state.floor, tx.state.changed = last, true
	}
}

// The horizon is this far ahead of the tokens when it is set, and set again when half of it is used up.
const horizonAhead = 10 * time.Minute

// reserve sees to it that numbers up to last stay given out after a power loss, which may undo the latest commits: the
// horizon is flushed to the disk once in a while, long before a token reaches it, and begins the numbers of the next boot.
func (tx *fileTx) reserve(last int64) {
	if s := &tx.state; last > s.horizon-horizonAhead.Microseconds()/2 {
		s.horizon, s.changed = max(last, tx.b.wall)+horizonAhead.Microseconds(), true
		tx.b.durable = true
	}
}

// putState writes the state if it has changed.
func (tx *fileTx) putState() error {
	s := tx.state
	if !s.changed {
		return nil
	}
	_, err := tx.exec("put_state", s.version, s.boot, s.floor, s.horizon, s.swept, s.cursor)
	return err
}

const (
	sweepEvery = time.Second // of all drivers together, and only while there are requests
	sweepRows  = 200
)

// sweep takes out what dead processes left: it looks at the next few rows of the table each time, wherever the last
// driver stopped.
func (tx *fileTx) sweep() error {
	s, b := &tx.state, tx.b
	if b.now >= s.swept && b.left(s.swept+sweepEvery.Microseconds()) > 0 {
		return nil
	}
	s.swept, s.changed = b.now, true
	some := newSight(sweepRows)
	if err := tx.rows("sweep_some", []any{s.cursor, sweepRows}, some.each); err != nil {
		return err
	}
	s.cursor = []byte{}
	if len(some.order) == sweepRows {
		s.cursor = []byte(some.order[sweepRows-1].name)
	}
	if some.lined() {
		var err error
		if some.living, err = tx.living(nil); err != nil {
			return err
		}
	}
	for _, r := range some.order {
		if b.records[r.name] != nil {
			continue
		}
		r.purge(b.now)
		if r.bury(some.living) {
			r.settle(b.now)
		}
		b.records[r.name] = r
	}
	return tx.sweepProcesses(b.now)
}

// sweepProcesses deletes the drivers that have said nothing until then.
func (tx *fileTx) sweepProcesses(until int64) error {
	dead := make(map[string]bool)
	if err := tx.rows("dead_processes", []any{until}, ids(dead)); err != nil || len(dead) == 0 {
		return err
	}
	for id := range dead {
		tx.dead = append(tx.dead, id)
	}
	_, err := tx.exec("sweep_process", until)
	return err
}
