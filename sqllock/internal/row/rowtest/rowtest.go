// Package rowtest runs the suite of drivers over layouts that cannot carry every name.
package rowtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// Database is one that the tests run on.
type Database struct {
	Name    string
	Dialect sqllock.Dialect
	URL     string
	DB      *sql.DB         // one pool for all drivers of a test, since a connection costs more than a case
	Server  *sqltest.Server // nil: SQLite

	own *sql.DB // for the tests' own statements
}

// Each runs a test on a database of each kind, at the same time.
func Each(t *testing.T, f func(t *testing.T, db Database)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{"PostgreSQL", "MariaDB", "SQLite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, Start(t, name))
		})
	}
}

// Start starts a database.
func Start(t testing.TB, name string, args ...string) Database {
	t.Helper()
	d := Database{Name: name}
	switch name {
	case "PostgreSQL":
		d.Dialect, d.Server = sqllock.PostgreSQL, sqltest.StartPostgres(t, args...)
	case "MariaDB":
		d.Dialect, d.Server = sqllock.MySQL, sqltest.StartMariaDB(t, args...)
	case "SQLite":
		file := filepath.Join(t.TempDir(), "locks.db")
		pool := func(wait string) *sql.DB {
			db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_busy_timeout="+wait)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db
		}
		d.Dialect, d.URL, d.DB, d.own = sqllock.SQLite, "sqlite://"+file, pool("0"), pool("20000")
		d.DB.SetMaxOpenConns(8)
		return d
	}
	d.URL, d.DB = d.Server.URL, d.Server.DB()
	d.DB.SetMaxOpenConns(40)
	d.DB.SetMaxIdleConns(40)
	d.own = d.DB
	return d
}

// Exec runs a statement as the tests' own.
func (d Database) Exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := d.own.ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Count is one number that a query answers.
func (d Database) Count(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	if err := d.own.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Conform runs the suite. The two rules that want every name to be carried are left out: [Names] takes their place.
func Conform(t *testing.T, db Database, open func() driver.Driver, remove func(name string)) {
	h := drivertest.Harness{
		Open:   func(testing.TB) driver.Driver { return open() },
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: 3 * time.Second, // for a busy machine with the race detector
		Delete: func(_ testing.TB, name string) { remove(name) },
	}
	still := h
	if s := db.Server; s != nil {
		u, _ := url.Parse(db.URL)
		password, _ := u.User.Password()
		h.Secrets = []string{password, s.URL, s.DSN}
		still.Secrets = h.Secrets
		h.Stall = func(testing.TB) func() {
			s.Stop()
			var once sync.Once
			return func() { once.Do(s.Cont) }
		}
	}
	d := open()
	defer d.Close()
	var wg sync.WaitGroup
	seats := make(chan struct{}, 12)
	var alone []drivertest.Rule
	for _, r := range drivertest.Rules() {
		switch name := r.String(); {
		case name == "names/never meet", name == "inspect/lists the names in use", !r.Applies(h, d):
		case !r.Applies(still, d), name == "secrets/no error shows one":
			alone = append(alone, r) // it stops the server
		default:
			wg.Go(func() {
				seats <- struct{}{}
				defer func() { <-seats }()
				t.Run(name, func(t *testing.T) { r.Check(t, still) })
			})
		}
	}
	wg.Wait()
	if len(alone) == 0 && db.Server != nil {
		t.Error("no rule stops the server")
	}
	for _, r := range alone {
		t.Run(r.String(), func(t *testing.T) { r.Check(t, h) })
	}
	t.Run("names", func(t *testing.T) { names(t, open(), open()) })
}

// names wants of all names that careless stores take for one another that each is either carried, and then meets no
// other, or refused for good; and that exactly those that are carried are listed.
func names(t *testing.T, d1, d2 driver.Driver) {
	defer d1.Close()
	defer d2.Close()
	ctx, base := t.Context(), "n"+strings.ToLower(t.Name()[:4])
	tails := []string{
		"", "A", "a", "á", "a\u0301", "ß", "ss", "SS", "İ", "i", "I", "ı", " ", "  ", "\t", "\n", "\r\n", "\x00", "\x00a", "\u200d", "😀", "/", "//", "/a", ":", ".",
		"{}", "{a", "%", "_", "*", "?", "[a]", "^", "$", "$1", "\\", "\\0", "\\x00", "%00", "%2F", "+", "&", "#", "@", "'", "\"", "`", "''", ";", "--", "\\'", "?1",
		"\xff", "\xfe", "\xc3", "\xc3\x28", "\xef\xbf\xbd", "\xed\xa0\x80", strings.Repeat("x", 40), strings.Repeat("x", 41), strings.Repeat("é", 40), strings.Repeat("x", 90), strings.Repeat("x", 200),
	}
	held := make(map[string]driver.Hold)
	for i, tail := range tails {
		h := driver.Hold{Kind: driver.Exclusive, Name: base + tail, ID: fmt.Sprintf("00000000-0000-4000-8000-000000000000:%d", i+1), Permits: 1, TTL: time.Minute}
		err := Try(ctx, d1, h)
		switch {
		case errors.Is(err, driver.ErrInvalid):
			continue
		case err != nil:
			t.Fatalf("%q: %v", h.Name, err)
		}
		held[h.Name] = h
		h.ID += "0"
		if err := Try(ctx, d2, h); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%q is held, another request for it got: %v", h.Name, err)
		}
	}
	if len(held) < 40 {
		t.Errorf("only %d of %d names are carried", len(held), len(tails))
	}
	for prefix := range held {
		want := 0
		for name := range held {
			if strings.HasPrefix(name, prefix) {
				want++
			}
		}
		got := 0
		for r, err := range d2.(driver.Inspector).List(ctx, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := held[r.Name]; !ok || !strings.HasPrefix(r.Name, prefix) || len(r.Holds) != 1 || r.Holds[0].ID != h.ID {
				t.Errorf("for the prefix %q %q is listed: %+v", prefix, r.Name, r.Holds)
			}
			got++
		}
		if got != want {
			t.Errorf("for the prefix %q %d names are listed, want %d", prefix, got, want)
		}
	}
	for name, h := range held {
		if err := d2.Release(ctx, h, driver.End{}); err != nil {
			t.Errorf("release of %q: %v", name, err)
		}
	}
}

// Try makes one attempt.
func Try(ctx context.Context, d driver.Driver, h driver.Hold) error {
	p, err := d.Enter(ctx, driver.Request{Hold: h, Notify: func(driver.Signal) {}})
	if err != nil {
		return err
	}
	_, err = p.Try(ctx, 1)
	return err
}
