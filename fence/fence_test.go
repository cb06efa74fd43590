package fence

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
)

type lease struct {
	name, hold string
	token      int64
	err        error
}

func (l lease) Name() string { return l.name }
func (l lease) Token() int64 { return l.token }
func (l lease) Err() error   { return l.err }
func (l lease) ID() string   { return l.hold }

// nameless has no ID: it is told apart by its name.
type nameless struct{ l lease }

func (n nameless) Name() string { return n.l.name }
func (n nameless) Token() int64 { return n.l.token }
func (n nameless) Err() error   { return n.l.err }

var errOver = errors.New("over")

func TestGateOrdersHolds(t *testing.T) {
	var g Gate
	for i, c := range []struct {
		l          Lease
		seen       int64 // of the StaleError; 0: passes
		is, is2    error
		wantInText string
	}{
		{l: lease{"k", "a:1", 5, nil}},
		{l: lease{"k", "a:1", 5, nil}},
		{l: lease{"k", "b:1", 5, nil}, seen: 5, is: ErrStale, wantInText: "another hold"},
		{l: lease{"k", "b:1", 4, nil}, seen: 5, is: ErrStale, wantInText: "5 has been here"},
		{l: lease{"k", "b:2", 6, nil}},
		{l: lease{"k", "a:1", 5, nil}, seen: 6, is: ErrStale},
		{l: lease{"k", "c:1", 9, errOver}, is: ErrStale, is2: errOver, wantInText: "ended"},
		{l: lease{"k", "c:2", 0, nil}, is: ErrNoToken},
		{l: lease{"k", "c:3", -1, nil}, is: ErrNoToken},
		{l: nil, is: ErrStale, wantInText: "no lease"},
		{l: lease{"k", "b:2", 6, nil}}, // what was refused left the mark alone
		{l: nameless{lease{"k", "", 7, nil}}},
		{l: nameless{lease{"k", "", 7, nil}}},
		{l: nameless{lease{"other", "", 7, nil}}, seen: 7, is: ErrStale},
		{l: nameless{lease{strings.Repeat("x", 4096), "", 8, nil}}},
		{l: nameless{lease{strings.Repeat("x", 4096), "", 8, nil}}},
		{l: nameless{lease{strings.Repeat("x", 4095) + "\x00", "", 8, nil}}, seen: 8, is: ErrStale},
	} {
		err := g.Claim("stock", c.l)
		if c.is == nil {
			if err != nil {
				t.Errorf("claim %d: got %v, want nil", i, err)
			}
			continue
		}
		if !errors.Is(err, c.is) || c.is2 != nil && !errors.Is(err, c.is2) || !strings.Contains(err.Error(), c.wantInText) {
			t.Errorf("claim %d: got %v, want %v %v with %q", i, err, c.is, c.is2, c.wantInText)
		}
		if s, ok := errors.AsType[*StaleError](err); ok != (c.seen != 0) || ok && (s.Seen != c.seen || s.Token != c.l.Token() || s.Resource != "stock") {
			t.Errorf("claim %d: got %#v, want seen %d", i, s, c.seen)
		}
	}
	if err := g.Claim("another resource", lease{"k", "z:1", 1, nil}); err != nil {
		t.Errorf("another resource has a mark of its own: got %v", err)
	}
}

func TestGateConcurrently(t *testing.T) {
	var g Gate
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for n := range int64(1000) {
				g.Claim("r", lease{"k", "h", n*8 + i + 1, nil})
			}
		})
	}
	wg.Wait()
	if err := g.Claim("r", lease{"k", "h", 8000, nil}); err != nil {
		t.Errorf("the largest token: got %v, want nil", err)
	}
	if err := g.Claim("r", lease{"k", "h", 7999, nil}); !errors.Is(err, ErrStale) {
		t.Errorf("a smaller token: got %v, want ErrStale", err)
	}
}

func TestTableRefusesWhatCannotWork(t *testing.T) {
	ctx, l := context.Background(), lease{"k", "a:1", 1, nil}
	for _, c := range []struct {
		t        Table
		tx       *sql.Tx
		resource string
		l        Lease
		want     string
	}{
		{Table{}, &sql.Tx{}, "r", l, "Dialect is missing"},
		{Table{Dialect: 9}, &sql.Tx{}, "r", l, "Dialect is missing"},
		{Table{Dialect: SQLite, Name: `x"; DROP TABLE stock; --`}, &sql.Tx{}, "r", l, "table name"},
		{Table{Dialect: SQLite, Name: "a.b.c"}, &sql.Tx{}, "r", l, "table name"},
		{Table{Dialect: SQLite, Name: "1a"}, &sql.Tx{}, "r", l, "table name"},
		{Table{Dialect: SQLite, Name: strings.Repeat("a", 64)}, &sql.Tx{}, "r", l, "table name"},
		{Table{Dialect: SQLite}, &sql.Tx{}, "", l, "resource name"},
		{Table{Dialect: SQLite}, &sql.Tx{}, strings.Repeat("a", 1025), l, "resource name"},
		{Table{Dialect: SQLite}, &sql.Tx{}, "a\x00b", l, "resource name"},
		{Table{Dialect: SQLite}, &sql.Tx{}, "a\xff", l, "resource name"},
		{Table{Dialect: SQLite}, nil, "r", l, "no transaction"},
		{Table{Dialect: SQLite}, &sql.Tx{}, "r", nil, "no lease"},
		{Table{Dialect: SQLite}, &sql.Tx{}, "r", lease{"k", "a:1", 0, nil}, "without a fencing token"},
	} {
		err := c.t.Claim(ctx, c.tx, c.resource, c.l)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v %.20q: got %v, want %q", c.t, c.resource, err, c.want)
		}
	}
}

func TestCreateTable(t *testing.T) {
	for _, c := range []struct {
		t    Table
		want string
	}{
		{Table{Dialect: SQLite}, `CREATE TABLE IF NOT EXISTS "pawl_fence" (resource TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL, hold TEXT NOT NULL) WITHOUT ROWID`},
		{Table{Dialect: PostgreSQL, Name: "shop.marks"}, `CREATE TABLE IF NOT EXISTS "shop"."marks" (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL, hold TEXT NOT NULL)`},
		{Table{Dialect: MySQL, Name: "m_1"}, "CREATE TABLE IF NOT EXISTS `m_1` (resource VARBINARY(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, hold VARBINARY(255) NOT NULL) ENGINE=InnoDB"},
	} {
		if got, err := c.t.CreateTable(); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v, want %q", c.t, got, err, c.want)
		}
	}
	if _, err := (Table{Dialect: SQLite, Name: "a b"}).CreateTable(); err == nil {
		t.Error("a bad name: got nil, want an error")
	}
}
