package sqllock_test

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/sqllock"
)

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}

// Each case has a file of its own, and each driver of a case a pool of its own, as another process would have it. The files
// are copies of one with the tables in it, which is quicker than to create them.
func TestConformance(t *testing.T) {
	made := newFile(t)
	open(t, made).Close()
	tables, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	files := make(map[testing.TB]string)
	fileOf := func(t testing.TB) string {
		mu.Lock()
		defer mu.Unlock()
		if files[t] == "" {
			files[t] = newFile(t)
			if err := os.WriteFile(files[t], tables, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return files[t]
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			d, err := sqllock.Open(context.Background(), "sqlite://"+fileOf(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		MinTTL: 2 * time.Second, // for a busy machine with the race detector
		Kinds:  everyKind,

		WriterFirst: true,
		Delete: func(t testing.TB, name string) {
			db, err := sql.Open("sqlite", fileOf(t)+"?_busy_timeout=10000")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("DELETE FROM pawl_lock WHERE name = ?", []byte(name)); err != nil {
				t.Fatal(err)
			}
		},
	})
}
