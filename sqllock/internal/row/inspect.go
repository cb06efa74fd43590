package row

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Inspect reads a name's row. Another client's hold is shown with what it wrote as its ID, which Release takes. A name that
// is only kept is shown as a hold whose ID begins with "kept/".
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	out := driver.Record{Name: name, Waiters: -1}
	if d.bad != nil {
		return out, d.bad
	}
	ctx, done := d.bound(ctx, 10*time.Second)
	defer done()
	err := d.retry(ctx, "inspect", func() error {
		t, err := d.look(ctx)
		if err != nil {
			return err
		}
		if t.fits(d.stored(name)) != nil {
			return nil // nobody can hold it
		}
		seen, err := d.read(ctx, t, d.stored(name))
		if err != nil {
			return err
		}
		out.Holds = nil
		if l := seen.rows[d.stored(name)]; l.heldAt(seen.now) {
			out.Holds = append(out.Holds, l.shown(name, seen.now))
		}
		return nil
	})
	return out, err
}

const listPage = 256

// List reads the rows that are held, in pages.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		last, from := "", d.stored(prefix)
		for first := true; ; first = false {
			seen, err := d.page(ctx, last, first)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, key := range seen.order {
				last = key
				name, l := strings.TrimPrefix(key, d.lay.Prefix), seen.rows[key]
				if !strings.HasPrefix(key, from) || name == "" || !l.heldAt(seen.now) {
					continue
				}
				if !yield(driver.Record{Name: name, Waiters: -1, Holds: []driver.HeldBy{l.shown(name, seen.now)}}, nil) {
					return
				}
			}
			if len(seen.order) < listPage {
				return
			}
		}
	}
}

// page reads rows that are held, in the order of the table's keys.
func (d *Driver) page(ctx context.Context, last string, first bool) (seen *sight, err error) {
	if d.bad != nil {
		return nil, d.bad
	}
	ctx, done := d.bound(ctx, 10*time.Second)
	defer done()
	err = d.retry(ctx, "list", func() error {
		t, err := d.look(ctx)
		if err != nil {
			return err
		}
		now, err := d.read(ctx, t, "")
		if err != nil {
			return err
		}
		s, key := d.statement(), "t."+d.wire.quote(d.lay.Key)
		until := "t." + d.wire.quote(d.lay.Until)
		s.add("SELECT %s FROM %s AS t WHERE (%s > %s OR %s IS NULL)", d.fields(t), d.name(d.lay.Table), until, t.time(s, t.floor(now.now)), d.wire.micros(until))
		if !first {
			s.add(" AND %s > %s", key, d.wire.text(s, last))
		}
		s.add(" ORDER BY %s LIMIT %d", key, listPage)
		seen, err = d.scan(ctx, d.db, s, nil)
		return err
	})
	return seen, err
}
