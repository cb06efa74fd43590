package servertest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// pool is a caller's own pool. Its settings are words of the DSN's query.
func (s product) pool(t testing.TB, settings string) *sql.DB {
	t.Helper()
	dsn := s.DSN
	if settings != "" {
		sign := "?"
		if strings.Contains(dsn, "?") {
			sign = "&"
		}
		dsn += sign + settings
	}
	db, err := sql.Open(s.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (s product) on(t testing.TB, db *sql.DB, opts *sqllock.Options) *sqllock.Driver {
	t.Helper()
	o := sqllock.Options{}
	if opts != nil {
		o = *opts
	}
	o.Table = cmp.Or(o.Table, s.table)
	d := sqllock.New(db, s.dialect, &o)
	t.Cleanup(func() { d.Close() })
	if err := d.CreateSchema(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	return d
}

// exchange has two drivers pass names back and forth, with waiting, renewing, expiring and many at once.
func exchange(t testing.TB, d1, d2 *sqllock.Driver) {
	t.Helper()
	a := mustTake(t, d1, "x", time.Minute)
	b := mustWait(t, d2, "x", time.Minute)
	if err := renew(t, d1, a); err != nil {
		t.Errorf("Renew: %v", err)
	}
	mustRelease(t, d1, a)
	if err := b.get(within(t, soon)); err != nil {
		t.Fatalf("the next in line: %v", err)
	}
	if b.Token <= a.Token {
		t.Errorf("token %d follows %d", b.Token, a.Token)
	}
	if err := try(t, d1, "x"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try for what another holds: %v", err)
	}
	mustRelease(t, d2, b)
	var dead *contender
	settle(t, "taken within a short TTL", func() (ok bool) {
		var err error
		dead, err = take(within(t, soon), d1, "dead", 300*time.Millisecond)
		return err == nil
	})
	c := mustTake(t, d2, "dead", time.Minute)
	if c.Token <= dead.Token {
		t.Errorf("token %d follows %d", c.Token, dead.Token)
	}
	mustRelease(t, d2, c)
	var wg sync.WaitGroup
	for i := range 40 {
		d := []*sqllock.Driver{d1, d2}[i%2]
		wg.Go(func() {
			c, err := take(within(t, soon), d, fmt.Sprint("many ", i/4), time.Minute)
			if err == nil {
				err = d.Release(within(t, soon), c.Hold, driver.End{})
			}
			if err != nil {
				t.Errorf("one of many: %v", err)
			}
		})
	}
	wg.Wait()
}

// Whatever a caller's pool is set to, and whatever its sessions believe of time, locks work between it and others.
func testPools(t *testing.T, s product) {
	settings := map[sqllock.Dialect]map[string]string{
		sqllock.PostgreSQL: {
			"serializable":    "default_transaction_isolation=serializable",
			"repeatable read": "default_transaction_isolation=repeatable%20read",
			"time zone":       "timezone=Pacific/Kiritimati",
			"simple protocol": "default_query_exec_mode=simple_protocol",
			"exec protocol":   "default_query_exec_mode=exec",
			"timeouts":        "statement_timeout=2000&lock_timeout=1000&idle_in_transaction_session_timeout=1000",
		},
		sqllock.MySQL: {
			"serializable":   "tx_isolation=%27SERIALIZABLE%27",
			"read committed": "tx_isolation=%27READ-COMMITTED%27",
			"time zone":      "time_zone=%27%2B13:00%27&loc=Asia%2FTokyo&parseTime=true",
			"found rows":     "clientFoundRows=true&interpolateParams=true",
			"odd SQL":        "sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT%27&charset=latin1",
			"timeouts":       "wait_timeout=2&innodb_lock_wait_timeout=1&lock_wait_timeout=1",
		},
	}
	plain := s.open(t)
	for name, setting := range settings[s.dialect] {
		t.Run(name, func(t *testing.T) {
			prefix := &sqllock.Options{Prefix: name + "/"}
			exchange(t, s.on(t, s.pool(t, setting), prefix), s.on(t, s.pool(t, ""), prefix))
		})
	}
	t.Run("one connection", func(t *testing.T) {
		db := s.pool(t, "")
		db.SetMaxOpenConns(1)
		prefix := &sqllock.Options{Prefix: "one/"}
		d := s.on(t, db, prefix)
		exchange(t, d, s.on(t, s.pool(t, ""), prefix))
		holder := mustTake(t, d, "crowded", time.Minute)
		const crowd = 30
		var done sync.WaitGroup
		for range crowd {
			c := mustWait(t, d, "crowded", time.Minute)
			done.Go(func() {
				err := c.get(within(t, 2*soon))
				if err == nil {
					err = d.Release(within(t, soon), c.Hold, driver.End{})
				}
				if err != nil {
					t.Errorf("one of a crowd: %v", err)
				}
			})
		}
		for range 5 {
			if _, err := db.ExecContext(within(t, soon), "SELECT 1"); err != nil {
				t.Errorf("a query of the caller while %d wait: %v", crowd, err)
			}
		}
		if got := d.Waiting(); !strings.HasPrefix(got, "polling") || s.dialect == sqllock.PostgreSQL && !strings.Contains(got, "pool allows less than 3") {
			t.Errorf("with one connection Waiting is %q", got)
		}
		mustRelease(t, d, holder)
		done.Wait()
		d.Close()
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use after Close", n)
		}
		if err := db.Ping(); err != nil {
			t.Errorf("Close of the driver closed the caller's pool: %v", err)
		}
	})
	t.Run("drivers that share a pool", func(t *testing.T) {
		db := s.pool(t, "")
		db.SetMaxOpenConns(4)
		var drivers []*sqllock.Driver
		holder := mustTake(t, plain, "shared", time.Minute)
		for range 6 {
			d := s.on(t, db, nil)
			drivers = append(drivers, d)
			mustWait(t, d, "shared", time.Minute)
		}
		listening := 0
		time.Sleep(200 * time.Millisecond)
		for i, d := range drivers {
			mustRelease(t, d, mustTake(t, d, fmt.Sprint("own ", i), time.Minute))
			if d.Waiting() == "notifications" {
				listening++
			}
		}
		if listening > 1 {
			t.Errorf("%d of 4 connections listen", listening)
		}
		for _, d := range drivers {
			d.Close()
		}
		mustRelease(t, plain, holder)
	})
	t.Run("no listener is left in the pool", func(t *testing.T) {
		if s.dialect != sqllock.PostgreSQL {
			return
		}
		db := s.pool(t, "")
		d := s.on(t, db, nil)
		holder := mustTake(t, plain, "listened", time.Minute)
		mustWait(t, d, "listened", time.Minute)
		settle(t, "notifications", func() bool { return d.Waiting() == "notifications" })
		d.Close()
		mustRelease(t, plain, holder)
		for range 5 {
			var n int
			if err := db.QueryRow("SELECT COUNT(*) FROM pg_listening_channels()").Scan(&n); err != nil || n > 0 {
				t.Errorf("a connection of the pool still listens: %d, %v", n, err)
			}
		}
	})
}

// A user needs no more than the documented rights, and what is missing is named.
func testRights(t *testing.T, s product) {
	s.open(t)
	var as func(user string) *sql.DB
	if s.dialect == sqllock.PostgreSQL {
		for _, u := range []string{"runs", "reader", "nobody1"} {
			s.exec(t, "CREATE ROLE "+u+" LOGIN PASSWORD 'pw'")
		}
		s.exec(t, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %[1]s, %[1]s_process, %[1]s_state TO runs", s.table))
		s.exec(t, fmt.Sprintf("GRANT SELECT ON %[1]s, %[1]s_process, %[1]s_state TO reader", s.table))
		as = func(user string) *sql.DB {
			db, err := sql.Open("pgx", "postgres://"+user+":pw@"+s.Addr+"/postgres?sslmode=disable")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db
		}
	} else {
		for _, u := range []string{"runs", "reader", "nobody1"} {
			s.exec(t, "CREATE USER "+u+"@'%' IDENTIFIED BY 'pw'")
		}
		for _, table := range []string{s.table, s.table + "_process", s.table + "_state"} {
			s.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON pawl."+table+" TO runs@'%'")
			s.exec(t, "GRANT SELECT ON pawl."+table+" TO reader@'%'")
		}
		s.exec(t, "CREATE DATABASE empty")
		s.exec(t, "GRANT CREATE TEMPORARY TABLES ON empty.* TO nobody1@'%'")
		as = func(user string) *sql.DB {
			database := "pawl"
			if user == "nobody1" {
				database = "empty"
			}
			db, err := sql.Open("mysql", user+":pw@tcp("+s.Addr+")/"+database)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db
		}
	}
	d := s.on(t, as("runs"), nil) // which creates nothing, since all is there
	exchange(t, d, s.on(t, as("runs"), nil))
	settle(t, "a row", func() bool { _, err := d.Inspect(within(t, soon), "x"); return err == nil })

	reads := sqllock.New(as("reader"), s.dialect, &sqllock.Options{Table: s.table})
	defer reads.Close()
	if _, err := reads.Inspect(within(t, soon), "x"); err != nil {
		t.Errorf("who may read cannot inspect: %v", err)
	}
	mustSay(t, "Try of who may only read", try(t, reads, "y"), "lacks a right", "UPDATE")
	nobody := sqllock.New(as("nobody1"), s.dialect, &sqllock.Options{Table: s.table})
	defer nobody.Close()
	if s.dialect == sqllock.PostgreSQL {
		mustSay(t, "Try of who may do nothing", try(t, nobody, "y"), "lacks a right")
	} else {
		mustSay(t, "CreateSchema of who may not", nobody.CreateSchema(context.Background()), "lacks a right", "CREATE")
	}
}

func mustSay(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: the error %q does not say %q", what, err, w)
		}
	}
}

// What cannot work says so, and what to do.
func testRefuses(t *testing.T, s product) {
	s.open(t)
	closed := s.pool(t, "")
	closed.Close()
	wrong := sqllock.MySQL
	if s.dialect == sqllock.MySQL {
		wrong = sqllock.PostgreSQL
	}
	s.exec(t, "CREATE TABLE other (name VARCHAR(100) PRIMARY KEY, kind VARCHAR(10) NOT NULL)")
	drive := func(db *sql.DB, dialect sqllock.Dialect, table string) *sqllock.Driver {
		d := sqllock.New(db, dialect, &sqllock.Options{Table: cmp.Or(table, s.table)})
		t.Cleanup(func() { d.Close() })
		return d
	}
	mustSay(t, "no tables", try(t, drive(s.DB(), s.dialect, "missing"), "x"), "call CreateSchema once")
	mustSay(t, "another table", drive(s.DB(), s.dialect, "other").CreateSchema(within(t, soon)), "column state is missing", "column kind is", "Options.Table")
	mustSay(t, "a closed pool", try(t, drive(closed, s.dialect, ""), "x"), "closed")
	mustSay(t, "another dialect", try(t, drive(s.DB(), wrong, ""), "x"), "Dialect", "sqllock."+s.dialect.String())
	mustSay(t, "SQLite's dialect", try(t, drive(s.DB(), sqllock.SQLite, ""), "x"), "not one of SQLite")
	mustSay(t, "another dialect", drive(s.DB(), wrong, "").CreateSchema(within(t, soon)), "Dialect")
	if s.dialect == sqllock.MySQL {
		mustSay(t, "autocommit off", try(t, drive(s.pool(t, "autocommit=0"), s.dialect, ""), "x"), "autocommit off")
		s.exec(t, "CREATE USER plain@'%' IDENTIFIED BY 'pw'")
		s.exec(t, "GRANT ALL ON pawl.* TO plain@'%'")
		db, _ := sql.Open("mysql", "plain:pw@tcp("+s.Addr+")/pawl")
		defer db.Close()
		s.exec(t, "SET GLOBAL read_only = 1")
		mustSay(t, "a read-only server", try(t, drive(db, s.dialect, ""), "x"), "read-only", "primary")
		s.exec(t, "SET GLOBAL read_only = 0")
	} else {
		mustSay(t, "a read-only session", try(t, drive(s.pool(t, "default_transaction_read_only=on"), s.dialect, ""), "x"), "read-only", "primary")
	}
	odd := &sqllock.Options{Table: "odd \"`'; DROP TABLE pawl_lock; -- ü"}
	d := s.on(t, s.DB(), odd)
	mustRelease(t, d, mustTake(t, d, "x", time.Minute))
	if text, err := sqllock.Schema(s.dialect, odd); err != nil || strings.Count(text, "CREATE TABLE") != 3 {
		t.Errorf("Schema is %q, %v", text, err)
	}
	s.exec(t, "DELETE FROM "+s.table+"_state")
	mustSay(t, "no state", try(t, drive(s.DB(), s.dialect, ""), "x"), "call CreateSchema once")
	if err := drive(s.DB(), s.dialect, "").CreateSchema(within(t, soon)); err != nil {
		t.Error(err)
	}
	if err := try(t, drive(s.DB(), s.dialect, ""), "x"); err != nil {
		t.Errorf("after CreateSchema: %v", err)
	}
	s.exec(t, "UPDATE "+s.table+"_state SET version = 99")
	mustSay(t, "another layout", try(t, drive(s.DB(), s.dialect, ""), "x"), "layout 99")
}
