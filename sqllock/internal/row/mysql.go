package row

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mariadb is MySQL as well. It writes values into the text, as numbers and as hexadecimal literals, so that each statement
// is one round trip and no SQL mode or character set of the session changes what a value means. A literal takes the
// collation of the column that it is compared with.
type mariadb struct{}

func (mariadb) quote(identifier string) string {
	return "`" + strings.ReplaceAll(identifier, "`", "``") + "`"
}

func (mariadb) text(_ *statement, v string) string {
	return "_utf8mb4 X'" + hex.EncodeToString([]byte(v)) + "'"
}

func (mariadb) num(_ *statement, n int64) string { return strconv.FormatInt(n, 10) }

func (m mariadb) list(s *statement, vs []string) string {
	all := make([]string, len(vs))
	for i, v := range vs {
		all[i] = m.text(s, v)
	}
	return "(" + strings.Join(all, ", ") + ")"
}

func (mariadb) time(_ *statement, _ *table, us int64) string {
	return "TIMESTAMP'" + time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000000") + "'"
}

func (mariadb) micros(column string) string {
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + column + ")"
}

func (mariadb) bytes(column string) string {
	return "CAST(CONVERT(" + column + " USING utf8mb4) AS BINARY)"
}

func (m mariadb) now(c Clock, _ *table) string {
	switch {
	case c.Zone != nil:
		return ""
	case c.Local:
		return m.micros("NOW(6)")
	}
	return m.micros("UTC_TIMESTAMP(6)")
}

func (mariadb) insert() (verb, tail string) { return "INSERT", "" }
func (mariadb) begin() string               { return "START TRANSACTION" }

// by has the server find rows by their key, since a scan, which it likes better in small tables, would lock all others.
func (m mariadb) by(t *table) string { return " FORCE INDEX (" + m.quote(t.index) + ")" }

func (mariadb) forUpdate() string  { return " FOR UPDATE" }
func (mariadb) skipLocked() string { return " FOR UPDATE SKIP LOCKED" }

func (m mariadb) columns(ctx context.Context, d *Driver) (*table, []column, error) {
	schema, name := "DATABASE()", d.lay.Table
	if before, after, ok := strings.Cut(name, "."); ok {
		schema, name = m.text(nil, before), after
	}
	rows, err := d.db.QueryContext(ctx, fmt.Sprintf(`SELECT COLUMN_NAME, DATA_TYPE, COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), COALESCE(DATETIME_PRECISION, 0),
	IS_NULLABLE = 'YES' OR COLUMN_DEFAULT IS NOT NULL OR EXTRA <> '',
	(SELECT MIN(i.INDEX_NAME) FROM (
		SELECT INDEX_NAME, MAX(COLUMN_NAME) AS only FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA = %[1]s AND TABLE_NAME = %[2]s AND NON_UNIQUE = 0 GROUP BY INDEX_NAME HAVING COUNT(*) = 1 AND COUNT(SUB_PART) = 0
	) AS i WHERE i.only = c.COLUMN_NAME), COALESCE(CHARACTER_SET_NAME, ''), COALESCE(COLLATION_NAME, ''),
	@@autocommit, @@session.time_zone = @@global.time_zone
FROM information_schema.COLUMNS AS c WHERE TABLE_SCHEMA = %[1]s AND TABLE_NAME = %[2]s`, schema, m.text(nil, name)))
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	t := &table{}
	var out []column
	for rows.Next() {
		var c column
		var chars int64
		var precision int
		var commits, zone bool
		var charset, collation string
		var index sql.NullString // that makes it unique
		if err := rows.Scan(&c.name, &c.kind, &chars, &precision, &c.optional, &index, &charset, &collation, &commits, &zone); err != nil {
			return nil, nil, err
		}
		switch c.kind {
		case "varchar", "char", "text", "tinytext", "mediumtext", "longtext", "varbinary", "binary":
			c.class, c.chars = text, int(min(chars, noLimit))
		case "datetime", "timestamp":
			c.class, c.step = instant, 1
			for range 6 - precision {
				c.step *= 10
			}
		}
		c.unique = index.Valid
		switch {
		case !commits:
			return nil, nil, d.invalid("the pool's sessions have autocommit off, so that nothing is committed: leave it on")
		case strings.EqualFold(c.name, d.lay.Until) && c.kind == "timestamp" && !zone && !d.lay.Clock.Local:
			return nil, nil, d.invalid("the pool's sessions have a time_zone of their own, and the column %s of the table %s is %s, whose values depend on it: leave time_zone out of the DSN", c.name, d.lay.Table, c.kind)
		case strings.EqualFold(c.name, d.lay.Key):
			t.collation, t.index = collation, index.String
			switch charset {
			case "utf8mb4", "":
				t.widest = 4
			case "utf8", "utf8mb3":
				t.widest = 3
			default:
				t.widest = 1
			}
		}
		out = append(out, c)
	}
	return t, out, rows.Err()
}

func (m mariadb) number(ctx context.Context, d *Driver, tx *sql.Conn, key string, now int64, span int) (last int64, err error) {
	table, name := d.name(d.lay.Tokens), "X'"+hex.EncodeToString([]byte(key))+"'"
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (name, last) VALUES (%s, %d) ON DUPLICATE KEY UPDATE last = GREATEST(last, %d) + %d",
		table, name, now+int64(span)-1, now-1, span)); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT last FROM %s WHERE name = %s", table, name)).Scan(&last)
	return last - int64(span) + 1, err
}

// fault tells errors apart by their number
// (https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html).
func (mariadb) fault(err error) fault {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return fault{}
	}
	f := fault{undone: e.Number != 1053 && e.Number != 1180 && e.Number != 1927} // shutting down, while committing, connection killed
	switch e.Number {
	case 1205, 1213, 3572, 1020, 1412: // lock wait timeout, deadlock, NOWAIT, record changed, table definition changed
		f.again = true
	case 1062:
		f.exists = true
	case 1146:
		f.hint = "a table is missing: create it (Schema prints how), or name the right one in Options"
	case 1054, 1366, 1265, 1292, 1406:
		f.hint = "its columns do not fit: compare them with what Schema prints, and with Options"
	case 1142, 1143, 1044, 1227, 1370:
		f.hint = "this user lacks a right: it needs SELECT, INSERT and UPDATE on the table and on the table of tokens, and on a plain table DELETE"
	case 1290, 1792, 1836, 3100:
		f.hint = "the server is read-only: connect to the primary"
	case 1040, 1203, 1226:
		f.hint = "the server has no connection left: raise max_connections, or make pools smaller"
	case 1045:
		f.hint = "the server refuses user or password"
	case 1046, 1049:
		f.hint = "there is no such database: create it first, and name it in the location"
	case 1064:
		f.hint = "the server does not understand the statement: MySQL 8.0.1 or MariaDB 10.6 or later is needed, for SKIP LOCKED"
	}
	return f
}
