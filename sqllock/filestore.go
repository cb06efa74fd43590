package sqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// fileStore is SQLite: one transaction at a time has the write lock of the whole file, and does all that is queued.
type fileStore struct {
	d *Driver
	setup
}

func newFileStore(d *Driver) store {
	s := &fileStore{d: d}
	s.setup.d, s.setup.turns = d, make(chan struct{}, 1)
	return s
}

// fileTx is a transaction that has the write lock.
type fileTx struct {
	s *fileStore
	b *batch
	*sql.Tx
	state state
	dead  []string // the drivers that were found dead
}

// turn gets the write lock, and then takes whatever has been queued up to now. It does nothing if nobody waits for it any
// more.
func (s *fileStore) turn(q *queue) {
	tx, err := s.begin(q)
	if tx == nil && err == nil {
		return
	}
	ops := q.take()
	if err == nil {
		err = s.run(tx, ops)
	}
	q.answer(ops, err)
}

// lanes is 1: only one at a time can have the write lock.
func (s *fileStore) lanes() int { return 1 }

// alone leaves a request to turn, whose transaction has the others as well that come while it waits for the write lock.
func (s *fileStore) alone(context.Context, time.Duration, *queue, *op) bool { return false }

func (s *fileStore) begin(q *queue) (*fileTx, error) {
	var p pause
	for {
		tx, err := s.seize()
		if err == nil {
			return tx, nil
		}
		if !s.d.dialect.fault(err).again {
			return nil, notDone(err)
		}
		q.refuse(err)
		if p.wait(context.Background(), s.d.ctx) != nil {
			return nil, notDone(driver.ErrClosed)
		}
		if q.empty() {
			return nil, nil
		}
	}
}

// run runs requests in one transaction. An error counts for all of them.
func (s *fileStore) run(tx *fileTx, ops []*op) error {
	var p pause
	for {
		err := tx.all(ops)
		if err == nil || !s.d.dialect.fault(err).again {
			return err
		}
		for { // a conflict: the whole transaction again
			if p.wait(context.Background(), s.d.ctx) != nil {
				return err
			}
			var again error
			if tx, again = s.seize(); again == nil {
				break
			}
			if !s.d.dialect.fault(again).again {
				return notDone(again)
			}
		}
	}
}

// seize begins a transaction that has the write lock.
func (s *fileStore) seize() (*fileTx, error) {
	if err := s.ready(s.d.ctx); err != nil {
		return nil, err
	}
	if err := s.sameFile(); err != nil {
		return nil, err
	}
	inner, err := s.d.db.BeginTx(s.d.ctx, nil)
	if err != nil {
		return nil, err
	}
	tx := &fileTx{s: s, Tx: inner}
	tx.b = newBatch(s.d, tx)
	// The pool may begin transactions as readers; a reader that turns into a writer later can fail for good.
	if _, err := tx.exec("seize"); err != nil {
		tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// all runs requests, each with a new reading of the clock, and commits. Afterwards each knows its own answer, unless the
// error that all answers is for all of them.
func (tx *fileTx) all(ops []*op) error {
	if len(ops) == 0 {
		return tx.Rollback()
	}
	defer tx.Rollback()
	if err := tx.open(); err != nil {
		return notDone(err)
	}
	for _, o := range ops {
		if err := tx.one(o); err != nil {
			return notDone(err)
		}
	}
	if err := tx.save(); err != nil {
		return notDone(err)
	}
	if err := tx.Commit(); err != nil {
		if tx.s.d.dialect.fault(err).again {
			return notDone(err) // and rolled back
		}
		return failure{err}
	}
	rings := make(map[string]bool)
	for _, r := range tx.b.records {
		for _, c := range r.calls {
			rings[c.process] = true
		}
	}
	tx.s.ring(rings)
	tx.s.bury(tx.dead)
	if tx.b.durable {
		if err := tx.s.flush(); err != nil {
			return failure{err}
		}
	}
	return nil
}

func (tx *fileTx) one(o *op) error {
	if err := tx.tick(); err != nil {
		return err
	}
	if o.name != "" && tx.b.records[o.name] == nil {
		r := &record{name: o.name}
		var text string
		var err error
		if r.found, err = tx.row("lock", []any{[]byte(o.name)}, &r.kind, &r.limit, &r.last, &text); err != nil {
			return err
		}
		if r.found {
			if err := r.read(text); err != nil {
				return failure{err}
			}
		}
		tx.b.records[o.name] = r
	}
	return tx.b.run(o)
}

// save writes what has changed.
func (tx *fileTx) save() error {
	if err := tx.sweep(); err != nil {
		return err
	}
	for _, r := range tx.b.records {
		if err := tx.put(r); err != nil {
			return err
		}
	}
	return tx.putState()
}

func (tx *fileTx) put(r *record) error {
	if !r.changed {
		return nil
	}
	var err error
	switch {
	case !r.free():
		tx.reserve(r.last)
		_, err = tx.exec("put_lock", []byte(r.name), r.kind, r.limit, r.last, r.end(), r.text())
	case r.found:
		tx.reserve(r.last)
		tx.forget(r.last)
		_, err = tx.exec("delete_lock", []byte(r.name))
	}
	return err
}

func (tx *fileTx) beat() error {
	_, err := tx.exec("beat", tx.s.d.process, tx.b.now+processLives.Microseconds())
	return err
}

func (tx *fileTx) living(map[string]bool) (map[string]bool, error) {
	out := make(map[string]bool)
	err := tx.rows("living", []any{tx.b.now}, ids(out))
	return out, err
}

func ids(to map[string]bool) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		to[id] = true
		return err
	}
}

func (tx *fileTx) tick() error {
	m, err := tx.s.d.clock()
	if err != nil {
		return failure{err}
	}
	tx.b.moment, tx.b.floor = m, tx.state.floor
	return nil
}

// exec runs a statement of the dialect's file and answers how many rows it changed.
func (tx *fileTx) exec(statement string, args ...any) (int64, error) {
	var r sql.Result
	var err error
	if st := tx.s.statement(statement); st != nil {
		r, err = tx.Stmt(st).Exec(args...)
	} else {
		r, err = tx.Exec(tx.s.d.sections[statement].text, args...)
	}
	if err != nil {
		return 0, failure{err}
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, failure{err}
	}
	return n, nil
}

// row runs a statement that answers at most one row, and reports whether there was one.
func (tx *fileTx) row(statement string, args []any, into ...any) (found bool, err error) {
	err = tx.rows(statement, args, func(scan func(...any) error) error {
		found = true
		return scan(into...)
	})
	return found, err
}

// rows runs a statement and calls each with every row's scanner. each must not run statements.
func (tx *fileTx) rows(statement string, args []any, each func(scan func(...any) error) error) error {
	var rows *sql.Rows
	var err error
	if st := tx.s.statement(statement); st != nil {
		rows, err = tx.Stmt(st).Query(args...)
	} else {
		rows, err = tx.Query(tx.s.d.sections[statement].text, args...)
	}
	return scanAll(rows, err, each)
}

// see reads names without the write lock.
func (s *fileStore) see(ctx context.Context, names []string, whole bool) (*sight, error) {
	out := newSight(len(names))
	var hexed []string
	for _, name := range names {
		hexed = append(hexed, hex.EncodeToString([]byte(name)))
	}
	list, err := json.Marshal(hexed)
	if err != nil {
		return nil, err
	}
	err = s.reading(ctx, func() error {
		var err error
		if out.moment, err = s.d.clock(); err != nil {
			return err
		}
		rows, err := s.statement("see").QueryContext(ctx, string(list), out.boot)
		if err := out.scan(rows, err); err != nil || !whole || !out.lined() {
			return err
		}
		rows, err = s.statement("living").QueryContext(ctx, out.now)
		return scanAll(rows, err, ids(out.living))
	})
	return out, err
}

// page reads the next records of a range of names, in order of their bytes.
func (s *fileStore) page(ctx context.Context, from, end, cursor []byte, n int) (*sight, error) {
	out := newSight(n)
	err := s.reading(ctx, func() error {
		var err error
		if out.moment, err = s.d.clock(); err != nil {
			return err
		}
		rows, err := s.d.db.QueryContext(ctx, s.d.sections["see_some"].text, out.boot, from, cursor, end, n)
		if err := out.scan(rows, err); err != nil || !out.lined() {
			return err
		}
		rows, err = s.statement("living").QueryContext(ctx, out.now)
		return scanAll(rows, err, ids(out.living))
	})
	return out, err
}

// reading runs f, again if a writer was in the way.
func (s *fileStore) reading(ctx context.Context, f func() error) error {
	return s.d.retry(ctx, func() error {
		if err := s.ready(ctx); err != nil {
			return err
		}
		if err := s.sameFile(); err != nil {
			return err
		}
		return f()
	})
}

// wait opens the bell of this driver while it has places in line.
func (s *fileStore) wait(places bool) (news <-chan struct{}, anew bool) {
	if places {
		anew = s.bell.open(s.bellOf(s.d.process), s.mode())
	}
	return s.bell.news(), anew
}

func (s *fileStore) polls() bool { return false }

func (s *fileStore) hears() bool { return false }

func (s *fileStore) waiting() string { return "notifications" }

func (s *fileStore) unwait() { s.bell.close() }

// prepareFile brings the file into WAL mode and creates the tables.
func (s *fileStore) prepareFile(ctx context.Context) error {
	d := s.d
	var mode string
	err := d.retry(ctx, func() error {
		return d.db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	})
	if err != nil {
		return d.hinted(err)
	}
	if mode != "wal" {
		return fmt.Errorf("SQLite cannot use its write-ahead log here (journal mode %s): choose a file on a local disk", mode)
	}
	if err := d.CreateSchema(ctx); err != nil {
		return err
	}
	// Whoever may only read would learn it at the first lock, which is too late. If another program is writing just now,
	// this one may write as well.
	tx, err := s.seize()
	if err == nil {
		return tx.Rollback()
	}
	if d.dialect.fault(err).again {
		return nil
	}
	return d.hinted(err)
}
