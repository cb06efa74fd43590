package patterns

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/pawl-lock/pawl/fence"
)

var marks = fence.Table{Dialect: fence.SQLite}

// shop is a database with one row of stock. Its transactions can be told to take their time to commit.
type shop struct {
	db      *sql.DB
	commits func() // runs before each commit
}

type transaction struct {
	*sql.Tx
	shop *shop
}

func openShop(t testing.TB, txlock string) *shop {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(20000)&_txlock="+txlock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	create, err := marks.CreateTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{create, "CREATE TABLE stock (n INT)", "INSERT INTO stock VALUES (5)"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	return &shop{db: db}
}

func (s *shop) Begin(ctx context.Context) (*transaction, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	return &transaction{tx, s}, err
}

func (s *shop) left(t testing.TB) (n int) {
	t.Helper()
	if err := s.db.QueryRow("SELECT n FROM stock").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (tx *transaction) Stock(ctx context.Context) (n int, err error) {
	err = tx.QueryRowContext(ctx, "SELECT n FROM stock").Scan(&n)
	return n, err
}

func (tx *transaction) SetStock(ctx context.Context, n int) error {
	_, err := tx.ExecContext(ctx, "UPDATE stock SET n = ?", n)
	return err
}

func (tx *transaction) Commit() error {
	if f := tx.shop.commits; f != nil {
		f()
	}
	return tx.Tx.Commit()
}
