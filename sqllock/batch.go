package sqllock

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/driver"
)

// batch is some requests that are run together on what was read of their names.
type batch struct {
	d  *Driver
	tx transaction
	moment
	floor   int64              // new tokens are larger
	records map[string]*record // by stored name
	living  map[string]bool    // the waiting processes that live; nil: not known
	durable bool               // the commit must survive a power loss before anybody hears of it
}

// transaction is what a request may need of the database beside its record.
type transaction interface {
	beat() error                                               // says that this driver is alive, if that is due
	living(processes map[string]bool) (map[string]bool, error) // which of them are
}

func newBatch(d *Driver, tx transaction) *batch {
	return &batch{d: d, tx: tx, records: make(map[string]*record)}
}

// run runs one request. An error of the database, as opposed to an answer to the request, ends the batch.
func (b *batch) run(o *op) error {
	r := b.records[o.name]
	if r != nil {
		r.light = false // unless this request says so again
	}
	err := o.run(b, r)
	if errors.Is(err, errNeedLiving) {
		if b.slack != 0 {
			return err // a guess is not worth a question
		}
		asked := make(map[string]bool)
		for _, r := range b.records {
			r.processes(asked)
		}
		if b.living, err = b.tx.living(asked); err != nil {
			return err
		}
		err = o.run(b, r)
	}
	if failed(err) {
		return err
	}
	o.err = err
	return nil
}

// processes adds the processes that wait.
func (r *record) processes(to map[string]bool) {
	for _, w := range r.Line {
		to[w.Process] = true
	}
}

// notDone marks an error that ends a transaction before its commit.
func notDone(err error) error {
	if errors.Is(err, driver.ErrNotDone) {
		return err
	}
	return failure{fmt.Errorf("%w: %w", driver.ErrNotDone, err)}
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
