package record_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/record"
)

// What a Table and OnceInTx do with a database is tested in sqllock/oncetest, since this module has no drivers.

func TestCreateTable(t *testing.T) {
	for _, c := range []struct {
		t    record.Table
		want string
	}{
		{record.Table{Dialect: fence.SQLite}, `CREATE TABLE IF NOT EXISTS "pawl_once" (name BLOB NOT NULL PRIMARY KEY, ends INTEGER NOT NULL, ` +
			`run TEXT NOT NULL, hold TEXT NOT NULL, token INTEGER NOT NULL, result BLOB NOT NULL, UNIQUE (ends, run))`},
		{record.Table{Dialect: fence.PostgreSQL, Name: "shop.done"}, `CREATE TABLE IF NOT EXISTS "shop"."done" (name BYTEA NOT NULL PRIMARY KEY, ends BIGINT NOT NULL, ` +
			`run TEXT NOT NULL, hold TEXT NOT NULL, token BIGINT NOT NULL, result BYTEA NOT NULL, UNIQUE (ends, run))`},
		{record.Table{Dialect: fence.MySQL, Name: "d_1"}, "CREATE TABLE IF NOT EXISTS `d_1` (name VARBINARY(1024) NOT NULL PRIMARY KEY, ends BIGINT NOT NULL, " +
			"run VARBINARY(255) NOT NULL, hold VARBINARY(255) NOT NULL, token BIGINT NOT NULL, result LONGBLOB NOT NULL, UNIQUE (ends, run)) ENGINE=InnoDB"},
	} {
		if got, err := c.t.CreateTable(); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v, want %q", c.t, got, err, c.want)
		}
	}
}

func TestTableRefusesWhatCannotWork(t *testing.T) {
	for _, c := range []struct {
		t    record.Table
		want string
	}{
		{record.Table{}, "Dialect is missing"},
		{record.Table{Dialect: 9}, "Dialect is missing"},
		{record.Table{Dialect: fence.SQLite, Name: `x"; DROP TABLE orders; --`}, "table name"},
		{record.Table{Dialect: fence.SQLite, Name: "a.b.c"}, "table name"},
		{record.Table{Dialect: fence.SQLite, Name: strings.Repeat("a", 64)}, "table name"},
	} {
		_, create := c.t.CreateTable()
		_, sweep := c.t.Sweep(t.Context(), nil)
		_, once := record.OnceInTx(t.Context(), nil, nil, c.t, "k", time.Hour, func(context.Context, *sql.Tx) (int, error) { return 0, nil })
		for _, err := range []error{create, sweep, once} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: got %v, want %q", c.t, err, c.want)
			}
		}
	}
}
