// Package oncetest tests record.OnceInTx against real databases. Package record is in a module without drivers.
package oncetest

import (
	"context"
	"database/sql"
	"io"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/record"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// database is a real one with a table of records, and what a shop has: orders, which nothing but the record keeps from being made
// twice, and a counter.
type database struct {
	*sql.DB
	record.Table
	server *sqltest.Server // nil: SQLite
	driver string
	dsn    string
}

func sqliteDSN(file string, mode string) string {
	o := url.Values{"_pragma": {"busy_timeout(20000)", "synchronous(OFF)", "journal_mode(WAL)"}, "_txlock": {mode}}
	return (&url.URL{Scheme: "file", Opaque: file, RawQuery: o.Encode()}).String()
}

func openSQLite(t testing.TB, mode string) *database {
	t.Helper()
	dsn := sqliteDSN(filepath.Join(t.TempDir(), "shop.db"), mode)
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return prepare(t, &database{DB: db, Table: record.Table{Dialect: fence.SQLite}, driver: "sqlite", dsn: dsn})
}

func openMariaDB(t testing.TB) *database {
	t.Helper()
	s := sqltest.StartMariaDB(t)
	return prepare(t, &database{DB: s.DB(), Table: record.Table{Dialect: fence.MySQL}, server: s, driver: s.Driver, dsn: s.DSN})
}

func openPostgres(t testing.TB) *database {
	t.Helper()
	s := sqltest.StartPostgres(t)
	return prepare(t, &database{DB: s.DB(), Table: record.Table{Dialect: fence.PostgreSQL}, server: s, driver: s.Driver, dsn: s.DSN})
}

func prepare(t testing.TB, d *database) *database {
	t.Helper()
	create, err := d.CreateTable()
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, create)
	d.exec(t, create) // the second time does nothing
	id := map[fence.Dialect]string{fence.SQLite: "INTEGER PRIMARY KEY", fence.MySQL: "BIGINT AUTO_INCREMENT PRIMARY KEY", fence.PostgreSQL: "BIGSERIAL PRIMARY KEY"}
	d.exec(t, "CREATE TABLE orders (id "+id[d.Dialect]+", item VARCHAR(100) NOT NULL, who VARCHAR(100) NOT NULL)")
	d.exec(t, "CREATE TABLE counter (n BIGINT NOT NULL)")
	d.exec(t, "INSERT INTO counter VALUES (0)")
	return d
}

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

func (d *database) number(t testing.TB, s string, args ...any) (n int) {
	t.Helper()
	if err := d.QueryRowContext(t.Context(), d.q(s), args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return n
}

func (d *database) orders(t testing.TB, item string) int {
	t.Helper()
	return d.number(t, "SELECT COUNT(*) FROM orders WHERE item = ?", item)
}

// order is what a run answers.
type order struct {
	Item, Who string
}

// insert is the work: it makes an order.
func (d *database) insert(ctx context.Context, tx *sql.Tx, item, who string) (order, error) {
	_, err := tx.ExecContext(ctx, d.q("INSERT INTO orders (item, who) VALUES (?, ?)"), item, who)
	return order{item, who}, err
}

// making is the work as a function for OnceInTx.
func (d *database) making(item, who string) func(context.Context, *sql.Tx) (order, error) {
	return func(ctx context.Context, tx *sql.Tx) (order, error) { return d.insert(ctx, tx, item, who) }
}

// TestMain lets the test's program be one of the processes of a shop.
func TestMain(m *testing.M) {
	mysql.SetLogger(log.New(io.Discard, "", 0)) // the tests kill connections
	if len(os.Args) > 1 && os.Args[1] == "shop" {
		shop()
		return
	}
	os.Exit(m.Run())
}
