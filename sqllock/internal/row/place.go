package row

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// place is a contender's place. This table has no line: whoever asks first when the row is free gets it.
type place struct {
	d *Driver
	r driver.Request

	// Calls on one place never overlap, so these need no lock.
	open bool // a COMMIT may be under way, or has won something
	over bool

	mu   sync.Mutex
	gone bool // nothing is reported any more
}

// widest keeps sums of tokens far from the end of an int64.
const (
	widest       = 1 << 40
	largestToken = 1 << 61
)

// Try makes one attempt.
func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
	switch {
	case p.over, p.open:
		return driver.Grant{}, fmt.Errorf("%s: this place was given up, or its last attempt had no answer: enter anew: %w: %w", p.d.lay.Package, driver.ErrNotDone, driver.ErrInvalid)
	case span < 1 || int64(span) > widest:
		return driver.Grant{}, p.d.invalid("%d tokens at once: at least 1 and at most %d", span, int64(widest))
	}
	ctx, done := p.d.bound(ctx, p.r.TTL)
	defer done()
	var g driver.Grant
	err := p.d.retry(ctx, "try", func() (err error) {
		g, err = p.once(ctx, span)
		if err != nil && !p.open && !answered(err) {
			err = fmt.Errorf("%w: %w", driver.ErrNotDone, err)
		}
		return err
	})
	switch {
	case err == nil:
		p.d.poll.remove(p)
		p.d.clean()
	case p.r.Wait && errors.Is(err, driver.ErrHeld):
		p.d.poll.add(p)
	}
	return g, err
}

// answered reports whether err is an answer to the request, and not a failure.
func answered(err error) bool {
	for _, certain := range []error{driver.ErrHeld, driver.ErrNotHeld, driver.ErrMismatch, driver.ErrInvalid, driver.ErrNotDone} {
		if errors.Is(err, certain) {
			return true
		}
	}
	return false
}

func (p *place) once(ctx context.Context, span int) (driver.Grant, error) {
	d, key := p.d, p.d.stored(p.r.Name)
	t, err := d.look(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	if err := t.fits(key); err != nil {
		return driver.Grant{}, d.invalid("the name %.80q: %v", key, err)
	}
	g := driver.Grant{Sent: driver.Now(), TTL: p.r.TTL, Span: 1}
	seen, err := d.read(ctx, t, key)
	if err != nil {
		return driver.Grant{}, err
	}
	if seen.like != nil {
		return driver.Grant{}, d.invalid("the name %.80q cannot be told from %.80q, which is in the table %s: its column %s compares by the collation %s; choose another name, or give the column a binary collation",
			key, seen.like.key, d.lay.Table, d.lay.Key, t.collation)
	}
	l := seen.rows[key]
	switch {
	case l.heldAt(seen.now) && l.is(driver.Hold{ID: p.r.ID}): // asked twice: still one hold
		if err := d.Renew(ctx, []driver.Hold{p.r.Hold})[0]; err != nil {
			return driver.Grant{}, err
		}
		_, g.Token, _, _ = parse(l.by)
		p.open = true
		return g, nil
	case l.heldAt(seen.now):
		by := l.shown(p.r.Name, seen.now)
		return driver.Grant{}, &driver.HeldError{By: by, Remaining: by.Remaining, Ahead: -1}
	}
	err = d.transact(ctx, func(tx *sql.Conn) error {
		if d.lay.Tokens != "" {
			g.Span = span
			if g.Token, err = d.wire.number(ctx, d, tx, key, seen.now, span); err != nil {
				return err
			}
			if g.Token < 1 || g.Token > largestToken {
				return d.invalid("the tokens of %q are used up: somebody changed the table %s", p.r.Name, d.lay.Tokens)
			}
		}
		by, err := compose(p.r.ID, g.Token, p.r.Who, t.byChars)
		if err != nil {
			return d.invalid("%s: %v", d.lay.Table, err)
		}
		next := line{key: key, by: by, at: t.floor(seen.now), until: t.ceil(seen.now + p.r.TTL.Microseconds())}
		s := d.statement()
		if l == nil {
			d.insert(s, t, next)
		} else {
			d.update(s, t, l, next, true)
		}
		return one(s.exec(ctx, tx))
	})
	switch {
	case err == nil:
		p.open = true
		return g, nil
	case errors.Is(err, errCommit) && !d.wire.fault(err).undone:
		p.open = true
	case d.wire.fault(err).exists: // somebody else was first, or has a name that is the same to the table
		err = errRace
	}
	return driver.Grant{}, err
}

// Leave gives back what an unanswered Try may have won. A COMMIT that is still under way keeps its row locked, whether it
// inserts or updates it, so an attempt to insert the same row waits for its end. Then the row tells.
func (p *place) Leave(ctx context.Context) error {
	d := p.d
	p.over = true
	d.poll.remove(p)
	if !p.open {
		return nil
	}
	ctx, done := d.bound(ctx, max(p.r.TTL, 5*time.Second))
	defer done()
	err := d.retry(ctx, "leave", func() error {
		t, err := d.look(ctx)
		if err != nil {
			return err
		}
		key := d.stored(p.r.Name)
		seen, err := d.read(ctx, t, key)
		if err != nil {
			return err
		}
		err = d.transact(ctx, func(tx *sql.Conn) error {
			s := d.statement()
			d.insert(s, t, line{key: key, by: p.r.ID, at: t.floor(seen.now), until: t.floor(seen.now)})
			switch n, err := s.exec(ctx, tx); {
			case err == nil && n > 0:
				return errNothing // there was no row, and there is to be none
			case err != nil && !d.wire.fault(err).exists:
				return err
			}
			seen, err := d.readIn(ctx, tx, t, d.wire.forUpdate(), key)
			if err != nil {
				return err
			}
			l := seen.rows[key]
			if !l.heldAt(seen.now) || !l.is(driver.Hold{ID: p.r.ID}) {
				return errNothing
			}
			s = d.statement()
			if d.lay.Stays {
				d.update(s, t, l, line{by: l.by, until: t.floor(seen.now)}, false)
			} else {
				d.remove(s, t, l)
			}
			return one(s.exec(ctx, tx))
		})
		if errors.Is(err, errNothing) {
			return nil
		}
		return err
	})
	if err == nil {
		p.open = false
	}
	return err
}

var errNothing = errors.New("there is nothing to undo")

// tell reports that the row is free, unless the place is gone.
func (p *place) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.r.Notify(driver.Changed)
	}
}

// hush ends or begins reports: none is under way when it returns.
func (p *place) hush(gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = gone
}
