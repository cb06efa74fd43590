package plaintable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
	"github.com/pawl-lock/pawl/sqllock/plaintable"
)

// TestServer has the tests that share a server, each with a table of its own.
func TestServer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"PostgreSQL", "MariaDB"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := rowtest.Start(t, name)
			opts := &plaintable.Options{Table: "locks", Tokens: "lock_tokens"}
			create(t, db, opts)
			t.Run("late_commits", func(t *testing.T) {
				rowtest.LateCommits(t, db, func(url string) driver.Driver { return open(t, url, opts) })
			})
			t.Run("locked_rows", func(t *testing.T) { rowtest.LockedRows(t, db, open(t, db.URL, opts), "locks", "lock_key") })
			t.Run("strangers", func(t *testing.T) { testStrangers(t, db, false) })
			t.Run("strangers_in_UTC", func(t *testing.T) { testStrangers(t, db, true) })
			t.Run("sweep", func(t *testing.T) { testSweep(t, db) })
			t.Run("other_columns", func(t *testing.T) { testOtherColumns(t, db) })
			t.Run("rights", func(t *testing.T) { testRights(t, db) })
			if name == "MariaDB" {
				t.Run("whole_seconds", func(t *testing.T) { testWholeSeconds(t, db) })
			}
		})
	}
}

func open(t testing.TB, url string, opts *plaintable.Options) *plaintable.Driver {
	t.Helper()
	d, err := plaintable.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// stranger is a program that locks as the pattern has it: by its own statements and value.
type stranger struct {
	db         *sql.DB
	table, now string
	later      func(ms int) string
	value      string
}

func newStranger(db rowtest.Database, pool *sql.DB, table string, utc bool) stranger {
	s := stranger{db: pool, table: table, value: "worker"}
	switch {
	case db.Dialect == sqllock.MySQL && utc:
		s.now = "UTC_TIMESTAMP(6)"
	case db.Dialect == sqllock.MySQL:
		s.now = "NOW(6)"
	case utc:
		s.now = "(now() AT TIME ZONE 'UTC')"
	default:
		s.now = "LOCALTIMESTAMP"
	}
	s.later = func(ms int) string {
		if db.Dialect == sqllock.MySQL {
			return fmt.Sprintf("%s + INTERVAL %d MICROSECOND", s.now, ms*1000)
		}
		return fmt.Sprintf("%s + interval '%d milliseconds'", s.now, ms)
	}
	return s
}

func (s stranger) exec(format string, args ...any) bool {
	r, err := s.db.Exec(fmt.Sprintf(format, args...))
	if err != nil {
		return false // a duplicate key
	}
	n, _ := r.RowsAffected()
	return n > 0
}

func (s stranger) lock(key string, ms int) bool {
	return s.exec("INSERT INTO %s (lock_key, lock_value, expire_time) VALUES ('%s', '%s', %s)", s.table, key, s.value, s.later(ms)) ||
		s.exec("UPDATE %s SET lock_value = '%s', expire_time = %s WHERE lock_key = '%s' AND expire_time < %s", s.table, s.value, s.later(ms), key, s.now)
}

func (s stranger) unlock(key string) bool {
	return s.exec("DELETE FROM %s WHERE lock_key = '%s' AND lock_value = '%s'", s.table, key, s.value)
}

// zoned is a pool whose sessions are in a zone of their own.
func zoned(t *testing.T, db rowtest.Database, serializable bool) *sql.DB {
	t.Helper()
	dsn := db.Server.DSN + "&timezone=Asia%2FTokyo"
	if db.Dialect == sqllock.MySQL {
		dsn = db.Server.DSN + "?time_zone=%27%2B09:00%27"
	}
	switch {
	case serializable && db.Dialect == sqllock.MySQL:
		dsn += "&tx_isolation=%27SERIALIZABLE%27"
	case serializable:
		dsn += "&default_transaction_isolation=serializable&default_query_exec_mode=simple_protocol" // as behind a pooler
	}
	pool, err := sql.Open(db.Server.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func testStrangers(t *testing.T, db rowtest.Database, utc bool) {
	opts := &plaintable.Options{Table: fmt.Sprintf("strangers_%v", utc), UTC: utc}
	create(t, db, opts)
	theirs, pool := zoned(t, db, false), zoned(t, db, true)
	if utc {
		pool = db.DB // the zone does not matter
	}
	d := plaintable.New(pool, db.Dialect, opts)
	defer d.Close()
	locks := pawl.New(d)
	defer locks.Close()
	s := newStranger(db, theirs, opts.Table, utc)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	lease, err := locks.Mutex("job").TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.lock("job", 60_000) || s.unlock("job") {
		t.Error("a stranger took, or freed, what pawl holds")
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	if n := db.Count(t, "SELECT COUNT(*) FROM "+opts.Table); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if !s.lock("job", 60_000) {
		t.Error("a stranger could not take what is free")
	}
	var held *pawl.HeldError
	if _, err := locks.Mutex("job").TryLock(ctx); !errors.As(err, &held) || held.Holder.Label != "worker" || held.Remaining < 20*time.Second || held.Remaining > time.Minute {
		t.Errorf("what a stranger holds: %v, %+v", err, held)
	}
	got := make(chan error, 1)
	go func() {
		var err error
		lease, err = locks.With(pawl.Options{TTL: 3 * time.Second}).Mutex("job").Lock(ctx)
		got <- err
	}()
	select {
	case err := <-got:
		t.Errorf("pawl did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if !s.unlock("job") {
		t.Error("the stranger lost what it held")
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	// Who deletes by the key alone ends pawl's hold, which is told.
	s.exec("DELETE FROM %s WHERE lock_key = 'job'", opts.Table)
	select {
	case <-lease.Done():
	case <-time.After(20 * time.Second):
		t.Error("the loss was not noticed")
	}
	lease.Unlock()

	// Each takes over what has run out, and a minimum hold keeps strangers out.
	if !s.lock("short", 50) {
		t.Error("a stranger could not take what is free")
	}
	if lease, err = locks.Mutex("short").Lock(ctx); err != nil {
		t.Fatal(err)
	}
	if s.unlock("short") {
		t.Error("a stranger freed what it lost")
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
	if err := locks.With(pawl.Options{MinHold: time.Hour}).Mutex("kept").TryDo(ctx, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if s.lock("kept", 60_000) {
		t.Error("a stranger took what pawl keeps")
	}
	db.Exec(t, strings.ReplaceAll("UPDATE "+opts.Table+" SET expire_time = NOW WHERE lock_key = 'kept'", "NOW", "'2001-01-01 00:00:00'"))
	if !s.lock("kept", 60_000) {
		t.Error("a stranger could not take over what has run out")
	}

	// Everybody at once: nobody meets anybody.
	var inside, met, pawls, others atomic.Int64
	work := func() {
		if inside.Add(1) != 1 {
			met.Add(1)
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			own := pawl.New(plaintable.New(pool, db.Dialect, opts))
			for range 20 {
				if err := own.Mutex("crowd").Do(ctx, func(context.Context) error { work(); pawls.Add(1); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	for i := range 2 {
		s := s
		s.value = fmt.Sprint("worker ", i)
		wg.Go(func() {
			for others.Load() < 1000 {
				select {
				case <-done:
					return
				default:
				}
				if s.lock("crowd", 60_000) {
					work()
					others.Add(1)
					if !s.unlock("crowd") {
						t.Error("a stranger's row was taken from it")
					}
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	for pawls.Load() < 60 && !t.Failed() {
		time.Sleep(10 * time.Millisecond)
	}
	close(done)
	wg.Wait()
	if met.Load() > 0 {
		t.Errorf("two met %d times", met.Load())
	}
	t.Logf("pawl had the lock %d times, the strangers %d", pawls.Load(), others.Load())
}

// What dead holders of pawl's left is deleted, and what belongs to others is not.
func testSweep(t *testing.T, db rowtest.Database) {
	opts := &plaintable.Options{Table: "swept"}
	create(t, db, opts)
	for i := range 400 {
		db.Exec(t, fmt.Sprintf("INSERT INTO swept (lock_key, lock_value, expire_time) VALUES ('dead %d', '00000000-0000-4000-8000-000000000000:%d who', '2001-01-01 00:00:00')", i, i))
	}
	db.Exec(t, "INSERT INTO swept (lock_key, lock_value, expire_time) VALUES ('kept', 'kept/00000000-0000-4000-8000-000000000000:9', '2001-01-01 00:00:00'), ('theirs', 'worker', '2001-01-01 00:00:00')")
	d := open(t, db.URL, opts)
	l, err := pawl.New(d).Mutex("live").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		n := db.Count(t, "SELECT COUNT(*) FROM swept")
		if n == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d rows are left", n)
		}
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if n := db.Count(t, "SELECT COUNT(*) FROM swept WHERE lock_key = 'theirs'"); n != 1 {
		t.Error("a stranger's row is gone")
	}
}

// Tables of the pattern differ: a number of their own as primary key, when a row was made, other names.
func testOtherColumns(t *testing.T, db rowtest.Database) {
	if db.Dialect == sqllock.MySQL {
		db.Exec(t, "CREATE TABLE `my \"locks` (id BIGINT AUTO_INCREMENT PRIMARY KEY, `the key` VARCHAR(50) COLLATE utf8mb4_bin NOT NULL UNIQUE, owner VARCHAR(80), expires TIMESTAMP(3) NULL, create_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)")
	} else {
		db.Exec(t, `CREATE TABLE "my ""locks" (id BIGSERIAL PRIMARY KEY, "the key" TEXT NOT NULL UNIQUE, owner VARCHAR(80), expires TIMESTAMPTZ, create_time TIMESTAMPTZ NOT NULL DEFAULT now())`)
	}
	opts := &plaintable.Options{Table: `my "locks`, Columns: plaintable.Columns{LockKey: "the key", LockValue: "owner", ExpireTime: "expires"}}
	if db.Dialect == sqllock.PostgreSQL {
		opts.Prefix = strings.Repeat("p", 100)
	}
	d := open(t, db.URL, opts)
	h := driver.Hold{Kind: driver.Exclusive, Name: "x", ID: "00000000-0000-4000-8000-000000000000:1", Permits: 1, TTL: time.Minute}
	if err := rowtest.Try(t.Context(), d, h); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := d.Renew(t.Context(), []driver.Hold{h})[0]; err != nil {
			t.Errorf("renew: %v", err)
		}
	}
	r, err := d.Inspect(t.Context(), "x")
	if err != nil || len(r.Holds) != 1 || r.Holds[0].Remaining < 30*time.Second || r.Holds[0].Remaining > time.Minute+time.Second {
		t.Errorf("%+v, %v", r, err)
	}
	if err := d.Release(t.Context(), h, driver.End{}); err != nil {
		t.Error(err)
	}

	// A row without an end is held until somebody deletes it.
	quoted := strings.NewReplacer("[", "`", "]", "`")
	if db.Dialect == sqllock.PostgreSQL {
		quoted = strings.NewReplacer("[my \"locks]", `"my ""locks"`, "[the key]", `"the key"`)
	}
	d = open(t, db.URL, &plaintable.Options{Table: opts.Table, Columns: opts.Columns})
	ends := map[string]string{"null": "NULL"}
	if db.Dialect == sqllock.PostgreSQL {
		ends["infinite"] = "'infinity'"
	}
	for name, end := range ends {
		db.Exec(t, quoted.Replace("INSERT INTO [my \"locks] ([the key], owner, expires) VALUES (")+"'"+name+"', 'worker', "+end+")")
		h.Name = name
		var held *driver.HeldError
		if err := rowtest.Try(t.Context(), d, h); !errors.As(err, &held) || held.Remaining >= 0 {
			t.Errorf("a row whose end is %s: %v", end, err)
		}
		listed := 0
		for r, err := range d.List(t.Context(), name) {
			if listed++; err != nil || len(r.Holds) != 1 {
				t.Errorf("%+v, %v", r, err)
				continue
			}
			if err := d.Release(t.Context(), r.Holds[0].Hold, driver.End{}); err != nil {
				t.Errorf("steal: %v", err)
			}
		}
		if listed != 1 {
			t.Errorf("a row whose end is %s is listed %d times", end, listed)
		}
		if err := rowtest.Try(t.Context(), d, h); err != nil {
			t.Errorf("after a steal: %v", err)
		}
	}
}

// In a column of whole seconds a hold ends up to a second late and never early, and a renewal within the same second counts.
func testWholeSeconds(t *testing.T, db rowtest.Database) {
	db.Exec(t, "CREATE TABLE seconds (lock_key VARCHAR(100) PRIMARY KEY, lock_value VARCHAR(100) NOT NULL, expire_time DATETIME NOT NULL, INDEX idx_expire (expire_time))")
	d := open(t, db.URL, &plaintable.Options{Table: "seconds"})
	for i := range 2 {
		h := driver.Hold{Kind: driver.Exclusive, Name: fmt.Sprint("x", i), ID: fmt.Sprint("00000000-0000-4000-8000-000000000000:1", i), Permits: 1, TTL: 1200 * time.Millisecond}
		begun := time.Now()
		if err := rowtest.Try(t.Context(), d, h); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			begun = time.Now()
			if err := d.Renew(t.Context(), []driver.Hold{h})[0]; err != nil && time.Since(begun) < time.Second {
				t.Errorf("renewed within a second: %v", err)
			}
		}
		other := h
		other.ID += "2"
		for {
			err := rowtest.Try(t.Context(), d, other)
			if err == nil {
				break
			}
			if !errors.Is(err, driver.ErrHeld) || time.Since(begun) > 20*time.Second {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if lived := time.Since(begun); lived < h.TTL-time.Millisecond {
			t.Errorf("a hold of %v ended after %v", h.TTL, lived)
		}
	}
}

// The rights that the documentation names are enough.
func testRights(t *testing.T, db rowtest.Database) {
	if db.Dialect == sqllock.MySQL {
		db.Exec(t, "CREATE USER clerk IDENTIFIED BY 'sesame-open'")
	} else {
		db.Exec(t, "CREATE USER clerk PASSWORD 'sesame-open'")
	}
	db.Exec(t, "GRANT SELECT, INSERT, UPDATE ON locks TO clerk")
	other := strings.Replace(db.URL, "//pawl:", "//clerk:", 1)
	locks := pawl.New(open(t, other, &plaintable.Options{Table: "locks"}))
	l, err := locks.With(pawl.Options{TTL: time.Second}).Mutex("clerk's").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err == nil || !strings.Contains(err.Error(), "lacks a right") || !strings.Contains(err.Error(), "DELETE") {
		t.Errorf("without DELETE: %v", err)
	}
	db.Exec(t, "GRANT DELETE ON locks TO clerk")
	if err := locks.Mutex("clerk's too").TryDo(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("with the rights that the documentation names: %v", err)
	}
}
