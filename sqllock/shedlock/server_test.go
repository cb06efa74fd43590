package shedlock_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

// TestServer has the tests that share a server, each with a table of its own.
func TestServer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"PostgreSQL", "MariaDB"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := rowtest.Start(t, name)
			opts := &shedlock.Options{Table: "jobs", Tokens: "job_tokens"}
			create(t, db, opts)
			t.Run("late_commits", func(t *testing.T) {
				rowtest.LateCommits(t, db, func(url string) driver.Driver { return open(t, url, opts) })
			})
			t.Run("locked_rows", func(t *testing.T) { rowtest.LockedRows(t, db, open(t, db.URL, opts), "jobs", "name") })
			t.Run("bad_input", func(t *testing.T) { testBadInput(t, db) })
			t.Run("rights", func(t *testing.T) { testRights(t, db) })
			t.Run("peer", func(t *testing.T) { testPeers(t, db) })
			if name == "MariaDB" {
				t.Run("idle", func(t *testing.T) { rowtest.IdleWaiters(t, db, open(t, db.URL, opts)) })
				t.Run("collation", func(t *testing.T) { testCollation(t, db) })
			}
		})
	}
}

func open(t testing.TB, url string, opts *shedlock.Options) *shedlock.Driver {
	t.Helper()
	d, err := shedlock.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// says wants an error with these words, and without the password.
func says(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: the error does not say %q: %v", what, w, err)
		}
	}
	if strings.Contains(err.Error(), "sesame") {
		t.Errorf("%s: the error shows the password", what)
	}
}

func lock(t *testing.T, d driver.Driver, name string) error {
	t.Helper()
	l, err := pawl.New(d).Mutex(name).TryLock(t.Context())
	if err == nil {
		err = l.Unlock()
	}
	return err
}

// Each mistake is named, and whoever made it is told what to do.
func testBadInput(t *testing.T, db rowtest.Database) {
	moment := map[sqllock.Dialect]string{sqllock.PostgreSQL: "TIMESTAMP", sqllock.MySQL: "TIMESTAMP(3)"}[db.Dialect]
	for _, c := range []struct{ what, columns, words string }{
		{"no_such_table", "", "create it"},
		{"no_such_column", "name VARCHAR(64) PRIMARY KEY, lock_until TS, locked_by VARCHAR(255)", "column locked_at is missing"},
		{"wrong_type", "name VARCHAR(64) PRIMARY KEY, lock_until BIGINT, locked_at TS, locked_by VARCHAR(255)", "column lock_until is bigint, and should be a time"},
		{"not_unique", "name VARCHAR(64), lock_until TS, locked_at TS, locked_by VARCHAR(255)", "neither the primary key nor unique"},
		{"half_unique", "name VARCHAR(64), tenant INT DEFAULT 0, lock_until TS, locked_at TS, locked_by VARCHAR(255), PRIMARY KEY (name, tenant)", "neither the primary key nor unique"},
		{"one_more", "name VARCHAR(64) PRIMARY KEY, lock_until TS, locked_at TS, locked_by VARCHAR(255), tenant INT NOT NULL", "column tenant has no default"},
		{"short_holder", "name VARCHAR(64) PRIMARY KEY, lock_until TS, locked_at TS, locked_by VARCHAR(30)", "takes 30 characters"},
	} {
		if c.columns != "" {
			db.Exec(t, "CREATE TABLE "+c.what+" ("+strings.ReplaceAll(strings.ReplaceAll(c.columns, "TS,", moment+" NULL,"), "TS)", moment+" NULL)")+")")
		}
		d := shedlock.New(db.DB, db.Dialect, &shedlock.Options{Table: c.what})
		says(t, c.what, lock(t, d, "x"), c.words, c.what)
		d.Close()
		if _, err := shedlock.Open(t.Context(), db.URL, &shedlock.Options{Table: c.what}); c.what != "short_holder" {
			says(t, "Open of "+c.what, err, c.words)
		}
	}
	good := &shedlock.Options{Table: "jobs"}
	d := open(t, db.URL, good)
	for what, name := range map[string]string{"65 characters": strings.Repeat("n", 65), "takes 64": strings.Repeat("é", 65), "NUL": "a\x00", "UTF-8": "a\xff"} {
		err := lock(t, d, name)
		says(t, what, err, what)
		if !errors.Is(err, pawl.ErrInvalid) {
			t.Errorf("%s: %v does not match ErrInvalid", what, err)
		}
	}
	if err := lock(t, d, strings.Repeat("é", 64)); err != nil {
		t.Errorf("a name of 64 characters: %v", err)
	}
	for _, wrong := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL, sqllock.SQLite} {
		if wrong != db.Dialect {
			says(t, "the dialect "+wrong.String(), lock(t, shedlock.New(db.DB, wrong, good), "x"), "New wants sqllock."+db.Dialect.String())
		}
	}
	says(t, "an unknown dialect", lock(t, shedlock.New(db.DB, 9, good), "x"), "is not supported")
	says(t, "no pool", lock(t, shedlock.New(nil, db.Dialect, good), "x"), "nil *sql.DB")
	says(t, "no tokens", lock(t, shedlock.New(db.DB, db.Dialect, &shedlock.Options{Table: "jobs", Tokens: "nowhere"}), "x"), "nowhere", "create it")
	closed, err := sql.Open(db.Server.Driver, db.Server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	says(t, "a closed pool", lock(t, shedlock.New(closed, db.Dialect, good), "x"), "closed")
	_, err = shedlock.Open(t.Context(), "oracle://u:sesame@h/x", nil)
	says(t, "another scheme", err, "postgres://")
	_, err = shedlock.Open(t.Context(), strings.Replace(db.URL, "open@", "wrong@", 1), good)
	says(t, "a wrong password", err, "password")

	switch db.Dialect {
	case sqllock.PostgreSQL:
		db.Exec(t, "CREATE TABLE zoned (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMPTZ, locked_at TIMESTAMPTZ, locked_by VARCHAR(255))")
		says(t, "times with a zone", lock(t, shedlock.New(db.DB, db.Dialect, &shedlock.Options{Table: "zoned"}), "x"), "session's time zone")
		db.Exec(t, "CREATE SCHEMA other CREATE TABLE jobs2 (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP, locked_at TIMESTAMP, locked_by TEXT)")
		if err := lock(t, open(t, db.URL, &shedlock.Options{Table: "other.jobs2"}), "x"); err != nil {
			t.Errorf("a table in another schema: %v", err)
		}
	case sqllock.MySQL:
		for what, c := range map[string][2]string{"autocommit": {"autocommit=0", "leave it on"}, "time zone": {"time_zone=%27%2B02:00%27", "leave time_zone out"}} {
			pool, err := sql.Open("mysql", db.Server.DSN+"?"+c[0])
			if err != nil {
				t.Fatal(err)
			}
			says(t, what, lock(t, shedlock.New(pool, db.Dialect, good), "x"), c[1])
			pool.Close()
		}
	}
}

// The rights that the documentation names are enough, and one less is told.
func testRights(t *testing.T, db rowtest.Database) {
	other := strings.Replace(db.URL, "//pawl:", "//clerk:", 1)
	grant := func(right, table string) { db.Exec(t, "GRANT "+right+" ON "+table+" TO clerk") }
	if db.Dialect == sqllock.MySQL {
		db.Exec(t, "CREATE USER clerk IDENTIFIED BY 'sesame-open'")
	} else {
		db.Exec(t, "CREATE USER clerk PASSWORD 'sesame-open'")
	}
	opts := &shedlock.Options{Table: "jobs", Tokens: "job_tokens"}
	_, err := shedlock.Open(t.Context(), other, opts)
	says(t, "no right", err, "lacks a right")
	grant("SELECT", "jobs")
	says(t, "SELECT alone", lock(t, open(t, other, opts), "x"), "lacks a right")
	if r, err := open(t, other, opts).Inspect(t.Context(), "x"); err != nil || len(r.Holds) > 0 {
		t.Errorf("to look needs SELECT alone: %+v, %v", r, err)
	}
	grant("INSERT, UPDATE", "jobs")
	grant("SELECT, INSERT, UPDATE", "job_tokens")
	if err := lock(t, open(t, other, opts), "x"); err != nil {
		t.Errorf("with the rights that the documentation names: %v", err)
	}
}

// The usual tables of MySQL take Job and job for one name. ShedLock would lock both by one row; pawl says so.
func testCollation(t *testing.T, db rowtest.Database) {
	db.Exec(t, "CREATE TABLE usual (name VARCHAR(64) NOT NULL PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	db.Exec(t, "CREATE TABLE latin (name VARCHAR(64) NOT NULL PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL) CHARACTER SET latin1")
	d := open(t, db.URL, &shedlock.Options{Table: "usual"})
	if err := lock(t, d, "Job"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"job", "JOB", "Job ", "Jöb"} {
		err := lock(t, d, name)
		says(t, name, err, "cannot be told from", `"Job"`, "utf8mb4_general_ci")
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v does not match ErrInvalid", name, err)
		}
	}
	if err := lock(t, d, "Job"); err != nil {
		t.Errorf("the first name: %v", err)
	}
	says(t, "latin1", lock(t, open(t, db.URL, &shedlock.Options{Table: "latin"}), "日"), "character set")
}

// A file of SQLite is shared as sqlite-jdbc writes it: whole milliseconds since 1970, whatever the zone.
func TestSQLiteFile(t *testing.T) {
	t.Parallel()
	db := rowtest.Start(t, "SQLite")
	create(t, db, nil)
	d := open(t, db.URL, nil)
	l, err := pawl.New(d).Mutex("job").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := int(time.Now().UnixMilli())
	if n := db.Count(t, "SELECT lock_until FROM shedlock WHERE name = 'job' AND typeof(lock_until) = 'integer'"); n < now || n > now+31_000 {
		t.Errorf("lock_until is %d, at %d", n, now)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "INSERT INTO shedlock VALUES ('theirs', ?, ?, 'vm')", now+60_000, now)
	var held *pawl.HeldError
	if err := lock(t, d, "theirs"); !errors.As(err, &held) || held.Holder.Label != "vm" || held.Remaining <= 0 {
		t.Errorf("another client's: %v", err)
	}
	none := filepath.Join(t.TempDir(), "none.db")
	_, err = shedlock.Open(t.Context(), "sqlite://"+none, nil)
	says(t, "no file", err, "cannot be opened")
	if _, err := os.Stat(none); err == nil {
		t.Error("Open has made the file")
	}
	file := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(file, []byte("something else, and long enough to be looked at as a database file at all ......................................"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = shedlock.Open(t.Context(), "sqlite://"+file, nil)
	says(t, "no database", err, "not an SQLite database")
}
