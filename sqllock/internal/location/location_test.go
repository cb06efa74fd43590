package location

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/driver"
)

func TestOpen(t *testing.T) {
	here, err := filepath.Abs("locks.db")
	if err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]struct {
		kind  Kind
		where string
	}{
		"postgres://me:s3cret@h:1/x?sslmode=disable":  {PostgreSQL, "h:1/x"},
		"postgresql://me:s3cret@h/x":                  {PostgreSQL, "h:5432/x"},
		"mysql://me:s3cret@h/x?tls=false":             {MySQL, "h:3306/x"},
		"MariaDB://me:s3cret@[::1]:2/x":               {MySQL, "[::1]:2/x"},
		"mysql://me:s3cret@/x?socket=/run/m&tls=true": {MySQL, "/run/m/x"},
		"sqlite:///a%20b%3F.db":                       {SQLite, "/a b?.db"},
		"sqlite:locks.db":                             {SQLite, here},
	} {
		db, kind, where, err := Open(location, "mode=rw")
		if err != nil || kind != want.kind || where != want.where {
			t.Errorf("%s: %v, %q, %v", location, kind, where, err)
			continue
		}
		db.Close()
	}
	for _, location := range []string{
		"", "h:s3cret", "redis://me:s3cret@h", "postgres://me:s3cret@h:port/x", "postgres://me:s3cret%zz@h/x", "mysql://me:s3cret@h", "mysql://me:s3cret@h/a/b",
		"mysql://me:s3cret@h/x?timeout=s3cret%zz", "mysql://me:s3cret@[/x", "sqlite://host/x.db", "sqlite:", "sqlite::memory:", "sqlite:///x.db?mode=ro", "sqlite:///%zz", "sqlite:///%00",
	} {
		_, _, _, err := Open(location, "mode=rw")
		if err == nil || !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", location, err)
		}
	}
}
