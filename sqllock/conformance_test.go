package sqllock_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/sqllock"
)

// One file for all cases: they may share a store.
func TestConformance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			d, err := sqllock.Open(context.Background(), "sqlite://"+file, nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Kinds: []driver.Kind{driver.Exclusive, driver.Fair},
		Delete: func(t testing.TB, name string) {
			db, err := sql.Open("sqlite", file+"?_busy_timeout=10000")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, table := range []string{"pawl_lock", "pawl_lock_line"} {
				if _, err := db.Exec("DELETE FROM "+table+" WHERE name = ?", []byte(name)); err != nil {
					t.Fatal(err)
				}
			}
		},
	})
}
