package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

const driver1m = time.Minute

// pool is a caller's own pool.
func pool(t testing.TB, file, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newOn(t testing.TB, db *sql.DB, opts *sqllock.Options) *sqllock.Driver {
	t.Helper()
	d := sqllock.New(db, sqllock.SQLite, opts)
	t.Cleanup(func() { d.Close() })
	if err := d.CreateSchema(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	return d
}

// Waiting and holding keep no connection: on a pool of one, a crowd waits and the caller's own queries go through.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{
		"defaults": "",
		"wal":      "?_journal_mode=WAL&_busy_timeout=5000&_txlock=immediate",
		"delete":   "?_journal_mode=DELETE&_busy_timeout=100",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pool(t, newFile(t), options)
			db.SetMaxOpenConns(1)
			d := newOn(t, db, nil)
			holder := mustGet(t, d, "x", driver1m)
			const crowd = 30
			errs := make(chan error, crowd)
			var inLine sync.WaitGroup
			for range crowd {
				a := mustAsk(t, d, "x", driver1m)
				inLine.Add(1)
				go func() {
					_, err := a.place.Try(context.Background(), 1)
					inLine.Done()
					if errors.Is(err, driver.ErrHeld) {
						err = a.get2(within(t, 2*soon))
					}
					if err == nil {
						err = d.Release(context.Background(), a.Hold, driver.End{})
					}
					errs <- err
				}()
			}
			inLine.Wait()
			begun := time.Now()
			if _, err := db.ExecContext(within(t, soon), "CREATE TABLE mine (x)"); err != nil {
				t.Errorf("a query of the caller while %d wait: %v", crowd, err)
			}
			t.Logf("a query of the caller took %v while %d waited", time.Since(begun), crowd)
			mustRelease(t, d, holder)
			for range crowd {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if n := db.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use at the end", n)
			}
			if err := db.Ping(); err != nil {
				t.Errorf("Close of the driver closed the caller's pool: %v", err)
			}
		})
	}
}

// The journal mode of a caller's pool may be any: the hand-over is told in each.
func TestNewWakes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"WAL", "DELETE", "TRUNCATE", "PERSIST"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			file := newFile(t)
			d1 := newOn(t, pool(t, file, "?_journal_mode="+mode), nil)
			d2 := newOn(t, pool(t, file, "?_journal_mode="+mode), nil)
			a := mustGet(t, d1, "x", driver1m)
			b := mustAsk(t, d2, "x", driver1m)
			if _, err := b.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			mustRelease(t, d1, a)
			if err := b.get2(within(t, soon)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A foreign transaction that keeps the database locked bounds nothing: ctx does, the TTL does, and nothing was done.
func TestLockedDatabase(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	waiting := mustGet(t, d, "x", driver1m)
	held := mustAsk(t, d, "x", driver1m)
	if _, err := held.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	foreign := pool(t, file, "?_txlock=immediate")
	tx, err := foreign.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func(context.Context) error{
		"Try": func(ctx context.Context) error {
			a, err := ask(ctx, d, "y", driver1m, true)
			if err != nil {
				return err
			}
			_, err = a.place.Try(ctx, 1)
			if err := a.place.Leave(context.Background()); err != nil { // nothing to undo
				t.Errorf("Leave: %v", err)
			}
			return err
		},
		"Leave":   func(ctx context.Context) error { return held.place.Leave(ctx) },
		"Renew":   func(ctx context.Context) error { return d.Renew(ctx, []driver.Hold{waiting.Hold})[0] },
		"Release": func(ctx context.Context) error { return d.Release(ctx, waiting.Hold, driver.End{}) },
	} {
		begun := time.Now()
		err := call(within(t, 100*time.Millisecond))
		if took := time.Since(begun); took > soon/2 {
			t.Errorf("%s took %v after its ctx had ended", what, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrNotDone) {
			t.Errorf("%s: %v", what, err)
		} else if !strings.Contains(err.Error(), "locked") {
			t.Errorf("%s: the error %q does not say why", what, err)
		}
	}
	a, err := ask(context.Background(), d, "z", 300*time.Millisecond, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.place.Try(context.Background(), 1); !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("Try without any limit but its TTL: %v", err)
	}
	if _, err := d.Inspect(within(t, soon), "x"); err != nil {
		t.Errorf("reading needs no lock: %v", err)
	}
	// Close does not wait for the lock either.
	d2 := open(t, file)
	ended := make(chan error, 1)
	go func() {
		_, err := mustAsk(t, d2, "y", driver1m).place.Try(context.Background(), 1)
		ended <- err
	}()
	time.Sleep(50 * time.Millisecond)
	d2.Close()
	if err := <-ended; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Try under way at Close: %v", err)
	}
	tx.Rollback()
	if err := d.Renew(within(t, soon), []driver.Hold{waiting.Hold})[0]; err != nil {
		t.Errorf("Renew after the lock was gone: %v", err)
	}
	for _, name := range []string{"y", "z"} {
		if r, err := d.Inspect(within(t, soon), name); err != nil || len(r.Holds) > 0 {
			t.Errorf("%q, which nobody got, is shown as %+v, %v", name, r, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	good := pool(t, file, "")
	closed := pool(t, file, "")
	closed.Close()
	for _, c := range []struct {
		what string
		d    *sqllock.Driver
		want string
	}{
		{"nil pool", sqllock.New(nil, sqllock.SQLite, nil), "nil *sql.DB"},
		{"no dialect", sqllock.New(good, 0, nil), "use sqllock.SQLite, sqllock.PostgreSQL or"},
		{"unknown dialect", sqllock.New(good, 77, nil), "use sqllock.SQLite, sqllock.PostgreSQL or"},
		{"long table", sqllock.New(good, sqllock.SQLite, &sqllock.Options{Table: strings.Repeat("x", 49)}), "48"},
		{"NUL in the table", sqllock.New(good, sqllock.SQLite, &sqllock.Options{Table: "a\x00b"}), "NUL"},
		{"kept table", sqllock.New(good, sqllock.SQLite, &sqllock.Options{Table: "SQLite_x"}), "sqlite_"},
		{"no tables", sqllock.New(good, sqllock.SQLite, nil), "call CreateSchema once"},
		{"closed pool", sqllock.New(closed, sqllock.SQLite, nil), "closed"},
		{"SQLite taken for PostgreSQL", sqllock.New(good, sqllock.PostgreSQL, nil), "New wants sqllock.SQLite"},
		{"SQLite taken for MySQL", sqllock.New(good, sqllock.MySQL, nil), "New wants sqllock.SQLite"},
		{"nil pool of pgx", sqllock.NewPgx(nil, nil), "nil *pgxpool.Pool"},
		{"memory", sqllock.New(pool(t, ":memory:", ""), sqllock.SQLite, nil), "in memory"},
	} {
		ctx := within(t, soon)
		a, err := ask(ctx, c.d, "x", driver1m, false)
		if err == nil {
			_, err = a.place.Try(ctx, 1)
		}
		_, inspect := c.d.Inspect(ctx, "x")
		errs := map[string]error{
			"Try":     err,
			"Renew":   c.d.Renew(ctx, []driver.Hold{{Kind: driver.Exclusive, Name: "x", ID: "a:1", TTL: driver1m}})[0],
			"Release": c.d.Release(ctx, driver.Hold{Kind: driver.Exclusive, Name: "x", ID: "a:1", TTL: driver1m}, driver.End{}),
			"Inspect": inspect,
		}
		for what, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: the error %v does not say %q", c.what, what, err, c.want)
			}
		}
		if err := c.d.Close(); err != nil {
			t.Errorf("%s: Close: %v", c.what, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	db := pool(t, filepath.Join(t.TempDir(), "locks.db"), "?_journal_mode=WAL")
	// Different tables, or prefixes, are different worlds.
	worlds := []*sqllock.Driver{
		newOn(t, db, nil),
		newOn(t, db, &sqllock.Options{Table: `we"ird; DROP TABLE pawl_lock; --`}),
		newOn(t, db, &sqllock.Options{Table: "ta ble"}),
		newOn(t, db, &sqllock.Options{Prefix: "app\x00"}),
		newOn(t, db, &sqllock.Options{Prefix: "{app}:"}),
	}
	for _, d := range worlds {
		mustGet(t, d, "x", driver1m)
	}
	for i, d := range worlds {
		mustBeHeld(t, d, "x")
		if i == 0 {
			continue // without a prefix, all of its table are its own
		}
		n := 0
		for r, err := range d.List(within(t, soon), "") {
			if err != nil || r.Name != "x" || len(r.Holds) != 1 || r.Holds[0].Name != "x" {
				t.Errorf("world %d lists %+v, %v", i, r, err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("world %d lists %d names", i, n)
		}
	}
	if err := newOn(t, db, nil).CreateSchema(within(t, soon)); err != nil {
		t.Errorf("CreateSchema again: %v", err)
	}
}

func TestStoreNames(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	names := make(map[string]bool)
	for _, opts := range []*sqllock.Options{nil, {Table: "other"}, {Prefix: "app"}} {
		for range 2 {
			d, err := sqllock.Open(within(t, soon), "sqlite://"+file, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			names[d.Store()] = true
		}
	}
	names[open(t, newFile(t)).Store()] = true
	if len(names) != 4 {
		t.Errorf("4 stores have %d names: %v", len(names), names)
	}
}
