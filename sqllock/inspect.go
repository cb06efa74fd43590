package sqllock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"iter"

	"github.com/pawl-lock/pawl/driver"
)

// Inspect reads a name's row. A minimum hold is shown as a hold of nobody, whose ID begins with "kept/".
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	rec := driver.Record{Name: name}
	row, waiters, m, err := d.see(ctx, d.stored(name))
	if err != nil {
		return rec, err
	}
	rec.Waiters = waiters
	if row.found {
		rec.Holds = []driver.HeldBy{row.held(m, name)}
	}
	return rec, nil
}

// see reads a name outside of the line of requests. It needs no write lock.
func (d *Driver) see(ctx context.Context, name []byte) (row lockRow, waiters int, m moment, err error) {
	err = d.read(ctx, "inspect", func() error {
		if m, err = d.clock(); err != nil {
			return err
		}
		err := d.db.QueryRowContext(ctx, d.sections["see_lock"].text, name, m.boot, m.now).Scan(append(row.into(), &waiters)...)
		if errors.Is(err, sql.ErrNoRows) { // nothing was ever locked in this boot
			row, waiters = lockRow{}, 0
			return nil
		}
		row.found = row.id != ""
		return err
	})
	return row, waiters, m, err
}

// read runs a reading of the database, again if a writer was in the way.
func (d *Driver) read(ctx context.Context, what string, f func() error) error {
	if d.bad != nil {
		return d.bad
	}
	if d.ctx.Err() != nil {
		return errClosed()
	}
	err := d.retry(ctx, func() error {
		if err := d.setup.ready(ctx); err != nil {
			return err
		}
		if err := d.setup.sameFile(); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		return d.wrap(what, err)
	}
	return nil
}

const listPage = 256

// List reads the table in pages, in order of the names' bytes. No connection is used while the caller looks at a page.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		from := d.stored(prefix)
		end := after(from)
		cursor := []byte{}
		for {
			var page []driver.Record
			err := d.read(ctx, "list", func() error {
				page = page[:0]
				m, err := d.clock()
				if err != nil {
					return err
				}
				rows, err := d.db.QueryContext(ctx, d.sections["see_locks"].text, m.boot, m.now, from, cursor, end, listPage)
				return scanAll(rows, err, func(scan func(...any) error) error {
					var row lockRow
					var waiters int
					var stored []byte
					if err := scan(append(row.into(), &waiters, &stored)...); err != nil {
						return err
					}
					name := string(stored[len(d.opts.Prefix):])
					page = append(page, driver.Record{Name: name, Waiters: waiters, Holds: []driver.HeldBy{row.held(m, name)}})
					return nil
				})
			})
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, rec := range page {
				if !yield(rec, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			cursor = d.stored(page[len(page)-1].Name)
		}
	}
}

// after is the smallest string of bytes that is larger than all that begin with prefix; nil: there is none.
func after(prefix []byte) []byte {
	end := bytes.TrimRight(prefix, "\xff")
	if len(end) == 0 {
		return nil
	}
	end = bytes.Clone(end)
	end[len(end)-1]++
	return end
}
