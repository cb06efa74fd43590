package sqllock

import (
	"bytes"
	"context"
	"iter"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// Inspect reads a name's row. A minimum hold is shown as a hold of nobody, whose ID begins with "kept/"; a result that is
// remembered is not a hold, and not shown.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	seen, err := d.see(ctx, "inspect", []string{d.stored(name)}, true)
	if err != nil {
		return driver.Record{Name: name}, err
	}
	return seen.show(d.stored(name), name), nil
}

// show is the record of a name for people.
func (s *sight) show(stored, name string) driver.Record {
	r := s.of(stored)
	out := driver.Record{Name: name}
	if !r.free() {
		out.Limit = r.limit
	}
	for i := range r.Holds {
		if h := &r.Holds[i]; h.Kind != driver.Once || !h.kept() {
			out.Holds = append(out.Holds, h.shown(s.moment, name))
		}
	}
	for _, w := range r.Line {
		if s.living[w.Process] {
			out.Waiters++
		}
	}
	return out
}

// see reads names outside of the line of requests. It needs no lock.
func (d *Driver) see(ctx context.Context, what string, names []string, whole bool) (seen *sight, err error) {
	err = d.read(what, func() error {
		seen, err = d.store.see(ctx, names, whole)
		return err
	})
	return seen, err
}

// read runs a reading of the database.
func (d *Driver) read(what string, f func() error) error {
	if d.bad != nil {
		return d.bad
	}
	if d.ctx.Err() != nil {
		return errClosed()
	}
	if err := f(); err != nil {
		return d.wrap(what, err)
	}
	return nil
}

const listPage = 256

// List reads the table in pages. No connection is used while the caller looks at a page.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		from := []byte(d.opts.Prefix + prefix)
		end := after(from)
		cursor := []byte{}
		for {
			var page *sight
			err := d.read("list", func() (err error) {
				page, err = d.store.page(ctx, from, end, cursor, listPage)
				return err
			})
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, r := range page.order {
				rec := page.show(r.name, strings.TrimPrefix(r.name, d.opts.Prefix))
				if !strings.HasPrefix(r.name, string(from)) || len(rec.Holds) == 0 && rec.Waiters == 0 {
					continue
				}
				if !yield(rec, nil) {
					return
				}
			}
			if len(page.order) < listPage {
				return
			}
			cursor = page.cursor
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
