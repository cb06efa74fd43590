// Package fencetest tests fence.Table against real databases. Package fence is in a module without drivers.
package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// database is a real one, with a table of marks and a table "stock" that they guard.
type database struct {
	*sql.DB
	fence.Table
	server *sqltest.Server // nil: SQLite
	file   string          // SQLite
}

func openSQLite(t testing.TB, options url.Values) *database {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.db")
	options.Add("_pragma", "busy_timeout(20000)")
	options.Add("_pragma", "synchronous(OFF)")
	dsn := url.URL{Scheme: "file", Opaque: file, RawQuery: options.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return prepare(t, &database{DB: db, Table: fence.Table{Dialect: fence.SQLite}, file: file})
}

// immediate is how a SQLite is opened whose transactions write.
func immediate() url.Values {
	return url.Values{"_txlock": {"immediate"}, "_pragma": {"journal_mode(WAL)"}}
}

func openMariaDB(t testing.TB) *database {
	t.Helper()
	mysql.SetLogger(log.New(io.Discard, "", 0)) // the tests kill connections
	s := sqltest.StartMariaDB(t)
	return prepare(t, &database{DB: s.DB(), Table: fence.Table{Dialect: fence.MySQL}, server: s})
}

func openPostgres(t testing.TB) *database {
	t.Helper()
	s := sqltest.StartPostgres(t)
	return prepare(t, &database{DB: s.DB(), Table: fence.Table{Dialect: fence.PostgreSQL}, server: s})
}

func prepare(t testing.TB, d *database) *database {
	t.Helper()
	marks, err := d.CreateTable()
	if err != nil {
		t.Fatal(err)
	}
	key := "VARCHAR(1024)"
	if d.Dialect == fence.MySQL {
		key = "VARBINARY(1024)"
	}
	d.exec(t, marks)
	d.exec(t, marks) // the second time does nothing
	d.exec(t, "CREATE TABLE stock (item "+key+" PRIMARY KEY, n BIGINT NOT NULL)")
	return d
}

// q writes a statement's parameters as the database wants them.
func (d *database) q(s string) string {
	if d.Dialect == fence.PostgreSQL {
		for _, n := range []string{"$1", "$2", "$3"} {
			s = strings.Replace(s, "?", n, 1)
		}
	}
	return s
}

func (d *database) exec(t testing.TB, s string, args ...any) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), d.q(s), args...); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
}

// stock is what is left of an item; -1: there is no such item.
func (d *database) stock(t testing.TB, item string) int {
	t.Helper()
	n, err := d.left(t.Context(), d.DB, item)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

type querier interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func (d *database) left(ctx context.Context, q querier, item string) (n int, err error) {
	err = q.QueryRowContext(ctx, d.q("SELECT n FROM stock WHERE item = ?"), item).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return -1, nil
	}
	return n, err
}

func (d *database) begin(t testing.TB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// claimed runs f after a claim in a transaction of its own, and again after a conflict.
func (d *database) claimed(ctx context.Context, level sql.IsolationLevel, resource string, l fence.Lease, shared bool, f func(tx *sql.Tx) error) error {
	for {
		err := func() error {
			tx, err := d.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				return err
			}
			defer tx.Rollback()
			claim := d.Claim
			if shared {
				claim = d.ClaimShared
			}
			if err := claim(ctx, tx, resource, l); err != nil {
				return err
			}
			if err := f(tx); err != nil {
				return err
			}
			return tx.Commit()
		}()
		if !conflict(err) {
			return err
		}
	}
}

// conflict reports whether the transaction would succeed if it ran again.
func conflict(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == 1213
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "40001" || e.Code == "40P01"
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()&0xff == 5
	}
	return false
}

// item is a number in the database, as the suite wants it.
type item struct {
	*database
	level    sql.IsolationLevel
	resource string
}

func (i item) read(ctx context.Context, l fence.Lease, shared bool) (n int, err error) {
	err = i.claimed(ctx, i.level, i.resource, l, shared, func(tx *sql.Tx) error {
		n, err = i.left(ctx, tx, i.resource)
		return err
	})
	return max(n, 0), err
}

func (i item) Read(ctx context.Context, l fence.Lease) (int, error) { return i.read(ctx, l, false) }
func (i item) ReadShared(ctx context.Context, l fence.Lease) (int, error) {
	return i.read(ctx, l, true)
}

func (i item) Write(ctx context.Context, l fence.Lease, v int) error {
	return i.claimed(ctx, i.level, i.resource, l, false, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, i.q("DELETE FROM stock WHERE item = ?"), i.resource); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, i.q("INSERT INTO stock (item, n) VALUES (?, ?)"), i.resource, v)
		return err
	})
}

func (d *database) suite(t *testing.T, level sql.IsolationLevel) {
	guardtest.Run(t, func(resource string) guardtest.Register {
		return item{d, level, level.String()[:4] + ":" + resource}
	})
}

// hold is a lease of a process that has not looked at its clock yet.
func hold(id string, token int64) fence.Lease {
	return guardtest.Shown{Lock: "lock", Hold: id, Number: token}
}

// blocked makes sure that f does not return for a moment, and answers how to wait for it.
func blocked(t *testing.T, f func() error) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- f() })
	t.Cleanup(wg.Wait)
	select {
	case err := <-done:
		t.Fatalf("it was not blocked: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	return func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("still blocked")
		}
	}
}
