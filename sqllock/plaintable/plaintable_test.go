package plaintable_test

import (
	"context"
	"testing"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
	"github.com/pawl-lock/pawl/sqllock/plaintable"
)

// mark is how a database writes the first argument.
func mark(db rowtest.Database) string {
	if db.Dialect == sqllock.PostgreSQL {
		return "$1"
	}
	return "?"
}

func create(t testing.TB, db rowtest.Database, opts *plaintable.Options) {
	t.Helper()
	if err := plaintable.New(db.DB, db.Dialect, opts).CreateSchema(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	opts := &plaintable.Options{Tokens: "distributed_lock_tokens"}
	rowtest.Each(t, func(t *testing.T, db rowtest.Database) {
		create(t, db, opts)
		rowtest.Conform(t, db,
			func() driver.Driver { return plaintable.New(db.DB, db.Dialect, opts) },
			func(name string) { db.Exec(t, "DELETE FROM distributed_lock WHERE lock_key = "+mark(db), name) })
	})
}
