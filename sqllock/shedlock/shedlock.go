package shedlock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row"
)

// Driver keeps mutexes in ShedLock's table. It is safe for concurrent use. Besides [driver.Driver] it is a
// [driver.Inspector], a [driver.Attacher] and [driver.Named].
type Driver struct {
	*row.Driver
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Attacher  = (*Driver)(nil)
	_ driver.Named     = (*Driver)(nil)
)

// Options say how the fleet has configured ShedLock. nil, and the zero value of each field, mean the default.
type Options struct {
	// Table is the name of the table, as the database has it; "schema.table" names a schema too. Default: shedlock.
	Table string

	// Columns are the names of its columns, where they are not ShedLock's own.
	Columns Columns

	// ClientClock is for services that do not say usingDbTime(): expiry is then decided by the clock of each client, and
	// written as the wall clock of this zone: time.UTC for forceUtcTimeZone(), else the default zone of their JVMs. Default:
	// nil, which is the database's clock in UTC, as usingDbTime() has it. In SQLite, which has no clock, times are instants,
	// and this means nothing.
	ClientClock *time.Location

	// Tokens is the name of a table of pawl's own that holds the last fencing token of each name. All pawl clients that
	// share locks must name the same one. Default: none, and no tokens.
	Tokens string

	// Prefix is put before every name in the table. Default: none.
	Prefix string
}

// Columns are the names of the table's columns. The zero value of each is ShedLock's own name.
type Columns struct{ Name, LockUntil, LockedAt, LockedBy string }

func (o *Options) filled() Options {
	var f Options
	if o != nil {
		f = *o
	}
	f.Table = cmp.Or(f.Table, "shedlock")
	f.Columns.Name = cmp.Or(f.Columns.Name, "name")
	f.Columns.LockUntil = cmp.Or(f.Columns.LockUntil, "lock_until")
	f.Columns.LockedAt = cmp.Or(f.Columns.LockedAt, "locked_at")
	f.Columns.LockedBy = cmp.Or(f.Columns.LockedBy, "locked_by")
	return f
}

// New makes a driver on the caller's own pool, which stays the caller's. It does no I/O; what is wrong is reported by the
// first call, or by Check. opts may be nil. The table must exist: see [Schema].
func New(db *sql.DB, dialect sqllock.Dialect, opts *Options) *Driver {
	return &Driver{row.New(db, dialect, opts.layout(dialect))}
}

func (o *Options) layout(dialect sqllock.Dialect) row.Layout {
	f := o.filled()
	schema, _ := statements(dialect, f) // row.New knows the dialects as well
	lay := row.Layout{
		Package: "shedlock", Table: f.Table, Prefix: f.Prefix, Tokens: f.Tokens, Schema: schema,
		Key: f.Columns.Name, By: f.Columns.LockedBy, Until: f.Columns.LockUntil, At: f.Columns.LockedAt,
		Stays: true, Millis: true, Clock: row.Clock{Zone: f.ClientClock},
	}
	if dialect == sqllock.SQLite {
		lay.Clock = row.Clock{Zone: time.UTC}
	}
	return lay
}

// Open makes a driver with a pool of its own, which Close closes, and looks whether the table is there and fits. The
// location is one of [sqllock.Open]. No table is created: see [Driver.CreateSchema].
func Open(ctx context.Context, url string, opts *Options) (*Driver, error) {
	d, err := row.Open(ctx, url, opts.layout)
	if err != nil {
		return nil, err
	}
	return &Driver{d}, nil
}

// Check looks whether the table is there and fits. It writes nothing.
func (d *Driver) Check(ctx context.Context) error { return d.Driver.Check(ctx) }

// CreateSchema creates the tables that do not exist yet, by the statements of [Schema], and checks what is there.
func (d *Driver) CreateSchema(ctx context.Context) error { return d.Driver.CreateSchema(ctx) }

// Schema is DDL for the table, and for the table of tokens if Options name one. It is what ShedLock's documentation says,
// but its names are compared byte by byte. opts may be nil.
func Schema(dialect sqllock.Dialect, opts *Options) (string, error) {
	ddl, err := statements(dialect, opts.filled())
	return row.Text(ddl), err
}

func statements(dialect sqllock.Dialect, o Options) ([]string, error) {
	exact, moment := "", "TIMESTAMP"
	switch dialect {
	case sqllock.MySQL:
		exact, moment = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "TIMESTAMP(3)"
	case sqllock.PostgreSQL, sqllock.SQLite:
	default:
		return nil, fmt.Errorf("shedlock: %v is not supported: use sqllock.SQLite, sqllock.PostgreSQL or sqllock.MySQL: %w", dialect, driver.ErrInvalid)
	}
	q := func(name string) string { return row.Quote(dialect, name) }
	c := o.Columns
	ddl := []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n\t%s VARCHAR(64)%s NOT NULL PRIMARY KEY,\n\t%s %s NOT NULL,\n\t%s %s NOT NULL,\n\t%s VARCHAR(255) NOT NULL\n)",
		q(o.Table), q(c.Name), exact, q(c.LockUntil), moment, q(c.LockedAt), moment, q(c.LockedBy))}
	if o.Tokens != "" {
		ddl = append(ddl, row.Tokens(dialect, o.Tokens))
	}
	return ddl, nil
}
