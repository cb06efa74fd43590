package row

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// wire is what a database does differently.
type wire interface {
	quote(identifier string) string
	text(s *statement, v string) string           // a text value
	num(s *statement, n int64) string             // a number
	list(s *statement, vs []string) string        // what stands behind IN
	time(s *statement, t *table, us int64) string // a value of a time column
	micros(column string) string                  // a time column as microseconds, or NULL
	bytes(column string) string                   // a text column as its exact bytes
	now(c Clock, t *table) string                 // microseconds; "": the client's clock
	insert() (verb, tail string)                  // that does nothing, or answers fault.exists, if there is such a row
	begin() string
	by(t *table) string // how rows that are to be locked are found
	forUpdate() string  // waits for whoever has the row locked
	skipLocked() string // leaves it out
	columns(ctx context.Context, d *Driver) (*table, []column, error)
	number(ctx context.Context, d *Driver, tx *sql.Conn, key string, now int64, span int) (int64, error)
	fault(err error) fault
}

var wires = map[sqllock.Dialect]wire{sqllock.PostgreSQL: postgres{}, sqllock.MySQL: mariadb{}, sqllock.SQLite: sqlite{}}

// fault is what an error of the database means for the request that met it.
type fault struct {
	again  bool   // a conflict with another writer: the same may succeed now
	undone bool   // the server says so: nothing was done
	exists bool   // there is such a row
	hint   string // what the user can do; "": unknown
}

// statement is SQL text with its arguments.
type statement struct {
	d    *Driver
	sql  strings.Builder
	args []any
}

func (d *Driver) statement() *statement { return &statement{d: d} }

func (s *statement) add(format string, args ...any) { fmt.Fprintf(&s.sql, format, args...) }

type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s *statement) exec(ctx context.Context, e executor) (int64, error) {
	r, err := e.ExecContext(ctx, s.sql.String(), s.args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// name quotes "schema.table" and plain identifiers.
func (d *Driver) name(identifier string) string { return Quote(d.kind, identifier) }

// Quote makes a name safe in SQL text: "schema.table" part by part.
func Quote(kind sqllock.Dialect, identifier string) string {
	parts := strings.SplitN(identifier, ".", 2)
	for i, p := range parts {
		parts[i] = wires[kind].quote(p)
	}
	return strings.Join(parts, ".")
}

func (d *Driver) insert(s *statement, t *table, l line) {
	w := d.wire
	verb, tail := w.insert()
	s.add("%s INTO %s (%s, %s, %s", verb, d.name(d.lay.Table), w.quote(d.lay.Key), w.quote(d.lay.By), w.quote(d.lay.Until))
	if d.lay.At != "" {
		s.add(", %s", w.quote(d.lay.At))
	}
	s.add(") VALUES (%s, %s, %s", w.text(s, l.key), w.text(s, l.by), t.time(s, l.until))
	if d.lay.At != "" {
		s.add(", %s", t.time(s, l.at))
	}
	s.add(")%s", tail)
}

// update makes next of a row that is still old; takes says that it is taken anew.
func (d *Driver) update(s *statement, t *table, old *line, next line, takes bool) {
	w := d.wire
	s.add("UPDATE %s SET %s = %s, %s = %s", d.name(d.lay.Table), w.quote(d.lay.By), w.text(s, next.by), w.quote(d.lay.Until), t.time(s, next.until))
	if takes && d.lay.At != "" {
		s.add(", %s = %s", w.quote(d.lay.At), t.time(s, next.at))
	}
	d.still(s, old)
}

func (d *Driver) remove(s *statement, _ *table, old *line) {
	s.add("DELETE FROM %s", d.name(d.lay.Table))
	d.still(s, old)
}

// still is the condition that a row is what it was when it was read, byte by byte.
func (d *Driver) still(s *statement, old *line) {
	w := d.wire
	until := w.micros(w.quote(d.lay.Until))
	s.add(" WHERE %s = %s AND %s = %s AND ", w.quote(d.lay.Key), w.text(s, old.key), w.bytes(w.quote(d.lay.By)), w.bytes(w.text(s, old.by)))
	if old.until == never {
		s.add("%s IS NULL", until)
	} else {
		s.add("%s = %s", until, w.num(s, old.until))
	}
}

// extend moves the end of rows that the transaction has locked.
func (d *Driver) extend(s *statement, t *table, keys []string, until int64) {
	w := d.wire
	s.add("UPDATE %s%s SET %s = %s WHERE %s IN %s", d.name(d.lay.Table), w.by(t), w.quote(d.lay.Until), t.time(s, until), w.quote(d.lay.Key), w.list(s, keys))
}

// fields are the columns that scan reads.
func (d *Driver) fields(t *table) string {
	w := d.wire
	at := "NULL"
	if d.lay.At != "" {
		at = w.micros("t." + w.quote(d.lay.At))
	}
	return fmt.Sprintf("%s, %s, %s, %s, %s", cmp.Or(w.now(d.lay.Clock, t), "NULL"),
		w.bytes("t."+w.quote(d.lay.Key)), w.bytes("t."+w.quote(d.lay.By)), w.micros("t."+w.quote(d.lay.Until)), at)
}

// read reads rows without any lock, and the time even if there are none.
func (d *Driver) read(ctx context.Context, t *table, keys ...string) (*sight, error) {
	s := d.statement()
	s.add("SELECT %s FROM (SELECT 1 AS one) AS o LEFT JOIN %s AS t ON t.%s IN %s", d.fields(t), d.name(d.lay.Table), d.wire.quote(d.lay.Key), d.wire.list(s, keys))
	return d.scan(ctx, d.db, s, keys)
}

// readIn reads rows and locks them.
func (d *Driver) readIn(ctx context.Context, tx *sql.Conn, t *table, locks string, keys ...string) (*sight, error) {
	s, key := d.statement(), d.wire.quote(d.lay.Key)
	s.add("SELECT %s FROM %s AS t%s WHERE t.%s IN %s ORDER BY t.%s%s", d.fields(t), d.name(d.lay.Table), d.wire.by(t), key, d.wire.list(s, keys), key, locks)
	return d.scan(ctx, tx, s, keys)
}

func (d *Driver) scan(ctx context.Context, r reader, s *statement, keys []string) (*sight, error) {
	out := &sight{now: d.lay.Clock.read(), rows: make(map[string]*line)}
	asked := make(map[string]bool, len(keys))
	for _, k := range keys {
		asked[k] = true
	}
	rows, err := r.QueryContext(ctx, s.sql.String(), s.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var now, until, at sql.NullInt64
		var key, by []byte
		if err := rows.Scan(&now, &key, &by, &until, &at); err != nil {
			return nil, err
		}
		if now.Valid {
			out.now = now.Int64
		}
		if key == nil {
			continue
		}
		l := &line{key: string(key), by: string(by), until: until.Int64, at: at.Int64}
		if !until.Valid {
			l.until = never // NULL, or no time at all: nobody may take it
		}
		if keys != nil && !asked[l.key] {
			out.like = l
			continue
		}
		out.rows[l.key] = l
		out.order = append(out.order, l.key)
	}
	return out, rows.Err()
}

// read is the client's clock, in microseconds of its zone's wall clock.
func (c Clock) read() int64 { return c.wall(time.Now()) }

func (c Clock) wall(t time.Time) int64 {
	if c.Zone != nil {
		t = t.In(c.Zone)
	} else if c.Local {
		t = t.Local()
	}
	_, offset := t.Zone()
	return t.UnixMicro() + int64(offset)*1e6
}

var errCommit = errors.New("the transaction may or may not have been committed")

// transact runs f in a transaction. It does not use sql.Tx, whose Commit has no context: with MySQL's driver it waits for a
// server that is silent for as long as that pleases.
func (d *Driver) transact(ctx context.Context, f func(c *sql.Conn) error) error {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.ExecContext(ctx, d.wire.begin())
	if err == nil {
		err = f(c)
	}
	if err == nil {
		if _, err = c.ExecContext(ctx, "COMMIT"); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", errCommit, err)
	}
	undone := false
	if ctx.Err() == nil {
		_, bad := c.ExecContext(ctx, "ROLLBACK")
		undone = bad == nil
	}
	if !undone { // the database rolls back what belongs to a connection that is closed
		c.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	return err
}

// retry repeats f while the database answers that another writer is in the way, until ctx ends, and says what failed.
func (d *Driver) retry(ctx context.Context, what string, f func() error) error {
	begun := time.Now()
	for {
		if d.ctx.Err() != nil {
			return d.errClosed()
		}
		err := f()
		fault := d.wire.fault(err)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errCommit) && !fault.undone && !fault.again:
			return d.wrap(what, err)
		case !errors.Is(err, errRace) && !fault.again:
			return d.wrap(what, err)
		}
		pause := 200 * time.Microsecond
		if time.Since(begun) > 20*time.Millisecond {
			pause = 3 * time.Millisecond
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return d.wrap(what, fmt.Errorf("%w: %w", context.Cause(ctx), err))
		}
	}
}

func (d *Driver) errClosed() error {
	return fmt.Errorf("%s: the driver was %w: %w", d.lay.Package, driver.ErrClosed, driver.ErrNotDone)
}

// wrap says what was tried, where, what the user can do, and what the database said.
func (d *Driver) wrap(what string, err error) error {
	for _, plain := range []error{driver.ErrHeld, driver.ErrNotHeld, driver.ErrInvalid} {
		if errors.Is(err, plain) {
			return err
		}
	}
	if d.ctx.Err() != nil && !errors.Is(err, driver.ErrClosed) {
		err = fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	hint := d.wire.fault(err).hint
	if hint == "" {
		for kind, w := range wires {
			if kind != d.kind && w.fault(err) != (fault{}) {
				hint = fmt.Sprintf("this is not a database of that kind: New wants sqllock.%v as its dialect", kind)
			}
		}
	}
	if hint != "" {
		return fmt.Errorf("%s: %s the table %s in %v: %s: %w", d.lay.Package, what, d.lay.Table, d.kind, hint, err)
	}
	return fmt.Errorf("%s: %s the table %s in %v: %w", d.lay.Package, what, d.lay.Table, d.kind, err)
}
