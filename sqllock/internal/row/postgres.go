package row

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// postgres sends every value as an argument.
type postgres struct{}

func (postgres) quote(identifier string) string {
	return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"`
}

func (s *statement) dollar(v any) string {
	s.args = append(s.args, v)
	return fmt.Sprintf("$%d", len(s.args))
}

func (postgres) text(s *statement, v string) string { return s.dollar(v) + "::text" }
func (postgres) num(s *statement, n int64) string   { return s.dollar(n) + "::bigint" }

func (postgres) list(s *statement, vs []string) string {
	text, _ := json.Marshal(vs) // strings always can be marshalled
	return "(SELECT json_array_elements_text(" + s.dollar(string(text)) + "::text::json))"
}

func (p postgres) time(s *statement, t *table, us int64) string {
	zone := ""
	if t.zoned {
		zone = "tz"
	}
	return "(timestamp" + zone + " 'epoch' + " + p.num(s, us) + " * interval '1 microsecond')"
}

func (postgres) micros(column string) string {
	return "CASE WHEN isfinite(" + column + ") THEN " + epoch(column) + " END"
}

func epoch(moment string) string { return "(EXTRACT(EPOCH FROM " + moment + ") * 1000000)::bigint" }

func (postgres) bytes(column string) string { return column + ` COLLATE "C"` }

func (postgres) now(c Clock, t *table) string {
	switch {
	case c.Zone != nil:
		return ""
	case t.zoned:
		return epoch("clock_timestamp()")
	case c.Local:
		return epoch("clock_timestamp()::timestamp")
	}
	return epoch("(clock_timestamp() AT TIME ZONE 'UTC')")
}

func (postgres) insert() (verb, tail string) { return "INSERT", " ON CONFLICT DO NOTHING" }
func (postgres) begin() string               { return "BEGIN" }
func (postgres) by(*table) string            { return "" }
func (postgres) forUpdate() string           { return " FOR UPDATE" }
func (postgres) skipLocked() string          { return " FOR UPDATE SKIP LOCKED" }

func (postgres) columns(ctx context.Context, d *Driver) (*table, []column, error) {
	const query = `SELECT a.attname, format_type(a.atttypid, NULL), a.atttypmod, NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '',
	EXISTS (SELECT 1 FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
		AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
	COALESCE(c.collname, ''), current_setting('server_encoding')
FROM pg_attribute AS a LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped`
	rows, err := d.db.QueryContext(ctx, query, d.name(d.lay.Table))
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	t := &table{}
	var out []column
	for rows.Next() {
		var c column
		var mod int
		var collation, encoding string
		if err := rows.Scan(&c.name, &c.kind, &mod, &c.optional, &c.unique, &collation, &encoding); err != nil {
			return nil, nil, err
		}
		switch c.kind {
		case "character varying":
			c.class, c.chars = text, max(mod-4, 0)
		case "text":
			c.class = text
		case "timestamp without time zone", "timestamp with time zone":
			c.class, c.step = instant, 1
			for range 6 - mod {
				if mod >= 0 {
					c.step *= 10
				}
			}
		}
		if c.name == d.lay.Until && c.kind == "timestamp with time zone" {
			if !d.lay.Clock.Local {
				return nil, nil, d.invalid("the column %s of the table %s is %s, whose values would depend on each session's time zone: make it timestamp without time zone, as the others write it",
					c.name, d.lay.Table, c.kind)
			}
			t.zoned = true
		}
		if c.name == d.lay.Key {
			t.collation, t.widest = collation, 1
			if encoding == "UTF8" {
				t.widest = 4
			}
		}
		out = append(out, c)
	}
	return t, out, rows.Err()
}

func (p postgres) number(ctx context.Context, d *Driver, tx *sql.Conn, key string, now int64, span int) (token int64, err error) {
	return numberReturning(ctx, d, tx, key, now, span, p.text)
}

// numberReturning reserves span numbers above all that were given out for a name.
func numberReturning(ctx context.Context, d *Driver, tx *sql.Conn, key string, now int64, span int, value func(*statement, string) string) (token int64, err error) {
	s, w := d.statement(), d.wire
	s.add("INSERT INTO %s AS t (name, last) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET last = ", d.name(d.lay.Tokens), value(s, key), w.num(s, now+int64(span)-1))
	s.add("CASE WHEN t.last < %s THEN %s ELSE t.last END + %s RETURNING last", w.num(s, now-1), w.num(s, now-1), w.num(s, int64(span)))
	err = tx.QueryRowContext(ctx, s.sql.String(), s.args...).Scan(&token)
	return token - int64(span) + 1, err
}

// fault tells errors apart by SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html), which both pgx and
// lib/pq report.
func (postgres) fault(err error) fault {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return fault{}
	}
	code := e.SQLState()
	f := fault{undone: code != "40003"}
	for _, unclear := range []string{"08", "57P", "58", "XX"} { // connection, shutdown, the system, the server itself
		f.undone = f.undone && !strings.HasPrefix(code, unclear)
	}
	switch code {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock not available
		f.again = true
	case "23505":
		f.exists = true
	case "42P07", "42710": // somebody creates the tables at the same moment
		f.again = true
	case "42P01", "3F000":
		f.hint = "a table is missing: create it (Schema prints how), or name the right one in Options"
	case "42703", "42804", "42P10":
		f.hint = "its columns do not fit: compare them with what Schema prints, and with Options"
	case "42501":
		f.hint = "this user lacks a right: it needs SELECT, INSERT and UPDATE on the table and on the table of tokens, and on a plain table DELETE"
	case "25006":
		f.hint = "the server or the session is read-only: connect to the primary"
	case "53300":
		f.hint = "the server has no connection left: raise max_connections, or make pools smaller"
	case "28P01", "28000":
		f.hint = "the server refuses user or password"
	case "3D000":
		f.hint = "there is no such database: create it first"
	}
	return f
}
