package sqllock

import (
	"fmt"
	"math"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// state is the one row that stands for the whole database.
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
func (b *batch) open() error {
	if err := b.tick(); err != nil {
		return err
	}
	s := &b.state
	found, err := b.row("state", nil, &s.version, &s.boot, &s.floor, &s.horizon, &s.swept, &s.cursor)
	if s.cursor == nil {
		s.cursor = []byte{} // an empty value, not NULL
	}
	switch {
	case err != nil:
		return err
	case !found:
		return b.reboot()
	case s.version != layout:
		return failure{fmt.Errorf("the tables have layout %d and this program knows layout %d: use one version of pawl everywhere, or another Options.Table: %w",
			s.version, layout, driver.ErrInvalid)}
	case s.boot == b.boot:
		b.d.sawBoot.Store(true)
		return nil
	case b.d.sawBoot.Load():
		// This machine cannot have been booted since: this process lives.
		return failure{fmt.Errorf("another machine uses the same file: SQLite locks work between the processes of one machine only: %w", driver.ErrInvalid)}
	}
	return b.reboot()
}

// reboot ends all holds and waiters of an earlier boot, whose processes died with it. A minimum hold goes on: it has no
// process, and its end on the wall clock is known.
func (b *batch) reboot() error {
	var last int64
	if _, err := b.row("last_of_all", nil, &last); err != nil {
		return err
	}
	if _, err := b.exec("reboot_kept", b.now, b.wall); err != nil {
		return err
	}
	if _, err := b.exec("reboot_locks", b.wall); err != nil {
		return err
	}
	if _, err := b.exec("reboot_line"); err != nil {
		return err
	}
	if err := b.sweepProcesses(math.MaxInt64); err != nil {
		return err
	}
	s := &b.state
	*s = state{version: layout, boot: b.boot, floor: max(s.floor, s.horizon, last), horizon: s.horizon, cursor: []byte{}, changed: true}
	return nil
}

// forget remembers the number of a row that is about to be deleted.
func (b *batch) forget(last int64) {
	if last > b.state.floor {
		b.state.floor, b.state.changed = last, true
	}
}

// The horizon is this far ahead of the tokens when it is set, and set again when half of it is used up.
const horizonAhead = 10 * time.Minute

// reserve sees to it that numbers up to last stay given out after a power loss, which may undo the latest commits: the
// horizon is flushed to the disk once in a while, long before a token reaches it, and begins the numbers of the next boot.
func (b *batch) reserve(last int64) {
	if s := &b.state; last > s.horizon-horizonAhead.Microseconds()/2 {
		s.horizon, s.changed = max(last, b.wall)+horizonAhead.Microseconds(), true
		b.durable = true
	}
}

// save writes the state if it has changed.
func (b *batch) save() error {
	s := b.state
	if !s.changed {
		return nil
	}
	_, err := b.exec("put_state", s.version, s.boot, s.floor, s.horizon, s.swept, s.cursor)
	return err
}

const (
	sweepEvery = time.Second // of all drivers together, and only while there are requests
	sweepRows  = 200
)

// sweep deletes what dead processes left: it looks at the next few rows of the table each time, wherever the last
// driver stopped.
func (b *batch) sweep() error {
	s := &b.state
	if b.now >= s.swept && b.left(s.swept+sweepEvery.Microseconds()) > 0 {
		return nil
	}
	s.swept, s.changed = b.now, true
	var dead [][]byte
	seen, last, cursor := 0, int64(0), []byte{}
	err := b.rows("sweep_some", []any{s.cursor, sweepRows}, func(scan func(...any) error) error {
		var name []byte
		var until, n int64
		if err := scan(&name, &until, &n); err != nil {
			return err
		}
		if seen++; seen == sweepRows {
			cursor = name
		}
		if until <= b.now {
			dead, last = append(dead, name), max(last, n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.cursor = cursor
	for _, name := range dead {
		if _, err := b.exec("delete_lock", name); err != nil {
			return err
		}
	}
	b.forget(last)
	if _, err := b.exec("sweep_line", b.now); err != nil {
		return err
	}
	return b.sweepProcesses(b.now)
}

// sweepProcesses deletes the drivers that have said nothing until then.
func (b *batch) sweepProcesses(until int64) error {
	err := b.rows("dead_processes", []any{until}, func(scan func(...any) error) error {
		var id string
		if err := scan(&id); err != nil {
			return err
		}
		b.dead = append(b.dead, id)
		return nil
	})
	if err != nil || len(b.dead) == 0 {
		return err
	}
	_, err = b.exec("sweep_process", until)
	return err
}
