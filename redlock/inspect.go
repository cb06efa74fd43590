package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/pawl-lock/pawl/driver"
)

// view is what the members that answered say of one name.
type view struct {
	limit int
	holds map[string][]driver.HeldBy // by ID, one for each member that shows it
}

func (v *view) add(r driver.Record) {
	v.limit = max(v.limit, r.Limit)
	for _, h := range r.Holds {
		if v.holds == nil {
			v.holds = map[string][]driver.HeldBy{}
		}
		v.holds[h.ID] = append(v.holds[h.ID], h)
	}
}

// record is the majority's view: what so many members have, together with those that did not answer, that it may be a
// hold of the quorum.
func (d *Driver) record(name string, v *view, silent int) driver.Record {
	out := driver.Record{Name: name, Waiters: -1}
	if v == nil {
		return out
	}
	for _, hs := range v.holds {
		if len(hs)+silent < d.majority {
			continue
		}
		h := hs[0]
		slices.SortFunc(hs, func(a, b driver.HeldBy) int { return -cmp.Compare(forever(a.Remaining), forever(b.Remaining)) })
		h.Remaining = hs[min(d.majority, len(hs))-1].Remaining
		for _, x := range hs {
			if x.Token != h.Token {
				h.Token = 0
			}
			if h.Who == (driver.Holder{}) {
				h.Who = x.Who
			}
			if h.Since.IsZero() {
				h.Since = x.Since
			}
		}
		if c := d.find(h.ID); c != nil {
			h.Token = c.first()
		}
		if !d.tokens {
			h.Token = 0
		}
		out.Holds = append(out.Holds, h)
	}
	if len(out.Holds) > 0 {
		out.Limit = v.limit
	}
	slices.SortFunc(out.Holds, func(a, b driver.HeldBy) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Inspect asks all members and shows the holds that a majority has, or may have if some do not answer. Less than a
// majority of answers is an error. Waiters are not known, and the token of a hold that another process got only when all
// members gave it the same number: which of several the quorum agreed on is known to nobody but the holder.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := d.ready(); err != nil {
		return driver.Record{}, err
	}
	if ctx.Err() != nil {
		return driver.Record{}, fmt.Errorf("redlock: %w", context.Cause(ctx))
	}
	type answer struct {
		r   driver.Record
		err error
	}
	v := &view{}
	e := d.newLook("inspect")
	err := each(ctx, d, d.nodeLimit(d.opts.MaxTTL), func(ctx context.Context, m *member) (a answer) {
		in, ok := m.d.(driver.Inspector)
		if !ok {
			return answer{err: errors.ErrUnsupported}
		}
		a.r, a.err = in.Inspect(ctx, name)
		return a
	}, func(m *member, a answer) bool {
		if e.Members[m.no] = a.err; a.err == nil {
			e.OK++
			v.add(a.r)
		}
		return e.enough(d, m)
	})
	if err := d.looked(e, err); err != nil {
		return driver.Record{}, err
	}
	return d.record(name, v, len(d.members)-e.OK), nil
}

// List asks all members and yields the names of which Inspect would show a hold, sorted.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := d.ready(); err != nil {
			yield(driver.Record{}, err)
			return
		}
		type answer struct {
			rs  []driver.Record
			err error
		}
		views := map[string]*view{}
		e := d.newLook("list")
		err := each(ctx, d, d.nodeLimit(d.opts.MaxTTL), func(ctx context.Context, m *member) (a answer) {
			in, ok := m.d.(driver.Inspector)
			if !ok {
				return answer{err: errors.ErrUnsupported}
			}
			for r, err := range in.List(ctx, prefix) {
				if err != nil {
					return answer{err: err}
				}
				a.rs = append(a.rs, r)
			}
			return a
		}, func(m *member, a answer) bool {
			if e.Members[m.no] = a.err; a.err == nil {
				e.OK++
				for _, r := range a.rs {
					if views[r.Name] == nil {
						views[r.Name] = &view{}
					}
					views[r.Name].add(r)
				}
			}
			return e.enough(d, m)
		})
		if err := d.looked(e, err); err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(views)) {
			if r := d.record(name, views[name], len(d.members)-e.OK); len(r.Holds) > 0 && !yield(r, nil) {
				return
			}
		}
	}
}

// look is the question to all members.
type look struct {
	QuorumError
	waits int // for so many members
}

func (d *Driver) newLook(op string) *look {
	e := &look{QuorumError{Op: op, Need: d.majority, Members: make([]error, len(d.members))}, len(d.members)}
	for i, m := range d.members {
		if m.isSilent() {
			e.Members[i] = errResting
			e.waits--
		}
	}
	return e
}

// enough notes that a member has answered, and reports whether all have but those that did not answer lately.
func (e *look) enough(d *Driver, m *member) bool {
	if !m.isSilent() {
		e.waits--
	}
	return e.waits <= 0 && e.OK >= d.majority
}

// looked says whether enough members answered.
func (d *Driver) looked(e *look, err error) error {
	unable := 0
	for _, err := range e.Members {
		if errors.Is(err, errors.ErrUnsupported) {
			unable++
		}
	}
	switch {
	case unable > len(d.members)-d.majority:
		return fmt.Errorf("redlock: %s: %d of %d members cannot: %w", e.Op, unable, len(d.members), errors.ErrUnsupported)
	case e.OK >= d.majority:
		return nil
	case err != nil:
		return fmt.Errorf("%w (%s)", err, &e.QuorumError)
	}
	return &e.QuorumError
}
