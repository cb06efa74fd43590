package plaintable

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row"
)

// Driver keeps mutexes in a plain table. It is safe for concurrent use. Besides [driver.Driver] it is a
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

// Options say what the table looks like. nil, and the zero value of each field, mean the default.
type Options struct {
	// Table is the name of the table, as the database has it; "schema.table" names a schema too. Default: distributed_lock.
	Table string

	// Columns are the names of its columns. Default: lock_key, lock_value, expire_time.
	Columns Columns

	// UTC says that the others write times in UTC, such as UTC_TIMESTAMP(), or CURRENT_TIMESTAMP in SQLite. Default: in the
	// zone of the database's session, such as NOW(), or in SQLite in the machine's. Either way it is the database's clock;
	// in SQLite, the machine's.
	UTC bool

	// Tokens is the name of a table of pawl's own that holds the last fencing token of each name. All pawl clients that
	// share locks must name the same one. Default: none, and no tokens.
	Tokens string

	// Prefix is put before every name in the table. Default: none.
	Prefix string
}

// Columns are the names of the table's columns. The zero value of each is its usual name.
type Columns struct{ LockKey, LockValue, ExpireTime string }

func (o *Options) filled() Options {
	var f Options
	if o != nil {
		f = *o
	}
	f.Table = cmp.Or(f.Table, "distributed_lock")
	f.Columns.LockKey = cmp.Or(f.Columns.LockKey, "lock_key")
	f.Columns.LockValue = cmp.Or(f.Columns.LockValue, "lock_value")
	f.Columns.ExpireTime = cmp.Or(f.Columns.ExpireTime, "expire_time")
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
	return row.Layout{
		Package: "plaintable", Table: f.Table, Prefix: f.Prefix, Tokens: f.Tokens, Schema: schema,
		Key: f.Columns.LockKey, By: f.Columns.LockValue, Until: f.Columns.ExpireTime,
		Clock: row.Clock{Local: !f.UTC},
	}
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

// Schema is DDL for the table, and for the table of tokens if Options name one. Keys are compared byte by byte in it, and
// times have microseconds. opts may be nil.
func Schema(dialect sqllock.Dialect, opts *Options) (string, error) {
	ddl, err := statements(dialect, opts.filled())
	return row.Text(ddl), err
}

func statements(dialect sqllock.Dialect, o Options) ([]string, error) {
	exact, moment, index := "", "TIMESTAMP", ""
	q := func(name string) string { return row.Quote(dialect, name) }
	c := o.Columns
	_, table, ok := strings.Cut(o.Table, ".")
	if !ok {
		table = o.Table
	}
	switch dialect {
	case sqllock.MySQL:
		exact, moment = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "DATETIME(6)"
		index = fmt.Sprintf(",\n\tINDEX (%s)", q(c.ExpireTime))
	case sqllock.SQLite:
		moment = "DATETIME"
	case sqllock.PostgreSQL:
	default:
		return nil, fmt.Errorf("plaintable: %v is not supported: use sqllock.SQLite, sqllock.PostgreSQL or sqllock.MySQL: %w", dialect, driver.ErrInvalid)
	}
	ddl := []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n\t%s VARCHAR(100)%s NOT NULL PRIMARY KEY,\n\t%s VARCHAR(100) NOT NULL,\n\t%s %s NOT NULL%s\n)",
		q(o.Table), q(c.LockKey), exact, q(c.LockValue), q(c.ExpireTime), moment, index)}
	if index == "" {
		ddl = append(ddl, fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (%s)", q(table+"_expires"), q(o.Table), q(c.ExpireTime)))
	}
	if o.Tokens != "" {
		ddl = append(ddl, row.Tokens(dialect, o.Tokens))
	}
	return ddl, nil
}
