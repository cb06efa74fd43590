package shedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

// mark is how a database writes the first argument.
func mark(db rowtest.Database) string {
	if db.Dialect == sqllock.PostgreSQL {
		return "$1"
	}
	return "?"
}

func create(t testing.TB, db rowtest.Database, opts *shedlock.Options) {
	t.Helper()
	if err := shedlock.New(db.DB, db.Dialect, opts).CreateSchema(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func conform(t *testing.T, db rowtest.Database, opts *shedlock.Options) {
	create(t, db, opts)
	rowtest.Conform(t, db,
		func() driver.Driver { return shedlock.New(db.DB, db.Dialect, opts) },
		func(name string) { db.Exec(t, "DELETE FROM shedlock WHERE name = "+mark(db), name) })
}

func TestConformance(t *testing.T) {
	rowtest.Each(t, func(t *testing.T, db rowtest.Database) {
		conform(t, db, &shedlock.Options{Tokens: "shedlock_tokens"})
	})
}

func TestConformanceByTheClientsClock(t *testing.T) {
	t.Parallel()
	conform(t, rowtest.Start(t, "PostgreSQL"), &shedlock.Options{ClientClock: time.FixedZone("", -8*3600)})
}
