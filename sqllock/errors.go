package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-lock/pawl/driver"
)

// failure is an error of the database, as opposed to an answer to a request. It ends the transaction.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func failed(err error) bool {
	var f failure
	return errors.As(err, &f)
}

func isHeld(err error) bool { return errors.Is(err, driver.ErrHeld) }

// isUnknown reports whether an error of Try leaves open what happened.
func isUnknown(err error) bool {
	for _, certain := range []error{driver.ErrHeld, driver.ErrDone, driver.ErrMismatch, driver.ErrInvalid, driver.ErrNotDone, errors.ErrUnsupported} {
		if errors.Is(err, certain) {
			return false
		}
	}
	return true
}

func errClosed() error {
	return fmt.Errorf("sqllock: the driver was %w: %w", driver.ErrClosed, driver.ErrNotDone)
}

func unsupported(k driver.Kind) error {
	return fmt.Errorf("sqllock: locks of the kind %q are not supported: %w", k.String(), errors.ErrUnsupported)
}

// at names the database, for errors.
func (d *Driver) at() string {
	if d.store == nil {
		return ""
	}
	return d.store.where()
}

// wrap says what was tried, where, what the user can do, and what the database said. The file's path is no secret.
func (d *Driver) wrap(what string, err error) error {
	if d.ctx.Err() != nil && !errors.Is(err, driver.ErrClosed) {
		err = fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	if hint := d.hint(err); hint != "" {
		return fmt.Errorf("sqllock: %s%s: %s: %w", what, d.at(), hint, err)
	}
	return fmt.Errorf("sqllock: %s%s: %w", what, d.at(), err)
}

// hint is what the user can do about an error; "": unknown.
func (d *Driver) hint(err error) string {
	if d.dialect == nil {
		return ""
	}
	if hint := d.dialect.fault(err).hint; hint != "" {
		return hint
	}
	if is := databaseOf(err); is != 0 && is != d.kind {
		return fmt.Sprintf("this is not a database of that kind: New wants sqllock.%v as its Dialect", is)
	}
	return ""
}

// databaseOf is what kind of database an error comes from; 0: unknown.
func databaseOf(err error) Dialect {
	var m *mysql.MySQLError
	var p interface{ SQLState() string }
	switch {
	case errors.As(err, &m):
		return MySQL
	case errors.As(err, &p):
		return PostgreSQL
	case sqliteCode(err) != 0:
		return SQLite
	}
	return 0
}

// retry repeats f, in which nothing may have been done yet, while the database answers that another writer is in the way.
func (d *Driver) retry(ctx context.Context, f func() error) error {
	var p pause
	for {
		err := f()
		if err == nil || !d.dialect.fault(err).again {
			return err
		}
		if cause := p.wait(ctx, d.ctx); cause != nil {
			return fmt.Errorf("%w: %w", cause, err)
		}
	}
}

// pause is the time between two attempts to get the write lock, which SQLite gives to whoever happens to ask: about as
// long as a few transactions take, and the same for all, so that nobody who has waited for long is put off for longer than
// a newcomer. Only a lock that stays taken is asked for less often.
type pause struct{ begun time.Time }

func (p *pause) next() time.Duration {
	now := time.Now()
	switch {
	case p.begun.IsZero():
		p.begun = now
		return jitter(200 * time.Microsecond)
	case now.Sub(p.begun) < 3*time.Second:
		return jitter(time.Millisecond)
	}
	return jitter(5 * time.Millisecond)
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// wait waits for the next attempt, and answers why not if there is none.
func (p *pause) wait(ctx, life context.Context) error {
	d := p.next()
	if d < time.Millisecond && ctx.Err() == nil && life.Err() == nil {
		nap(d)
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-life.Done():
		return driver.ErrClosed
	}
}
