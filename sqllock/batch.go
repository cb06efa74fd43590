package sqllock

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/driver"
)

// begin begins a transaction that has the write lock.
func (d *Driver) begin() (*batch, error) {
	if err := d.setup.ready(d.ctx); err != nil {
		return nil, err
	}
	if err := d.setup.sameFile(); err != nil {
		return nil, err
	}
	tx, err := d.db.BeginTx(d.ctx, nil)
	if err != nil {
		return nil, err
	}
	b := &batch{d: d, tx: tx}
	// The pool may begin transactions as readers; a reader that turns into a writer later can fail for good.
	if _, err := b.exec("seize"); err != nil {
		tx.Rollback()
		return nil, err
	}
	return b, nil
}

// batch is one transaction.
type batch struct {
	d  *Driver
	tx *sql.Tx
	moment
	state   state
	durable bool            // the commit must survive a power loss before anybody hears of it
	rings   map[string]bool // the drivers whose places were called
	dead    []string        // the drivers that were found dead
}

// all runs requests, each with a new reading of the clock, and commits. Afterwards each knows its own answer, unless the
// error that all answers is for all of them.
func (b *batch) all(ops []*op) error {
	if len(ops) == 0 {
		return b.tx.Rollback()
	}
	defer b.tx.Rollback()
	if err := b.open(); err != nil {
		return notDone(err)
	}
	for _, o := range ops {
		if err := b.tick(); err != nil {
			return notDone(err)
		}
		if o.err = o.run(b); failed(o.err) {
			return notDone(o.err)
		}
	}
	if err := b.sweep(); err != nil {
		return notDone(err)
	}
	if err := b.save(); err != nil {
		return notDone(err)
	}
	if err := b.tx.Commit(); err != nil {
		if b.d.dialect.fault(err).again {
			return notDone(err) // and rolled back
		}
		return failure{err}
	}
	b.d.ring(b.rings)
	b.d.bury(b.dead)
	if b.durable {
		if err := b.d.setup.flush(); err != nil {
			return failure{err}
		}
	}
	return nil
}

// notDone marks an error that ends a transaction before its commit.
func notDone(err error) error {
	if errors.Is(err, driver.ErrNotDone) {
		return err
	}
	return failure{fmt.Errorf("%w: %w", driver.ErrNotDone, err)}
}

func (b *batch) tick() error {
	m, err := b.d.clock()
	if err != nil {
		return failure{err}
	}
	b.moment = m
	return nil
}

// exec runs a statement of the dialect's file and answers how many rows it changed.
func (b *batch) exec(statement string, args ...any) (int64, error) {
	var r sql.Result
	var err error
	if st := b.d.setup.statement(statement); st != nil {
		r, err = b.tx.Stmt(st).Exec(args...)
	} else {
		r, err = b.tx.Exec(b.d.sections[statement].text, args...)
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
func (b *batch) row(statement string, args []any, into ...any) (found bool, err error) {
	err = b.rows(statement, args, func(scan func(...any) error) error {
		found = true
		return scan(into...)
	})
	return found, err
}

// rows runs a statement and calls each with every row's scanner. each must not run statements.
func (b *batch) rows(statement string, args []any, each func(scan func(...any) error) error) error {
	var rows *sql.Rows
	var err error
	if st := b.d.setup.statement(statement); st != nil {
		rows, err = b.tx.Stmt(st).Query(args...)
	} else {
		rows, err = b.tx.Query(b.d.sections[statement].text, args...)
	}
	return scanAll(rows, err, each)
}

func scanAll(rows *sql.Rows, err error, each func(scan func(...any) error) error) error {
	if err != nil {
		return failure{err}
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return failure{err}
		}
	}
	if err := rows.Err(); err != nil {
		return failure{err}
	}
	return nil
}
