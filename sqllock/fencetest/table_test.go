package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-lock/pawl/fence"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	d := openSQLite(t, immediate())
	t.Run("suite", func(t *testing.T) { d.suite(t, sql.LevelDefault) })
	d.rules(t)
	t.Run("deferred transaction", func(t *testing.T) {
		overtaken(t, openSQLite(t, map[string][]string{"_pragma": {"journal_mode(WAL)"}}), sql.LevelDefault)
	})
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	d := openMariaDB(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run("suite at "+level.String(), func(t *testing.T) { d.suite(t, level) })
	}
	d.rules(t)
	t.Run("overtaken", func(t *testing.T) { overtaken(t, d, sql.LevelDefault) })
	t.Run("rights", func(t *testing.T) {
		d.exec(t, "CREATE USER shop@'%' IDENTIFIED BY 'x'")
		d.rights(t, "pawl.marks", "shop@'%'", "shop:x@tcp("+d.server.Addr+")/pawl")
	})
	t.Run("frozen", d.frozen)
	t.Run("crash", d.crash)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	d := openPostgres(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run("suite at "+level.String(), func(t *testing.T) { d.suite(t, level) })
	}
	d.rules(t)
	t.Run("overtaken", func(t *testing.T) { overtaken(t, d, sql.LevelRepeatableRead) })
	t.Run("rights", func(t *testing.T) {
		d.exec(t, "CREATE ROLE shop LOGIN PASSWORD 'x'")
		d.rights(t, "public.marks", "shop", "postgres://shop:x@"+d.server.Addr+"/postgres?sslmode=disable")
	})
	t.Run("frozen", d.frozen)
	t.Run("crash", d.crash)
}

// rules are true of every database.
func (d *database) rules(t *testing.T) {
	t.Run("rollback", d.rollback)
	t.Run("row", d.row)
	t.Run("renewals", d.renewals)
	t.Run("snapshot", d.snapshot)
	t.Run("errors", d.errors)
}

// sell claims and sets the stock in tx, and leaves tx open.
func (d *database) sell(t *testing.T, tx *sql.Tx, item string, l fence.Lease, n int) {
	t.Helper()
	if err := d.Claim(t.Context(), tx, item, l); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), d.q("UPDATE stock SET n = ? WHERE item = ?"), n, item); err != nil {
		t.Fatal(err)
	}
}

// rollback: claim and work are committed together or not at all, and a refused claim leaves a transaction that ends well.
func (d *database) rollback(t *testing.T) {
	d.exec(t, "INSERT INTO stock VALUES ('rollback', 100)")
	tx := d.begin(t, sql.LevelDefault)
	d.sell(t, tx, "rollback", hold("a", 5), 1)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	tx = d.begin(t, sql.LevelDefault)
	d.sell(t, tx, "rollback", hold("b", 3), 99) // nothing is left of 5
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	tx = d.begin(t, sql.LevelDefault)
	if _, err := tx.ExecContext(t.Context(), "UPDATE stock SET n = n + 1000"); err != nil {
		t.Fatal(err)
	}
	if err := d.Claim(t.Context(), tx, "rollback", hold("a", 2)); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("an older one: got %v, want ErrStale", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := d.stock(t, "rollback"); n != 99 {
		t.Errorf("stock: got %d, want 99", n)
	}
}

// row: who has claimed keeps others from claiming the resource until the transaction ends, and (except on SQLite, where a
// writer has the whole file) nobody from working on another resource.
func (d *database) row(t *testing.T) {
	d.exec(t, "INSERT INTO stock VALUES ('row', 100)")
	slow := d.begin(t, sql.LevelDefault)
	d.sell(t, slow, "row", hold("a", 5), 99)

	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	began := time.Now()
	err := d.claimed(short, sql.LevelDefault, "row", hold("b", 6), false, func(*sql.Tx) error { return nil })
	if err == nil || errors.Is(err, fence.ErrStale) || time.Since(began) > 10*time.Second {
		t.Errorf("a claim behind another, given up: got %v after %v", err, time.Since(began))
	}
	wait := blocked(t, func() error {
		return d.claimed(t.Context(), sql.LevelDefault, "row", hold("b", 6), false, func(tx *sql.Tx) error {
			n, err := d.left(t.Context(), tx, "row")
			if err == nil && n != 99 {
				err = errors.New("it does not see what the one before wrote")
			}
			return err
		})
	})
	if d.Dialect != fence.SQLite {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if err := d.claimed(ctx, sql.LevelDefault, "row 2", hold("c", 1), false, func(*sql.Tx) error { return nil }); err != nil {
			t.Errorf("another resource: %v", err)
		}
	}
	if err := slow.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// snapshot: a claim that comes first and waits shows afterwards what the one before has written, at the default level.
func (d *database) snapshot(t *testing.T) {
	d.exec(t, "INSERT INTO stock VALUES ('snap', 100)")
	for token := range int64(3) { // also for the first claim ever, which inserts
		first := d.begin(t, sql.LevelDefault)
		d.sell(t, first, "snap", hold("a", 2*token+1), int(token))
		var seen int
		wait := blocked(t, func() error {
			tx, err := d.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := d.Claim(t.Context(), tx, "snap", hold("b", 2*token+2)); err != nil {
				return err
			}
			seen, err = d.left(t.Context(), tx, "snap")
			return errors.Join(err, tx.Commit())
		})
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := wait(); err != nil || seen != int(token) {
			t.Errorf("behind token %d: read %d, %v, want %d", 2*token+1, seen, err, token)
		}
	}
}

// overtaken: a transaction that has read before it claimed, and was overtaken, is refused: it would go on with the past.
func overtaken(t *testing.T, d *database, level sql.IsolationLevel) {
	refused := func(err error) bool {
		if d.Dialect == fence.PostgreSQL {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && e.Code == "40001"
		}
		return errors.Is(err, fence.ErrReadFirst)
	}
	for _, by := range []struct {
		what string
		l    fence.Lease // the other's
		own  fence.Lease
	}{{"a first claim", hold("a", 5), hold("c", 6)}, {"a newer hold", hold("b", 7), hold("c", 8)}, {"its own hold", hold("c", 9), hold("c", 9)}} {
		d.exec(t, "DELETE FROM stock WHERE item = 'over'")
		d.exec(t, "INSERT INTO stock VALUES ('over', 100)")
		tx := d.begin(t, level)
		if n, err := d.left(t.Context(), tx, "over"); err != nil || n != 100 {
			t.Fatal(n, err)
		}
		other := d.begin(t, sql.LevelDefault)
		d.sell(t, other, "over", by.l, 0)
		if err := other.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := d.Claim(t.Context(), tx, "over", by.own); !refused(err) {
			n, _ := d.left(t.Context(), tx, "over")
			t.Errorf("overtaken by %s: got %v, and then reads %d", by.what, err, n)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		tx = d.begin(t, level)
		if _, err := d.left(t.Context(), tx, "other item"); err != nil {
			t.Fatal(err)
		}
		if err := d.Claim(t.Context(), tx, "over", by.own); err != nil {
			t.Errorf("read early and not overtaken: got %v, want nil", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if d.Dialect == fence.SQLite {
		return // it knows no other level
	}
	tx := d.begin(t, sql.LevelReadCommitted)
	d.left(t.Context(), tx, "over")
	other := d.begin(t, sql.LevelDefault)
	d.sell(t, other, "over", hold("d", 10), 55)
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := d.Claim(t.Context(), tx, "over", hold("e", 11)); err != nil {
		t.Fatalf("under READ COMMITTED: got %v, want nil", err)
	}
	if n, err := d.left(t.Context(), tx, "over"); err != nil || n != 55 {
		t.Errorf("under READ COMMITTED: read %d, %v, want 55", n, err)
	}
}

// crash: what was not committed when the server died is gone, claim and work; what was is there.
func (d *database) crash(t *testing.T) {
	d.exec(t, "INSERT INTO stock VALUES ('crash', 100)")
	tx := d.begin(t, sql.LevelDefault)
	d.sell(t, tx, "crash", hold("a", 5), 50)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	tx = d.begin(t, sql.LevelDefault)
	d.sell(t, tx, "crash", hold("b", 9), 10)
	d.server.Kill()
	d.server.Restart()
	if err := tx.Commit(); err == nil {
		t.Error("the transaction was committed over the server's death")
	}
	tx.Rollback()
	if n := d.stock(t, "crash"); n != 50 {
		t.Errorf("stock: got %d, want 50", n)
	}
	for _, c := range []struct {
		l    fence.Lease
		want error
	}{{hold("x", 4), fence.ErrStale}, {hold("x", 5), fence.ErrStale}, {hold("a", 5), nil}, {hold("c", 6), nil}} {
		if err := d.claimed(t.Context(), sql.LevelDefault, "crash", c.l, false, func(*sql.Tx) error { return nil }); !errors.Is(err, c.want) {
			t.Errorf("token %d: got %v, want %v", c.l.Token(), err, c.want)
		}
	}
}

// errors: what is wrong with the database is said, and is not taken for a stale token.
func (d *database) errors(t *testing.T) {
	claim := func(tb fence.Table, opts *sql.TxOptions, before func(*sql.Tx)) error {
		tx, err := d.BeginTx(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if before != nil {
			before(tx)
		}
		return tb.Claim(t.Context(), tx, "errors", hold("a", 1))
	}
	for what, err := range map[string]error{
		"a missing table":        claim(fence.Table{Dialect: d.Dialect, Name: "missing"}, nil, nil),
		"a table of another use": claim(fence.Table{Dialect: d.Dialect, Name: "stock"}, nil, nil),
		"a finished transaction": claim(d.Table, nil, func(tx *sql.Tx) { tx.Rollback() }),
	} {
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), `"errors"`) {
			t.Errorf("%s: got %v", what, err)
		}
		if what == "a finished transaction" && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s: got %v, want one that matches sql.ErrTxDone", what, err)
		}
		t.Log(err)
	}
	if d.Dialect != fence.SQLite {
		if err := claim(d.Table, &sql.TxOptions{ReadOnly: true}, nil); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a read-only transaction: got %v", err)
		}
	}
}

// rights: SELECT, INSERT and UPDATE on a table with a name of its own are enough, and less is told.
func (d *database) rights(t *testing.T, table, user, dsn string) {
	tb := fence.Table{Dialect: d.Dialect, Name: table}
	create, err := tb.CreateTable()
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, create)
	d.exec(t, "GRANT SELECT, INSERT ON "+table+" TO "+user)
	db, err := sql.Open(d.server.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	shop := &database{DB: db, Table: tb}
	claim := func(token int64) error {
		return shop.claimed(t.Context(), sql.LevelDefault, "r", hold("a", token), false, func(*sql.Tx) error { return nil })
	}
	if err := claim(5); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(strings.ToLower(err.Error()), "denied") {
		t.Errorf("without UPDATE: got %v", err)
	}
	d.exec(t, "GRANT UPDATE ON "+table+" TO "+user)
	if err := claim(5); err != nil {
		t.Errorf("token 5: got %v, want nil", err)
	}
	if err := claim(4); !errors.Is(err, fence.ErrStale) {
		t.Errorf("token 4: got %v, want ErrStale", err)
	}
}

// frozen: a claim on a server that answers nothing ends with its context.
func (d *database) frozen(t *testing.T) {
	if err := d.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := d.begin(t, sql.LevelDefault)
	d.server.Stop()
	defer d.server.Cont()
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	began := time.Now()
	if err := d.Claim(short, tx, "frozen", hold("a", 1)); err == nil || errors.Is(err, fence.ErrStale) || time.Since(began) > 10*time.Second {
		t.Errorf("got %v after %v", err, time.Since(began))
	}
}
