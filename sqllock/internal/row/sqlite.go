package row

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// sqlite has no clock but that of its callers' machine, so all times come from here.
type sqlite struct{}

func (sqlite) quote(identifier string) string { return postgres{}.quote(identifier) }

func (s *statement) question(v any) string {
	s.args = append(s.args, v)
	return "?" + strconv.Itoa(len(s.args))
}

func (sqlite) text(s *statement, v string) string { return s.question(v) }
func (sqlite) num(s *statement, n int64) string   { return s.question(n) }

func (sqlite) list(s *statement, vs []string) string {
	text, _ := json.Marshal(vs)
	return "(SELECT value FROM json_each(" + s.question(string(text)) + "))"
}

// time is what others write: sqlite-jdbc whole milliseconds, SQLite's own functions and most programs a text.
func (sqlite) time(s *statement, t *table, us int64) string {
	if t.d.lay.Millis {
		return s.question(us / 1000)
	}
	return s.question(time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000"))
}

func (sqlite) micros(column string) string {
	return "CASE typeof(" + column + ") WHEN 'integer' THEN " + column + " * 1000 " +
		"WHEN 'text' THEN CAST(ROUND(unixepoch(" + column + ", 'subsec') * 1000) AS INTEGER) * 1000 END"
}

func (sqlite) bytes(column string) string { return "CAST(" + column + " AS BLOB)" }
func (sqlite) now(Clock, *table) string   { return "" }
func (sqlite) insert() (string, string)   { return "INSERT", " ON CONFLICT DO NOTHING" }
func (sqlite) begin() string              { return "BEGIN IMMEDIATE" }
func (sqlite) by(*table) string           { return "" }
func (sqlite) forUpdate() string          { return "" } // a transaction that writes has the whole file
func (sqlite) skipLocked() string         { return "" }

var ofLength = regexp.MustCompile(`\((\d+)\)`)

func (w sqlite) columns(ctx context.Context, d *Driver) (*table, []column, error) {
	schema, name := "main", d.lay.Table
	if before, after, ok := strings.Cut(name, "."); ok {
		schema, name = before, after
	}
	rows, err := d.db.QueryContext(ctx, `SELECT name, upper(type), "notnull" = 0 OR dflt_value IS NOT NULL OR pk > 0 AND type = 'INTEGER', pk > 0 AND (SELECT count(*) FROM pragma_table_info(?1, ?2) WHERE pk > 0) = 1
	OR EXISTS (SELECT 1 FROM pragma_index_list(?1, ?2) AS l WHERE l."unique" AND NOT l.partial
		AND (SELECT count(*) FROM pragma_index_info(l.name, ?2)) = 1 AND (SELECT name FROM pragma_index_info(l.name, ?2)) = c.name)
FROM pragma_table_info(?1, ?2) AS c`, name, schema)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	var out []column
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.name, &c.kind, &c.optional, &c.unique); err != nil {
			return nil, nil, err
		}
		switch { // by the rules of affinity, https://www.sqlite.org/datatype3.html
		case strings.Contains(c.kind, "CHAR"), strings.Contains(c.kind, "TEXT"), strings.Contains(c.kind, "CLOB"):
			c.class = text
			if m := ofLength.FindStringSubmatch(c.kind); m != nil {
				c.chars, _ = strconv.Atoi(m[1])
			}
		case strings.Contains(c.kind, "TIME"), strings.Contains(c.kind, "DATE"), strings.Contains(c.kind, "INT"):
			c.class, c.step = instant, 1000
		}
		if strings.EqualFold(c.name, d.lay.Until) && c.class == text && !d.lay.Millis {
			c.class, c.step = instant, 1000
		}
		out = append(out, c)
	}
	return &table{widest: 4, collation: "that it was declared with"}, out, rows.Err()
}

func (w sqlite) number(ctx context.Context, d *Driver, tx *sql.Conn, key string, now int64, span int) (int64, error) {
	return numberReturning(ctx, d, tx, key, now, span, w.text)
}

// fault tells errors apart by SQLite's primary result codes (https://www.sqlite.org/rescode.html).
func (sqlite) fault(err error) fault {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return fault{}
	}
	switch e.Code() & 0xff {
	case 5, 6, 15, 17: // busy, locked, protocol, schema
		return fault{again: true, undone: true}
	case 8, 3: // read-only, permission
		return fault{undone: true, hint: "it cannot be written: give this user the right to write to the file and to its folder"}
	case 14:
		return fault{undone: true, hint: "the file cannot be opened: look whether its folder exists and this user may write there"}
	case 26:
		return fault{undone: true, hint: "the file is not an SQLite database: choose another file"}
	case 1:
		if strings.Contains(err.Error(), "no such table") {
			return fault{undone: true, hint: "a table is missing: create it (Schema prints how), or name the right one in Options"}
		}
	}
	return fault{undone: false, hint: fmt.Sprintf("SQLite answers with its code %d", e.Code())}
}
