package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/fence"
)

// Table keeps the records in a SQL table, in the database (and best the schema) that the work changes. It is plain data and
// safe for concurrent use. Whoever uses it needs the right to SELECT, INSERT, UPDATE and DELETE.
type Table struct {
	Dialect   fence.Dialect      // required
	Name      string             // of the table, also as "schema.table": letters, digits, underscores. Default "pawl_once"
	Isolation sql.IsolationLevel // of the transactions. Default: the database's
}

const maxKey = 1024 // bytes, on every database

// CreateTable is the statement that makes the table unless it is there. Run it with the migrations of the database.
func (t Table) CreateTable() (string, error) {
	name, err := t.quoted()
	if err != nil {
		return "", err
	}
	key, text, number, value, tail := "BYTEA", "TEXT", "BIGINT", "BYTEA", ""
	switch t.Dialect {
	case fence.SQLite:
		key, number, value = "BLOB", "INTEGER", "BLOB"
	case fence.MySQL: // bytes, since a collation would let different keys meet, and a connection's character set could change a result
		key, text = fmt.Sprintf("VARBINARY(%d)", maxKey), fmt.Sprintf("VARBINARY(%d)", fence.MaxHold)
		value, tail = "LONGBLOB", " ENGINE=InnoDB"
	}
	// The second index is for Sweep. Every database can make it in this statement only if it is unique. The random name of the run sees
	// to that; with the record's name in its place, PostgreSQL would refuse what ON CONFLICT (name) is to settle.
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (name %s NOT NULL PRIMARY KEY, ends %s NOT NULL, run %s NOT NULL, hold %[4]s NOT NULL, "+
		"token %[3]s NOT NULL, result %[5]s NOT NULL, UNIQUE (ends, run))%[6]s", name, key, number, text, value, tail), nil
}

// How long a record that is over stays in the table, and how many Sweep takes away at a time.
const (
	linger = time.Hour
	batch  = 100
)

// Sweep deletes up to 100 records that have been over for an hour, and answers how many. OnceInTx does it now and then, so that a
// table in use does not grow beyond what its windows hold; call it to have an idle one shrink, too. It blocks until the database has
// answered, or ctx ends.
//
// The hour is how much longer than its window a run may be paused and still be refused.
func (t Table) Sweep(ctx context.Context, db *sql.DB) (int64, error) {
	name, err := t.quoted()
	if err != nil {
		return 0, err
	}
	over := fmt.Sprintf("ends <= %s - %d", t.now(), linger.Milliseconds())
	q := fmt.Sprintf("DELETE FROM %s WHERE %s ORDER BY ends LIMIT %d", name, over, batch)
	if t.Dialect != fence.MySQL {
		skip := ""
		if t.Dialect == fence.PostgreSQL {
			skip = " FOR UPDATE SKIP LOCKED"
		}
		q = fmt.Sprintf("DELETE FROM %s WHERE name IN (SELECT name FROM %[1]s WHERE %s ORDER BY ends LIMIT %d%s)", name, over, batch, skip)
	}
	r, err := db.ExecContext(ctx, q)
	if err != nil {
		return 0, fmt.Errorf("record: sweep: %w", err)
	}
	return r.RowsAffected()
}

// now is the database's clock, in milliseconds since 1970.
func (t Table) now() string {
	switch t.Dialect {
	case fence.SQLite:
		return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
	case fence.MySQL: // knows no session's time zone
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"
	}
	return "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint" // now() would be the transaction's beginning
}

// place writes a statement's parameters as the database wants them.
func (t Table) place(q string) string {
	switch t.Dialect {
	case fence.SQLite:
		return strings.ReplaceAll(q, "$", "?")
	case fence.MySQL:
		return parameter.ReplaceAllString(q, "?")
	}
	return q
}

var parameter = regexp.MustCompile(`\$\d`)

// conflict reports whether err says that the database has undone the transaction because of another one, so that it would
// succeed if it ran again. The drivers of MySQL and mattn's of SQLite tell it by nothing but their text, unless imported.
func (t Table) conflict(err error) bool {
	if errors.Is(err, fence.ErrReadFirst) {
		return true
	}
	has := func(texts ...string) bool {
		for _, s := range texts {
			if strings.Contains(err.Error(), s) {
				return true
			}
		}
		return false
	}
	switch t.Dialect {
	case fence.PostgreSQL:
		return state(err) == "40001" || state(err) == "40P01"
	case fence.SQLite:
		if s, ok := errors.AsType[interface {
			error
			Code() int
		}](err); ok {
			return s.Code()&0xff == 5 // SQLITE_BUSY
		}
		return has("database is locked")
	}
	return has("Error 1213", "Error 1205", "Error 1020") // deadlock, lock wait timeout, changed since the snapshot
}

// refused reports whether err is how the database has answered that it did not commit.
func (t Table) refused(err error) bool {
	switch t.Dialect {
	case fence.PostgreSQL:
		s := state(err)
		return s != "" && s[:2] != "08" && s[:2] != "57" // those are about the connection and the server
	case fence.SQLite:
		_, ok := errors.AsType[interface {
			error
			Code() int
		}](err)
		return ok
	}
	return false
}

// state is the SQLSTATE with which a PostgreSQL has answered; "": it has not.
func state(err error) string {
	if s, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return s.SQLState()
	}
	return ""
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

func (t Table) quoted() (string, error) {
	name := t.Name
	if name == "" {
		name = "pawl_once"
	}
	if !tableName.MatchString(name) {
		return "", fmt.Errorf("record: table name %.80q: it takes letters, digits and underscores, at most 63, and one dot after a schema", name)
	}
	quote := `"`
	switch t.Dialect {
	case fence.SQLite, fence.PostgreSQL:
	case fence.MySQL:
		quote = "`"
	default:
		return "", errors.New("record: Table.Dialect is missing: name fence.SQLite, fence.MySQL or fence.PostgreSQL")
	}
	return quote + strings.ReplaceAll(name, ".", quote+"."+quote) + quote, nil
}
