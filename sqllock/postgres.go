package sqllock

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-lock/pawl/driver"
)

//go:embed postgres.sql
var postgresText string

func postgresDialect() *dialect {
	return &dialect{
		text:   postgresText,
		quote:  sqliteQuote,
		store:  newServerStore(func(d *Driver) wire { return postgres{d} }),
		turn:   100 * time.Millisecond,
		fault:  postgresFault,
		fields: postgresFields,
	}
}

// NewPgx is [New] for PostgreSQL on a pool of pgx itself, which stays the caller's: it is not configured, and not closed.
// Each connection is taken for the length of one statement, besides one that listens while places wait, or others for what
// this driver takes and releases, if the pool allows at least three for each driver on it.
func NewPgx(pool *pgxpool.Pool, opts *Options) *Driver {
	if pool == nil {
		d := New(nil, PostgreSQL, opts)
		d.bad = fmt.Errorf("sqllock: NewPgx was called with a nil *pgxpool.Pool: %w", driver.ErrInvalid)
		return d
	}
	d := New(stdlib.OpenDBFromPool(pool), PostgreSQL, opts)
	d.owned, d.pool = true, pool // closing this *sql.DB closes no pool
	return d
}

type postgres struct{ d *Driver }

func (postgres) listens() bool { return true }

func (p postgres) query(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	return p.d.ask(ctx, p.d.sections[statement].text, args...)
}

func (p postgres) exec(ctx context.Context, statement string, args ...any) error {
	rows, err := p.query(ctx, statement, args...)
	return scanAll(rows, err, func(func(...any) error) error { return nil })
}

// ask runs a statement that may answer rows.
func (d *Driver) ask(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	args, err := d.mode(ctx, args)
	if err != nil {
		return nil, err
	}
	rows, err := d.db.QueryContext(ctx, text, args...)
	d.learn(err)
	return rows, err
}

// mode adds to the arguments of a statement how pgx is to run it: it keeps statements prepared in its sessions, which is of no
// use where a pooler hands out another session each time; there nothing is prepared.
func (d *Driver) mode(ctx context.Context, args []any) ([]any, error) {
	if _, is := d.db.Driver().(*stdlib.Driver); !is {
		return args, nil
	}
	if d.sessions.Load() == unknownSessions {
		if err := d.findPooler(ctx); err != nil {
			return nil, err
		}
	}
	if d.sessions.Load() == othersSessions {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	return args, nil
}

// learn notes that a statement has failed since there is a pooler after all.
func (d *Driver) learn(err error) {
	if e, is := errors.AsType[*pgconn.PgError](err); is && (e.Code == noStatement || e.Code == twoStatements) {
		d.sessions.Store(othersSessions)
	}
}

// What is known of the sessions behind the connections of a pool.
const (
	unknownSessions = iota
	ownSessions     // each connection has one
	othersSessions  // there is a pooler
)

// findPooler asks a session whether it is the one that the connection was given when it was made. A pooler makes up its own
// numbers.
func (d *Driver) findPooler(ctx context.Context) error {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(inner any) error {
		c := inner.(*stdlib.Conn).Conn()
		var pid uint32
		if err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
			return err
		}
		if pid == c.PgConn().PID() {
			d.sessions.Store(ownSessions)
		} else {
			d.sessions.Store(othersSessions)
		}
		return nil
	})
}

// SQLSTATEs about prepared statements: there is none of that name, there already is one.
const noStatement, twoStatements = "26000", "42P05"

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // strings and numbers always can be marshalled
		panic(err)
	}
	return string(text)
}

func (p postgres) load(ctx context.Context, keys [][]byte) (*sql.Rows, error) {
	if len(keys) == 1 {
		return p.query(ctx, "load_one", keys[0])
	}
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = hex.EncodeToString(k)
	}
	return p.query(ctx, "load", asJSON(list))
}

func (p postgres) page(ctx context.Context, from, end, cursor []byte, n int) (*sql.Rows, error) {
	return p.query(ctx, "page", hex.EncodeToString(from), hex.EncodeToString(cursor), hex.EncodeToString(end), n)
}

func (p postgres) save(ctx context.Context, ws []write, guess window) (map[string]bool, *sight, error) {
	notices := p.notices(ws)
	if len(ws) == 1 && ws[0].was != 0 && len(notices) <= 1 {
		return p.saveOne(ctx, ws[0], append(notices, notice{})[0], guess)
	}
	type row struct {
		K       string `json:"k"`
		Name    string `json:"name"`
		Was     int64  `json:"was"`
		Rev     int64  `json:"rev"`
		Kind    uint8  `json:"kind"`
		Lim     int    `json:"lim"`
		Last    int64  `json:"last"`
		Until   int64  `json:"until"`
		Changed int64  `json:"changed"`
		State   string `json:"state"`
	}
	rows := make([]row, len(ws))
	for i, w := range ws {
		rows[i] = row{
			hex.EncodeToString(w.key), hex.EncodeToString(w.name), w.was, w.rev, uint8(w.kind), w.limit, w.last, w.until, w.changed, w.contents.text(),
		}
	}
	written := make(map[string]bool)
	out, err := p.query(ctx, "save", asJSON(rows), asJSON(notices))
	err = scanAll(out, err, func(scan func(...any) error) error {
		var k []byte
		var n int
		err := scan(&k, &n)
		written[string(k)] = true
		return err
	})
	return written, nil, err
}

// notice is what a process is to be told, once a row is written.
type notice struct {
	K string `json:"k"`
	C string `json:"c"`
	P string `json:"p"`
}

func (p postgres) notices(ws []write) []notice {
	out := []notice{} // not null, in JSON
	for _, w := range ws {
		by := make(map[string][]call)
		for _, c := range w.calls {
			if c.process != p.d.process {
				by[c.process] = append(by[c.process], c)
			}
		}
		for process, calls := range by {
			out = append(out, notice{hex.EncodeToString(w.key), channelOf(process), payload(calls, w)})
		}
	}
	return out
}

// saveOne writes one row that was there. If that failed, and others seem to want the name, it answers what is there instead;
// else that is not worth the time that a query takes longer than a command.
func (p postgres) saveOne(ctx context.Context, w write, n notice, guess window) (written map[string]bool, found *sight, err error) {
	flush := ""
	if w.light {
		flush = "off"
	}
	args := []any{w.key, w.was, w.rev, int64(w.kind), int64(w.limit), w.last, w.until, w.changed, w.contents.text(), guess.from, guess.to, flush}
	done := true
	if len(w.contents.Line) == 0 && n.C == "" {
		if args, err = p.d.mode(ctx, args); err != nil {
			return nil, nil, notDone(err)
		}
		r, err := p.d.db.ExecContext(ctx, p.d.sections["update"].text, args...)
		if err != nil {
			p.d.learn(err)
			return nil, nil, err
		}
		rows, err := r.RowsAffected()
		return map[string]bool{string(w.key): rows > 0}, nil, err
	}
	s := p.d.store.(*serverStore)
	found = newSight(1)
	rows, err := p.query(ctx, "write", append(args, n.C, n.P)...)
	err = scanAll(rows, err, func(scan func(...any) error) error {
		done = false
		return s.each(found, scan)
	})
	if err != nil {
		return nil, nil, err
	}
	return map[string]bool{string(w.key): done}, found, nil
}

func (p postgres) living(ctx context.Context, processes []string) (*sql.Rows, error) {
	return p.query(ctx, "living", asJSON(processes))
}

func (p postgres) beat(ctx context.Context) error {
	return p.exec(ctx, "beat", p.d.process, processLives.Microseconds())
}

func (p postgres) bury(ctx context.Context, floor int64, dead []write) error {
	if len(dead) > 0 {
		type row struct {
			K   string `json:"k"`
			Rev int64  `json:"rev"`
		}
		var rows []row
		for _, w := range dead {
			rows = append(rows, row{hex.EncodeToString(w.key), w.was})
		}
		if err := p.exec(ctx, "floor", floor); err != nil {
			return err
		}
		if err := p.exec(ctx, "sweep", asJSON(rows)); err != nil {
			return err
		}
	}
	return p.exec(ctx, "sweep_process", restsFor.Microseconds())
}

func postgresFields(ctx context.Context, d *Driver, table string) ([]field, error) {
	rows, err := d.ask(ctx, d.sections["fields"].text, d.dialect.quote(table))
	return scanFields(rows, err)
}

// postgresFault tells errors apart by SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html), which
// both pgx and lib/pq report.
func postgresFault(err error) fault {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return fault{}
	}
	code := e.SQLState()
	f := fault{undone: !strings.HasPrefix(code, "57P") && !strings.HasPrefix(code, "08") && code != "40003"}
	switch code {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock not available
		f.again = true
		f.hint = "others change the same rows all the time"
	case noStatement, twoStatements:
		f.again = true
		f.hint = "a pooler is between that knows no prepared statements: set default_query_exec_mode=exec in the pool"
	case "0A000":
		f.again = strings.Contains(err.Error(), "cached plan") // the table was made anew; the driver prepares again
	case "23505", "42P07", "42710": // somebody creates the tables at the same moment
		f.again = strings.Contains(err.Error(), "pg_") || code != "23505"
	case "42P01":
		f.hint = "its tables are missing: call CreateSchema once"
	case "42703", "42804", "22P02":
		f.hint = "its tables do not fit: CreateSchema says how"
	case "42501":
		f.hint = "this user lacks a right: it needs SELECT, INSERT, UPDATE and DELETE on the three tables, and to create them CREATE on the schema"
	case "25006":
		f.hint = "the server or the session is read-only: connect to the primary"
	case "53300":
		f.hint = "the server has no connection left: raise max_connections, or make pools smaller"
	case "53100", "53200":
		f.hint = "the server is out of disk space or memory"
	case "28P01", "28000":
		f.hint = "the server refuses user or password"
	case "3D000":
		f.hint = "there is no such database: create it first"
	case "57014":
		f.hint = "the statement was cancelled: statement_timeout may be shorter than the server needs"
	case "42601":
		f.hint = "the server does not understand the statement: is it PostgreSQL 10 or later?"
	}
	return f
}
