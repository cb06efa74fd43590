package fence_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
)

// What Table does with a database is tested in sqllock/fencetest, since this module has no drivers.

func TestTableRefusesWhatCannotWork(t *testing.T) {
	l := guardtest.Shown{Lock: "k", Hold: "a:1", Number: 1}
	none := guardtest.Shown{Lock: "k", Hold: "a:1"}
	for _, c := range []struct {
		t        fence.Table
		tx       *sql.Tx
		resource string
		l        fence.Lease
		want     string
	}{
		{fence.Table{}, &sql.Tx{}, "r", l, "Dialect is missing"},
		{fence.Table{Dialect: 9}, &sql.Tx{}, "r", l, "Dialect is missing"},
		{fence.Table{Dialect: fence.SQLite, Name: `x"; DROP TABLE stock; --`}, &sql.Tx{}, "r", l, "table name"},
		{fence.Table{Dialect: fence.SQLite, Name: "a.b.c"}, &sql.Tx{}, "r", l, "table name"},
		{fence.Table{Dialect: fence.SQLite, Name: "1a"}, &sql.Tx{}, "r", l, "table name"},
		{fence.Table{Dialect: fence.SQLite, Name: strings.Repeat("a", 64)}, &sql.Tx{}, "r", l, "table name"},
		{fence.Table{Dialect: fence.SQLite}, &sql.Tx{}, "", l, "resource name"},
		{fence.Table{Dialect: fence.SQLite}, &sql.Tx{}, strings.Repeat("a", 1025), l, "resource name"},
		{fence.Table{Dialect: fence.SQLite}, &sql.Tx{}, "a\x00b", l, "resource name"},
		{fence.Table{Dialect: fence.SQLite}, &sql.Tx{}, "a\xff", l, "resource name"},
		{fence.Table{Dialect: fence.SQLite}, nil, "r", l, "no transaction"},
		{fence.Table{Dialect: fence.SQLite}, &sql.Tx{}, "r", nil, "no lease"},
		{fence.Table{Dialect: fence.SQLite}, &sql.Tx{}, "r", none, "without a fencing token"},
	} {
		for _, claim := range []func(context.Context, *sql.Tx, string, fence.Lease) error{c.t.Claim, c.t.ClaimShared} {
			if err := claim(t.Context(), c.tx, c.resource, c.l); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v %.20q: got %v, want %q", c.t, c.resource, err, c.want)
			}
		}
	}
}

func TestCreateTable(t *testing.T) {
	for _, c := range []struct {
		t    fence.Table
		want string
	}{
		{fence.Table{Dialect: fence.SQLite}, `CREATE TABLE IF NOT EXISTS "pawl_fence" (resource TEXT NOT NULL PRIMARY KEY, ` +
			`token INTEGER NOT NULL, hold TEXT NOT NULL, shared INTEGER NOT NULL) WITHOUT ROWID`},
		{fence.Table{Dialect: fence.PostgreSQL, Name: "shop.marks"}, `CREATE TABLE IF NOT EXISTS "shop"."marks" (resource TEXT NOT NULL PRIMARY KEY, ` +
			`token BIGINT NOT NULL, hold TEXT NOT NULL, shared BIGINT NOT NULL)`},
		{fence.Table{Dialect: fence.MySQL, Name: "m_1"}, "CREATE TABLE IF NOT EXISTS `m_1` (resource VARBINARY(1024) NOT NULL PRIMARY KEY, " +
			"token BIGINT NOT NULL, hold VARBINARY(255) NOT NULL, shared BIGINT NOT NULL, claims BIGINT NOT NULL) ENGINE=InnoDB"},
	} {
		if got, err := c.t.CreateTable(); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v, want %q", c.t, got, err, c.want)
		}
	}
	if _, err := (fence.Table{Dialect: fence.SQLite, Name: "a b"}).CreateTable(); err == nil {
		t.Error("a bad name: got nil, want an error")
	}
}
