package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Dialect is the SQL that a database speaks.
type Dialect uint8

// The dialects.
const (
	SQLite     Dialect = iota + 1 // 3.24 or later
	MySQL                         // and MariaDB, with InnoDB
	PostgreSQL                    // and what speaks its language
)

// Table keeps the marks in a SQL table, in the database (and best the schema) whose rows it guards, so that one
// transaction carries both the claim and the work. It is plain data and safe for concurrent use.
type Table struct {
	Dialect Dialect // required
	Name    string  // of the table, also as "schema.table": letters, digits, underscores. Default "pawl_fence"
}

// maxResource bounds a resource's name, in bytes, on every database.
const maxResource = 1024

// CreateTable is the statement that makes the table unless it is there. Run it with the migrations of the database.
func (t Table) CreateTable() (string, error) {
	name, err := t.quoted()
	if err != nil {
		return "", err
	}
	resource, number, hold, tail := "TEXT", "BIGINT", "TEXT", ""
	switch t.Dialect {
	case SQLite:
		number, tail = "INTEGER", " WITHOUT ROWID"
	case MySQL: // bytes, since a collation would let different names meet
		resource, hold, tail = fmt.Sprintf("VARBINARY(%d)", maxResource), fmt.Sprintf("VARBINARY(%d)", maxHold), " ENGINE=InnoDB"
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (resource %s NOT NULL PRIMARY KEY, token %s NOT NULL, hold %s NOT NULL)%s",
		name, resource, number, hold, tail), nil
}

// Claim raises the mark of resource to the lease's token inside tx, and takes the mark's row, so that claims of one
// resource run one after the other until tx ends. A rollback takes the claim back.
//
// It answers ErrStale when a newer hold has claimed (*StaleError) or the lease has ended or is nil, and ErrNoToken; then
// the mark stays as it was and the caller rolls back. Any other error is the database's; after a deadlock or a
// serialization failure run the transaction again. It blocks while another transaction has the row, until ctx ends.
//
// Above READ COMMITTED (the default of MySQL is) Claim must be the first statement of tx: a snapshot that was taken
// before it waited would show what was there before the last holder wrote. On SQLite begin with BEGIN IMMEDIATE; a
// deferred transaction that has read something cannot become a writer once another one has written.
//
// A hold that works in several transactions claims in each. Between them anything may happen; in the last one, Claim
// is what refuses a holder that was paused meanwhile.
func (t Table) Claim(ctx context.Context, tx *sql.Tx, resource string, l Lease) error {
	name, err := t.quoted()
	if err != nil {
		return err
	}
	switch {
	case resource == "", len(resource) > maxResource, !utf8.ValidString(resource), strings.ContainsRune(resource, 0):
		return fmt.Errorf("fence: resource name %.40q: it takes 1 to %d bytes of UTF-8 without NUL", resource, maxResource)
	case tx == nil:
		return fmt.Errorf("fence: %q: no transaction", resource)
	}
	c, err := show(resource, l)
	if err != nil {
		return err
	}
	if t.Dialect == MySQL {
		return t.claimMySQL(ctx, tx, name, resource, c)
	}
	arg := [...]string{"?", "?", "?"}
	if t.Dialect == PostgreSQL {
		arg = [...]string{"$1", "$2", "$3"}
	}
	r, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s AS mark (resource, token, hold) VALUES (%s, %s, %s) "+
		"ON CONFLICT (resource) DO UPDATE SET token = excluded.token, hold = excluded.hold "+
		"WHERE mark.token < excluded.token OR mark.token = excluded.token AND mark.hold = excluded.hold",
		name, arg[0], arg[1], arg[2]), resource, c.token, c.hold)
	if err != nil {
		return fmt.Errorf("fence: claim %q: %w", resource, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: claim %q: %w", resource, err)
	}
	if n > 0 {
		return nil
	}
	return readBack(ctx, tx, fmt.Sprintf("SELECT token, hold FROM %s WHERE resource = %s", name, arg[0]), resource, c)
}

// claimMySQL cannot learn from the number of rows, which depends on the connection's flags, so it reads the mark again:
// with a lock, which shows the newest row and takes no snapshot.
func (t Table) claimMySQL(ctx context.Context, tx *sql.Tx, name, resource string, c claim) error {
	// The assignments run from left to right: hold still sees the old token.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (resource, token, hold) VALUES (?, ?, ?) "+
		"ON DUPLICATE KEY UPDATE hold = IF(token < ?, ?, hold), token = GREATEST(token, ?)", name),
		resource, c.token, c.hold, c.token, c.hold, c.token); err != nil {
		return fmt.Errorf("fence: claim %q: %w", resource, err)
	}
	return readBack(ctx, tx, fmt.Sprintf("SELECT token, hold FROM %s WHERE resource = ? FOR UPDATE", name), resource, c)
}

func readBack(ctx context.Context, tx *sql.Tx, query, resource string, c claim) error {
	var m claim
	if err := tx.QueryRowContext(ctx, query, resource).Scan(&m.token, &m.hold); err != nil {
		return fmt.Errorf("fence: claim %q: read the mark: %w", resource, err)
	}
	if c != m {
		return &StaleError{Resource: resource, Token: c.token, Seen: m.token}
	}
	return nil
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

func (t Table) quoted() (string, error) {
	name := t.Name
	if name == "" {
		name = "pawl_fence"
	}
	if !tableName.MatchString(name) {
		return "", fmt.Errorf("fence: table name %.80q: it takes letters, digits and underscores, at most 63, and one dot after a schema", name)
	}
	quote := `"`
	switch t.Dialect {
	case SQLite, PostgreSQL:
	case MySQL:
		quote = "`"
	default:
		return "", errors.New("fence: Table.Dialect is missing: name SQLite, MySQL or PostgreSQL")
	}
	return quote + strings.ReplaceAll(name, ".", quote+"."+quote) + quote, nil
}
