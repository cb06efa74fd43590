package torture_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/memlock"
	_ "modernc.org/sqlite"
)

// The programs of package pawl's programs_test.go that need a database.

var guard = fence.Table{Dialect: fence.SQLite}

func db(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	marks, err := guard.CreateTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{marks, "CREATE TABLE stock (id TEXT PRIMARY KEY, n INT)", "INSERT INTO stock VALUES ('1001', 5)"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func stock(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT n FROM stock").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// 20. Claiming with a fencing token before the first read. Claim takes the *sql.Tx that does the work, since a claim in a
// transaction of its own guards nothing, and the lease, so that nobody passes the token of another lock. No lease in ctx
// is refused like a stale one.
func Test20FenceSQL(t *testing.T) {
	db, store, ctx := db(t), memlock.New(), t.Context()
	locks := pawl.New(store)
	defer locks.Close()
	sell := func(ctx context.Context, lease *pawl.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := guard.Claim(ctx, tx, "stock:1001", lease); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE id = '1001'"); err != nil {
			return err
		}
		return tx.Commit()
	}
	slow, err := locks.Mutex("stock:1001").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	asleep := paused{slow.Name(), slow.Token()} // past its TTL, and about to write without having looked at its lease
	store.Expire("stock:1001")
	err = locks.Mutex("stock:1001").Do(ctx, func(ctx context.Context) error {
		return sell(ctx, pawl.FromContext(ctx, "stock:1001"))
	})
	want(t, "new holder", err, error(nil))

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, guard.Claim(ctx, tx, "stock:1001", asleep), fence.ErrStale) // the table refuses it
	tx.Rollback()
	wantIs(t, sell(ctx, slow), fence.ErrStale, pawl.ErrLost)                  // so does the lease itself, once asked
	wantIs(t, sell(ctx, pawl.FromContext(ctx, "stock:1001")), fence.ErrStale) // no lease in ctx
	slow.Unlock()
	want(t, "stock", stock(t, db), 4)
}

// paused is the lease of a process that has not noticed yet that it was stopped for too long.
type paused struct {
	name  string
	token int64
}

func (p paused) Name() string { return p.name }
func (p paused) Token() int64 { return p.token }
func (p paused) Err() error   { return nil }

// 24. With a database transaction. Inside Do the order cannot be wrong: Commit runs before Unlock, and BeginTx with fn's
// ctx rolls back by itself when the lease is lost. With Lock, `defer tx.Rollback()` above `defer lease.Unlock()` is wrong.
func Test24Transaction(t *testing.T) {
	db, store := db(t), memlock.New()
	locks := pawl.New(store)
	defer locks.Close()
	sell := func(lose bool) error {
		return locks.Mutex("stock:1001").Do(t.Context(), func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1"); err != nil {
				return err
			}
			if lose {
				store.Expire("stock:1001")
				<-ctx.Done()
			}
			return tx.Commit()
		})
	}
	wantIs(t, sell(true), pawl.ErrLost)
	want(t, "stock after the lost lease", stock(t, db), 5)
	want(t, "sale", sell(false), error(nil))
	want(t, "stock after the sale", stock(t, db), 4)
}
