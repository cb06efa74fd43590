package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-lock/pawl/driver"
)

//go:embed mysql.sql
var mysqlText string

func mysqlDialect() *dialect {
	return &dialect{
		text:   mysqlText,
		quote:  func(identifier string) string { return "`" + strings.ReplaceAll(identifier, "`", "``") + "`" },
		store:  newServerStore(func(d *Driver) wire { return &mysqlWire{d: d} }),
		turn:   2*pollMost + 100*time.Millisecond, // whoever is called may be told by its next look only
		fault:  mysqlFault,
		fields: mysqlFields,
	}
}

type mysqlWire struct {
	d       *Driver
	mariadb atomic.Pointer[bool] // nil: not known yet
}

// isMariaDB asks once.
func (m *mysqlWire) isMariaDB(ctx context.Context) (bool, error) {
	if m.mariadb.Load() == nil {
		var version string
		if err := m.d.db.QueryRowContext(ctx, m.d.sections["version"].text).Scan(&version); err != nil {
			return false, err
		}
		is := strings.Contains(strings.ToLower(version), "mariadb")
		m.mariadb.Store(&is)
	}
	return *m.mariadb.Load(), nil
}

func (*mysqlWire) listens() bool { return false }

// literals are what stands for the words in angle brackets.
type literals map[string]string

func (d *Driver) fill(statement string, l literals) string {
	text := d.sections[statement].text
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		word, after, _ := strings.Cut(rest, ">")
		if value, is := l[word]; is {
			out.WriteString(value)
			text = after
		} else { // less than
			out.WriteByte('<')
			text = rest
		}
	}
}

func blob(b []byte) string { return "X'" + hex.EncodeToString(b) + "'" }
func num(n int64) string   { return strconv.FormatInt(n, 10) }

func blobs(list [][]byte) string {
	all := make([]string, len(list))
	for i, b := range list {
		all[i] = blob(b)
	}
	return strings.Join(all, ", ")
}

func (m *mysqlWire) query(ctx context.Context, statement string, l literals) (*sql.Rows, error) {
	return m.d.db.QueryContext(ctx, m.d.fill(statement, l))
}

// executor is a pool or a transaction.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (m *mysqlWire) exec(ctx context.Context, e executor, statement string, l literals) (int64, error) {
	r, err := e.ExecContext(ctx, m.d.fill(statement, l))
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (m *mysqlWire) load(ctx context.Context, keys [][]byte) (*sql.Rows, error) {
	return m.query(ctx, "load", literals{"keys": blobs(keys)})
}

func (m *mysqlWire) page(ctx context.Context, from, end, cursor []byte, n int) (*sql.Rows, error) {
	below := "TRUE"
	if end != nil {
		below = "k < " + blob(end)
	}
	return m.query(ctx, "page", literals{"from": blob(from), "cursor": blob(cursor), "below": below, "n": num(int64(n))})
}

// save writes one row in one statement, where the server can be told not to wait for it, and else in a transaction, in
// which it looks which rows it may write.
func (m *mysqlWire) save(ctx context.Context, ws []write, guess window) (map[string]bool, *sight, error) {
	w := ws[0]
	single := len(ws) == 1
	if single && w.was != 0 {
		var err error
		if single, err = m.isMariaDB(ctx); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", driver.ErrNotDone, err)
		}
	}
	if !single {
		written, err := m.saveMany(ctx, ws, guess)
		return written, nil, err
	}
	if w.was == 0 {
		n, err := m.exec(ctx, m.d.db, "insert", literals{"rows": w.row()})
		return map[string]bool{string(w.key): n > 0}, nil, err
	}
	n, err := m.exec(ctx, m.d.db, "update", literals{
		"k": blob(w.key), "rev": num(w.rev), "kind": num(int64(w.kind)), "lim": num(int64(w.limit)), "last": num(w.last),
		"until": num(w.until), "changed": num(w.changed), "state": blob([]byte(w.contents.text())), "was": num(w.was),
		"when": when(guess),
	})
	return map[string]bool{string(w.key): n > 0}, nil, err // rev changes always, so changed rows are matched rows
}

// when is the condition that the server's clock is within a window.
func when(w window) string {
	if w == (window{}) {
		return "TRUE"
	}
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) BETWEEN " + num(w.from) + " AND " + num(w.to)
}

// row is what INSERT takes.
func (w write) row() string {
	return "(" + strings.Join([]string{
		blob(w.key), blob(w.name), num(w.rev), num(int64(w.kind)), num(int64(w.limit)), num(w.last), num(w.until), num(w.changed),
		blob([]byte(w.contents.text())),
	}, ", ") + ")"
}

func (m *mysqlWire) saveMany(ctx context.Context, ws []write, guess window) (written map[string]bool, err error) {
	// Not a sql.Tx: its Commit and Rollback take no context, and wait for a silent server for as long as it is silent.
	c, err := m.d.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNotDone, err)
	}
	defer c.Close()
	end := func(how string) error {
		_, err := c.ExecContext(ctx, how)
		if err != nil { // the server rolls back what belongs to a connection that is closed
			c.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
		return err
	}
	if err = end("START TRANSACTION"); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNotDone, err)
	}
	written, err = m.inTx(ctx, c, ws, guess)
	if err != nil {
		end("ROLLBACK")
		return nil, fmt.Errorf("%w: %w", driver.ErrNotDone, err)
	}
	if len(written) == 0 {
		end("ROLLBACK")
		return written, nil
	}
	return written, end("COMMIT")
}

func (m *mysqlWire) inTx(ctx context.Context, tx *sql.Conn, ws []write, guess window) (map[string]bool, error) {
	var old, added [][]byte
	for _, w := range ws {
		if w.was == 0 {
			added = append(added, w.key)
		} else {
			old = append(old, w.key)
		}
	}
	written := make(map[string]bool)
	revs := func(statement string, keys [][]byte, right func(w write) int64) ([]string, error) {
		found := make(map[string]int64)
		rows, err := tx.QueryContext(ctx, m.d.fill(statement, literals{"keys": blobs(keys), "when": when(guess)}))
		err = scanAll(rows, err, func(scan func(...any) error) error {
			var k []byte
			var rev int64
			err := scan(&k, &rev)
			found[string(k)] = rev
			return err
		})
		var rowsOf []string
		for _, w := range ws {
			if rev, ok := found[string(w.key)]; ok && rev == right(w) {
				written[string(w.key)] = true
				rowsOf = append(rowsOf, w.row())
			}
		}
		return rowsOf, err
	}
	if len(old) > 0 {
		rows, err := revs("lock", old, func(w write) int64 { return w.was })
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			if _, err := m.exec(ctx, tx, "rewrite", literals{"rows": strings.Join(rows, ", ")}); err != nil {
				return nil, err
			}
		}
	}
	if len(added) > 0 {
		var rows []string
		for _, w := range ws {
			if w.was == 0 {
				rows = append(rows, w.row())
			}
		}
		if _, err := m.exec(ctx, tx, "insert", literals{"rows": strings.Join(rows, ", ")}); err != nil {
			return nil, err
		}
		if _, err := revs("revs", added, func(w write) int64 { return w.rev }); err != nil {
			return nil, err
		}
	}
	return written, nil
}

func (m *mysqlWire) living(ctx context.Context, processes []string) (*sql.Rows, error) {
	var keys [][]byte
	for _, p := range processes {
		keys = append(keys, []byte(p))
	}
	return m.query(ctx, "living", literals{"keys": blobs(keys)})
}

func (m *mysqlWire) beat(ctx context.Context) error {
	_, err := m.exec(ctx, m.d.db, "beat", literals{"k": blob([]byte(m.d.process)), "n": num(processLives.Microseconds())})
	return err
}

func (m *mysqlWire) bury(ctx context.Context, floor int64, dead []write) error {
	if len(dead) > 0 {
		var pairs []string
		for _, w := range dead {
			pairs = append(pairs, "("+blob(w.key)+", "+num(w.was)+")")
		}
		if _, err := m.exec(ctx, m.d.db, "floor", literals{"n": num(floor)}); err != nil {
			return err
		}
		if _, err := m.exec(ctx, m.d.db, "sweep", literals{"pairs": strings.Join(pairs, ", ")}); err != nil {
			return err
		}
	}
	_, err := m.exec(ctx, m.d.db, "sweep_process", literals{"n": num(restsFor.Microseconds())})
	return err
}

func mysqlFields(ctx context.Context, d *Driver, table string) ([]field, error) {
	rows, err := d.db.QueryContext(ctx, d.fill("fields", literals{"table": "CONVERT(" + blob([]byte(table)) + " USING utf8mb4)"}))
	return scanFields(rows, err)
}

// mysqlFault tells errors apart by their number
// (https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html).
func mysqlFault(err error) fault {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return fault{}
	}
	f := fault{undone: e.Number != 1053 && e.Number != 1927} // shutting down, connection killed
	switch e.Number {
	case 1205, 1213, 3572, 1020, 1412: // lock wait timeout, deadlock, NOWAIT, record changed, table definition changed
		f.again = true
		f.hint = "others change the same rows all the time"
	case 1146:
		f.hint = "its tables are missing: call CreateSchema once"
	case 1054, 1366, 1265:
		f.hint = "its tables do not fit: CreateSchema says how"
	case 1142, 1143, 1044, 1227, 1370:
		f.hint = "this user lacks a right: it needs SELECT, INSERT, UPDATE and DELETE on the three tables, and to create them CREATE"
	case 1290, 1792, 1836, 3100:
		f.hint = "the server is read-only: connect to the primary"
	case 1040, 1203, 1226:
		f.hint = "the server has no connection left: raise max_connections, or make pools smaller"
	case 1021, 1114, 1041:
		f.hint = "the server is out of disk space or memory"
	case 1045:
		f.hint = "the server refuses user or password"
	case 1046, 1049:
		f.hint = "there is no such database: create it first, and name it in the location"
	case 1064:
		f.hint = "the server does not understand the statement: MySQL 8.0.1 or MariaDB 10.6 or later is needed, for SKIP LOCKED"
	case 1317, 3024, 1969:
		f.hint = "the statement was interrupted: somebody killed it, or a limit on its time is too short"
	}
	return f
}
