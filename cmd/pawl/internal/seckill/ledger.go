package seckill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/pawl-lock/pawl/fence"
)

// ledger is the shop's database, of one strategy: one item's stock, in one part or in several, the orders, the refused writes. Reads see what is
// committed; a write is one transaction, which SQLite runs one after the other across all servers.
type ledger struct {
	read, write *sql.DB
}

// item is the one thing on sale. Its stock is in this part, unless the strategy splits it.
const (
	item  = 1
	whole = 0
)

// resource is what the fencing token of the item is claimed for.
const resource = "stock:1"

var marks = fence.Table{Dialect: fence.SQLite}

func dsn(path string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(NORMAL)"},
		"_txlock": {"immediate"},
	}.Encode()}
	return u.String()
}

func openLedger(path string) (*ledger, error) {
	var l ledger
	var err error
	if l.read, err = sql.Open("sqlite", dsn(path)); err != nil {
		return nil, err
	}
	if l.write, err = sql.Open("sqlite", dsn(path)); err != nil {
		l.read.Close()
		return nil, err
	}
	l.read.SetMaxOpenConns(4)
	l.read.SetMaxIdleConns(4)
	l.write.SetMaxOpenConns(1)
	return &l, nil
}

func (l *ledger) close() error { return errors.Join(l.read.Close(), l.write.Close()) }

// create makes the tables and puts n items on the shelf, spread evenly over the parts. The orders have no unique index on the buyer: whether somebody
// buys twice is up to the strategy.
func (l *ledger) create(ctx context.Context, n, parts int) error {
	guard, err := marks.CreateTable()
	if err != nil {
		return err
	}
	for _, q := range []string{
		"CREATE TABLE stock (item INTEGER, part INTEGER, n INTEGER NOT NULL, PRIMARY KEY (item, part))",
		"CREATE TABLE orders (id INTEGER PRIMARY KEY, buyer INTEGER NOT NULL, server INTEGER NOT NULL)",
		"CREATE INDEX orders_buyer ON orders (buyer)",
		"CREATE TABLE refused (id INTEGER PRIMARY KEY, buyer INTEGER NOT NULL, token INTEGER NOT NULL, seen INTEGER NOT NULL)",
		guard,
	} {
		if _, err := l.write.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("make the shop's database: %w", err)
		}
	}
	for part := range parts {
		if _, err := l.write.ExecContext(ctx, "INSERT INTO stock (item, part, n) VALUES (?, ?, ?)", item, part, (n+parts-1-part)/parts); err != nil {
			return err
		}
	}
	return nil
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// look reads how many are left of a part, and whether the buyer has an order.
func look(ctx context.Context, q querier, part int, buyer uint32) (left int, has bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT n, EXISTS (SELECT 1 FROM orders WHERE buyer = ?) FROM stock WHERE item = ? AND part = ?", buyer, item, part).Scan(&left, &has)
	return left, has, err
}

// inTx runs f in a write transaction, which is rolled back when f answers an error.
func (l *ledger) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := l.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// order writes the stock that the caller computed from what it read, and the order.
func order(ctx context.Context, tx *sql.Tx, part, left int, buyer uint32, server int) error {
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = ? WHERE item = ? AND part = ?", left, item, part); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer, server) VALUES (?, ?)", buyer, server)
	return err
}

// count is what the database says at the end.
type count struct {
	orders, buyers, refused int
}

func (l *ledger) count(ctx context.Context) (c count, err error) {
	err = l.read.QueryRowContext(ctx, "SELECT count(*), count(DISTINCT buyer), (SELECT count(*) FROM refused) FROM orders").
		Scan(&c.orders, &c.buyers, &c.refused)
	return c, err
}
