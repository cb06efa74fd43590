package backend

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/plaintable"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

func TestLayouts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b.db")
	db, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(file, " ", "%20"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, d := range []interface {
		CreateSchema(context.Context) error
	}{
		shedlock.New(db, sqllock.SQLite, &shedlock.Options{Table: "jobs", Tokens: "numbers"}),
		plaintable.New(db, sqllock.SQLite, &plaintable.Options{Table: "locks", Columns: plaintable.Columns{LockKey: "k", LockValue: "v", ExpireTime: "x"}}),
	} {
		if err := d.CreateSchema(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	location := "sqlite://" + strings.ReplaceAll(file, " ", "%20")
	for params, query := range map[string]string{
		"layout=shedlock&table=jobs&tokens=numbers&clock=Europe/Berlin": "SELECT COUNT(*) FROM jobs WHERE name = 'app:job' AND locked_by LIKE '%#%'",
		"layout=plain&table=locks&key=k&value=v&expires=x&utc=true":     "SELECT COUNT(*) FROM locks WHERE k = 'app:job'",
	} {
		d, err := Open(t.Context(), location+"?"+params, "app:")
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		locks := pawl.New(d)
		l, err := locks.Mutex("job").TryLock(t.Context())
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: %d rows are as they should be, %v", params, n, err)
		}
		if i, err := locks.Inspect(t.Context(), "job"); err != nil || len(i.Holders) != 1 {
			t.Errorf("%s: %+v, %v", params, i, err)
		}
		l.Unlock()
		if err := errors.Join(locks.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	for params, want := range map[string]string{
		"layout=shedlok":                   "layout=shedlock or layout=plain",
		"layout=":                          "layout=shedlock or layout=plain",
		"layout=shedlock&clock=Berlin":     "clock is",
		"layout=shedlock&tabel=jobs":       "these parameters are known",
		"layout=shedlock&key=k":            "these parameters are known",
		"layout=plain&table=locks&utc=yes": "utc is true",
		"layout=plain&table=none":          "a table is missing",
		"layout=plain&table=jobs":          "column lock_key is missing",
	} {
		d, err := Open(t.Context(), location+"?"+params, "")
		if err == nil || !strings.Contains(err.Error(), want) || d != driver.Driver(nil) {
			t.Errorf("%s: %v, %v, want %q", params, d, err, want)
		}
	}
	// Another database's own parameters go on to it, and pawl's do not.
	_, err = Open(t.Context(), "mysql://me:s3cret@127.0.0.1:1/x?layout=plain&table=locks&nonsense=%zz", "")
	if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "layout") {
		t.Errorf("mysql: %v", err)
	}
}
