package sqllock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Dialect is the kind of database behind a *sql.DB.
type Dialect uint8

const (
	// SQLite is one file on one machine, through modernc.org/sqlite.
	SQLite Dialect = iota + 1

	// PostgreSQL is version 10 or later, through pgx's package stdlib. Other drivers work, without notifications.
	PostgreSQL

	// MySQL is MySQL 8.0.1 or later, or MariaDB 10.6 or later, through github.com/go-sql-driver/mysql.
	MySQL
)

func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	}
	return fmt.Sprintf("dialect %d", uint8(d))
}

// dialect is what the body of logic needs to know of a database. Everything else of it is SQL text.
type dialect struct {
	text   string                                                              // the statements, as sections
	quote  func(identifier string) string                                      // makes an identifier safe in SQL text
	store  func(*Driver) store                                                 // how records are kept
	turn   time.Duration                                                       // how long a name is kept for a waiter that was called
	clock  func() (moment, error)                                              // the clock that decides expiry; nil: the server's
	fault  func(err error) fault                                               // what an error means
	fields func(ctx context.Context, d *Driver, table string) ([]field, error) // the columns that a table has
}

// moment is one reading of the clocks, in microseconds.
type moment struct {
	now   int64  // decides expiry
	slack int64  // it may be that much later than now, and no more
	wall  int64  // the least that a new token is
	boot  string // now means nothing to another boot
}

// after is the end of a time d that begins now. now is rounded down, so the end is rounded up: a hold never ends early.
func (m moment) after(d time.Duration) int64 { return m.now + m.slack + 1 + d.Microseconds() }

// left is the time until an end.
func (m moment) left(end int64) time.Duration {
	return time.Duration(max(end-m.now, 0)) * time.Microsecond
}

// fault is what an error of the database means for the request that met it.
type fault struct {
	again  bool   // a conflict with another writer: the same transaction may succeed now
	undone bool   // the server says so: the statement had no effect
	hint   string // what the user can do; "": unknown
}

func (d Dialect) inner() (*dialect, error) {
	switch d {
	case SQLite:
		return sqliteDialect(), nil
	case PostgreSQL:
		return postgresDialect(), nil
	case MySQL:
		return mysqlDialect(), nil
	}
	return nil, fmt.Errorf("sqllock: %v is not supported: use sqllock.SQLite, sqllock.PostgreSQL or sqllock.MySQL: %w", d, driver.ErrInvalid)
}

// tables are the names of the tables and indexes, by the word that stands for them in SQL text.
func tables(o Options) map[string]string {
	return map[string]string{
		"lock":    o.Table,
		"process": o.Table + "_process",
		"state":   o.Table + "_state",
	}
}

// section is one statement of the dialect's text.
type section struct {
	text string
	rare bool // not kept prepared
}

// sections splits SQL text at its lines "-- name: word" or "-- name: word, rare", and fills in the table names.
func (d *dialect) sections(o Options) map[string]section {
	var pairs []string
	for word, table := range tables(o) {
		pairs = append(pairs, "{"+word+"}", d.quote(table))
	}
	fill := strings.NewReplacer(pairs...)
	out := make(map[string]section)
	for _, part := range strings.Split(d.text, "\n-- name: ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		name, rare := strings.CutSuffix(name, ", rare")
		out[name] = section{text: fill.Replace(strings.TrimSpace(body)), rare: rare}
	}
	return out
}
