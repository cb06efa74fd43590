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
// transaction carries both the claim and the work: they are committed together or not at all. It is plain data and safe
// for concurrent use.
//
// It is not the table that sqllock keeps its locks in, and touches none of its rows: a transaction that takes its time
// delays nobody's renewal. On SQLite a write takes the whole file, so there the locks belong in another file.
//
// Whoever claims needs the right to SELECT, INSERT and UPDATE.
type Table struct {
	Dialect Dialect // required
	Name    string  // of the table, also as "schema.table": letters, digits, underscores. Default "pawl_fence"
}

// ErrReadFirst says that the transaction had already read when it claimed, and that somebody else has claimed (and so may
// have written) since: what it has read, and with a snapshot also what it would read, is of the past. Roll back and begin
// again, with the claim first.
var ErrReadFirst = errors.New("the transaction has read before it claimed")

// maxResource bounds a resource's name, in bytes, on every database.
const maxResource = 1024

// CreateTable is the statement that makes the table unless it is there. Run it with the migrations of the database.
func (t Table) CreateTable() (string, error) {
	name, err := t.quoted()
	if err != nil {
		return "", err
	}
	text, long, number, tail := "TEXT", "TEXT", "BIGINT", ""
	switch t.Dialect {
	case SQLite:
		number, tail = "INTEGER", " WITHOUT ROWID"
	case MySQL: // bytes, since a collation would let different names meet
		long, text = fmt.Sprintf("VARBINARY(%d)", maxResource), fmt.Sprintf("VARBINARY(%d)", MaxHold)
		tail = " ENGINE=InnoDB"
	}
	claims := ""
	if t.Dialect == MySQL {
		claims = ", claims BIGINT NOT NULL" // changes with every claim, so that an old snapshot shows
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (resource %s NOT NULL PRIMARY KEY, token %s NOT NULL, hold %s NOT NULL, shared %[3]s NOT NULL%[5]s)%[6]s",
		name, long, number, text, claims, tail), nil
}

// Claim raises the mark of resource to the lease's token inside tx, and takes the mark's row, so that claims of one
// resource run one after the other until tx ends. A rollback takes the claim back.
//
// It answers ErrStale when a newer hold has claimed (*StaleError) or the lease has ended or is nil, and ErrNoToken; then
// the mark stays as it was and the caller rolls back. Any other error is the database's; after a deadlock or a
// serialization failure run the transaction again. It blocks while another transaction has the row, until ctx ends.
//
// Claim must be the first statement of tx. Under READ COMMITTED it need only come before everything that the work depends on; above
// it (the default of MySQL is above) a snapshot that was taken before would show what was there before the last
// holder wrote. What happens to a transaction that has read too early and was overtaken by another claim: on MySQL and
// on SQLite (where a deferred transaction cannot become a writer then) ErrReadFirst; on PostgreSQL above READ COMMITTED
// its serialization failure 40001, which a claim that had to wait gets too. On SQLite begin with BEGIN IMMEDIATE.
//
// A hold that works in several transactions claims in each. Between them anything may happen; in the last one, Claim
// is what refuses a holder that was paused meanwhile.
func (t Table) Claim(ctx context.Context, tx *sql.Tx, resource string, l Lease) error {
	return t.claim(ctx, tx, resource, l, false)
}

// ClaimShared is Claim for one who only reads, under a read lock: see the package documentation. It writes a row, so tx
// must not be read-only, and takes it as Claim does: transactions that read one resource run one after the other.
func (t Table) ClaimShared(ctx context.Context, tx *sql.Tx, resource string, l Lease) error {
	return t.claim(ctx, tx, resource, l, true)
}

func (t Table) claim(ctx context.Context, tx *sql.Tx, resource string, l Lease, shared bool) error {
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
	p, err := Show(resource, l)
	if err != nil {
		return err
	}
	c := tableClaim{tx, name, resource, p, shared}
	if t.Dialect == MySQL {
		err = c.mysql(ctx)
	} else {
		err = c.standard(ctx, t.Dialect)
	}
	if err == nil || errors.Is(err, ErrStale) {
		return err
	}
	return fmt.Errorf("fence: claim %q: %w", resource, err)
}

type tableClaim struct {
	tx             *sql.Tx
	name, resource string
	Proof
	shared bool
}

// standard is one statement, which takes the row even if the claim is refused.
func (c tableClaim) standard(ctx context.Context, d Dialect) error {
	// The values are what the first claim of a resource leaves behind, and "excluded" to the later ones.
	values, set, pass := "($1, $2, $3, 0)", "token = excluded.token, hold = excluded.hold", "mark.shared <= $2 AND "
	if c.shared {
		values, set, pass = "($1, 0, '', $2)", "shared = CASE WHEN mark.shared < $2 THEN $2 ELSE mark.shared END", ""
	}
	q := "INSERT INTO " + c.name + " AS mark (resource, token, hold, shared) VALUES " + values + " ON CONFLICT (resource) DO UPDATE SET " + set +
		" WHERE " + pass + "(mark.token < $2 OR mark.token = $2 AND mark.hold = $3)"
	read := "SELECT token, hold, shared FROM " + c.name + " WHERE resource = $1"
	if d == SQLite {
		q, read = strings.ReplaceAll(q, "$", "?"), strings.ReplaceAll(read, "$", "?")
	}
	r, err := c.tx.ExecContext(ctx, q, c.resource, c.Token, c.Hold)
	if err != nil {
		if s, ok := errors.AsType[interface {
			error
			Code() int
		}](err); ok && d == SQLite && s.Code() == sqliteBusySnapshot {
			err = fmt.Errorf("%w: %w", ErrReadFirst, err)
		}
		return err
	}
	n, err := r.RowsAffected()
	if err != nil || n > 0 {
		return err
	}
	var m mark
	if err := c.tx.QueryRowContext(ctx, read, c.resource).Scan(&m.Token, &m.Hold, &m.shared); err != nil {
		return fmt.Errorf("read the mark: %w", err)
	}
	if _, err = m.raise(c.resource, c.Proof, c.shared); err == nil {
		err = errors.New("the table took no claim and shows no reason: is there a trigger or a rule on it?")
	}
	return err
}

// sqliteBusySnapshot is SQLITE_BUSY_SNAPSHOT: a reader cannot become a writer, since another has written meanwhile.
const sqliteBusySnapshot = 517

// mysql takes the row first, without a change, and compares it with what the transaction's snapshot shows, if it has one
// by now. A transaction sees its own changes, so the comparison must come before them.
func (c tableClaim) mysql(ctx context.Context) error {
	if _, err := c.tx.ExecContext(ctx, "INSERT INTO "+c.name+" (resource, token, hold, shared, claims) VALUES (?, 0, '', 0, 0) "+
		"ON DUPLICATE KEY UPDATE resource = resource", c.resource); err != nil {
		return err
	}
	// The inner query takes no lock and so reads from the snapshot; the outer one reads the newest row.
	var m mark
	var claims int64
	var seen sql.NullInt64
	if err := c.tx.QueryRowContext(ctx, "SELECT token, hold, shared, claims, (SELECT claims FROM "+c.name+" WHERE resource = ?) FROM "+c.name+
		" WHERE resource = ? FOR UPDATE", c.resource, c.resource).Scan(&m.Token, &m.Hold, &m.shared, &claims, &seen); err != nil {
		return fmt.Errorf("read the mark: %w", err)
	}
	m, err := m.raise(c.resource, c.Proof, c.shared)
	if err != nil {
		return err
	}
	if !seen.Valid || seen.Int64 != claims {
		return ErrReadFirst
	}
	_, err = c.tx.ExecContext(ctx, "UPDATE "+c.name+" SET token = ?, hold = ?, shared = ?, claims = claims + 1 WHERE resource = ?",
		m.Token, m.Hold, m.shared, c.resource)
	return err
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
