package seckill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/fence"
)

// place is where a shop has its database.
type place struct {
	Server string // URL of a database server; empty: the file
	File   string
	Tables string // what the names of the tables begin with
	Conns  int    // how many connections to the server may be open
}

// ledger is the shop's database: one item's stock, in one part or in several, the orders, the refused writes. Reads see
// what is committed; a write is one transaction.
type ledger struct {
	read, write *sql.DB // on a server they are one pool; SQLite runs one write after the other across all servers of the shop
	dialect     fence.Dialect
	tables      string
	marks       fence.Table
	text        map[string]string // statements that were put in the dialect's words
}

// item is the one thing on sale. Its stock is in this part, unless the strategy splits it.
const (
	item  = 1
	whole = 0
)

// resource is what the fencing token of the item is claimed for.
const resource = "stock:1"

func dsn(path string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(NORMAL)"},
		"_txlock": {"immediate"},
	}.Encode()}
	return u.String()
}

func openLedger(p place) (*ledger, error) {
	l := &ledger{dialect: fence.SQLite, tables: p.Tables}
	var err error
	if p.Server != "" {
		if l.dialect = fence.MySQL; backend.Kind(p.Server) == "postgres" {
			l.dialect = fence.PostgreSQL
		}
		if l.write, err = backend.Database(p.Server); err != nil {
			return nil, err
		}
		l.read = l.write
		l.write.SetMaxOpenConns(p.Conns)
		l.write.SetMaxIdleConns(p.Conns)
	} else {
		if l.read, err = sql.Open("sqlite", dsn(p.File)); err != nil {
			return nil, err
		}
		if l.write, err = sql.Open("sqlite", dsn(p.File)); err != nil {
			l.read.Close()
			return nil, err
		}
		l.read.SetMaxOpenConns(4)
		l.read.SetMaxIdleConns(4)
		l.write.SetMaxOpenConns(1)
	}
	l.marks = fence.Table{Dialect: l.dialect, Name: l.tables + "fence"}
	l.text = map[string]string{}
	for name, q := range statements {
		l.text[name] = l.words(q)
	}
	return l, nil
}

// statements, with {} where the names of tables begin.
var statements = map[string]string{
	"look":   "SELECT n, EXISTS (SELECT 1 FROM {}orders WHERE buyer = ?) FROM {}stock WHERE item = ? AND part = ?",
	"take":   "UPDATE {}stock SET n = n - 1 WHERE item = ? AND part = ? AND n > 0",
	"set":    "UPDATE {}stock SET n = ? WHERE item = ? AND part = ?",
	"order":  "INSERT INTO {}orders (buyer, server) VALUES (?, ?)",
	"refuse": "INSERT INTO {}refused (buyer, token, seen) VALUES (?, ?, ?)",
	"fill":   "INSERT INTO {}stock (item, part, n) VALUES (?, ?, ?)",
	"count":  "SELECT count(*), count(DISTINCT buyer), (SELECT count(*) FROM {}refused) FROM {}orders",
}

// words puts a statement in the words of the dialect: names, and the marks of its arguments.
func (l *ledger) words(q string) string {
	q = strings.ReplaceAll(q, "{}", l.tables)
	if l.dialect != fence.PostgreSQL {
		return q
	}
	var b strings.Builder
	n := 0
	for _, r := range q {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (l *ledger) close() error {
	if l.read == l.write {
		return l.write.Close()
	}
	return errors.Join(l.read.Close(), l.write.Close())
}

// shopTables are the tables of a shop, without what their names begin with; lockTables those that stand beside them on a
// server: of pawl's locks, and of the one of setnx-del.
var (
	shopTables = []string{"stock", "orders", "refused", "fence"}
	lockTables = []string{"lock", "lock_process", "lock_state", "setnx"}
)

// create makes the tables. The orders have no unique index on the buyer: whether somebody buys twice is up to the
// strategy.
func (l *ledger) create(ctx context.Context) error {
	guard, err := l.marks.CreateTable()
	if err != nil {
		return err
	}
	id, engine, key := "INTEGER PRIMARY KEY", "", "TEXT"
	switch l.dialect {
	case fence.PostgreSQL:
		id = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	case fence.MySQL:
		id, engine, key = "BIGINT AUTO_INCREMENT PRIMARY KEY", " ENGINE=InnoDB", "VARBINARY(255)"
	}
	all := []string{
		"CREATE TABLE {}stock (item INTEGER, part INTEGER, n BIGINT NOT NULL, PRIMARY KEY (item, part))" + engine,
		"CREATE TABLE {}orders (id " + id + ", buyer BIGINT NOT NULL, server INTEGER NOT NULL)" + engine,
		"CREATE INDEX {}orders_buyer ON {}orders (buyer)",
		"CREATE TABLE {}refused (id " + id + ", buyer BIGINT NOT NULL, token BIGINT NOT NULL, seen BIGINT NOT NULL)" + engine,
		guard,
	}
	if l.dialect != fence.SQLite {
		all = append(all, "CREATE TABLE {}setnx (k "+key+" PRIMARY KEY, until BIGINT NOT NULL)"+engine)
	}
	for _, q := range all {
		if _, err := l.write.ExecContext(ctx, l.words(q)); err != nil {
			return fmt.Errorf("make the shop's tables: %w", refusal(err))
		}
	}
	return nil
}

// refusal marks an error that says that the server refuses the login, or this user to make tables, and says what to do.
func refusal(err error) error {
	var p interface{ SQLState() string }
	var m *mysql.MySQLError
	code := ""
	switch {
	case errors.As(err, &p):
		code = p.SQLState()
	case errors.As(err, &m):
		code = strconv.Itoa(int(m.Number))
	}
	switch code {
	case "42501", "1142", "1044", "1227":
		return fmt.Errorf("this user may not create tables, and a sale has its stock in tables of its own, which it drops at its end: "+
			"grant CREATE (and on MySQL DROP and INDEX too) on a database for trials: %w: %w", fs.ErrPermission, err)
	case "28P01", "28000", "1045":
		return fmt.Errorf("the server refuses user or password: %w: %w", fs.ErrPermission, err)
	}
	return err
}

// fill empties the tables and puts n items on the shelf, spread evenly over the parts.
func (l *ledger) fill(ctx context.Context, n, parts int) error {
	for _, t := range shopTables {
		if _, err := l.write.ExecContext(ctx, "DELETE FROM "+l.tables+t); err != nil {
			return err
		}
	}
	for part := range parts {
		if _, err := l.write.ExecContext(ctx, l.text["fill"], item, part, (n+parts-1-part)/parts); err != nil {
			return err
		}
	}
	return nil
}

// drop removes the tables, and those that the locks have beside them. It answers the first error.
func (l *ledger) drop(ctx context.Context) error {
	var first error
	for _, t := range slices.Concat(lockTables, shopTables) {
		if _, err := l.write.ExecContext(ctx, "DROP TABLE IF EXISTS "+l.tables+t); first == nil {
			first = err
		}
	}
	return first
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// look reads how many are left of a part, and whether the buyer has an order.
func (l *ledger) look(ctx context.Context, q querier, part int, buyer uint32) (left int, has bool, err error) {
	err = q.QueryRowContext(ctx, l.text["look"], buyer, item, part).Scan(&left, &has)
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

// take is the check and the write in one statement. It answers false when nothing is left.
func (l *ledger) take(ctx context.Context, tx *sql.Tx, part int) (bool, error) {
	r, err := tx.ExecContext(ctx, l.text["take"], item, part)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// set writes the stock that the caller computed from what it read.
func (l *ledger) set(ctx context.Context, tx *sql.Tx, part, left int) error {
	_, err := tx.ExecContext(ctx, l.text["set"], left, item, part)
	return err
}

func (l *ledger) order(ctx context.Context, tx *sql.Tx, buyer uint32, server int) error {
	_, err := tx.ExecContext(ctx, l.text["order"], buyer, server)
	return err
}

// refuse writes down that a stale write was kept out.
func (l *ledger) refuse(ctx context.Context, buyer uint32, stale *fence.StaleError) error {
	return l.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, l.text["refuse"], buyer, stale.Token, stale.Seen)
		return err
	})
}

// count is what the database says at the end.
type count struct {
	orders, buyers, refused int
}

func (l *ledger) count(ctx context.Context) (c count, err error) {
	err = l.read.QueryRowContext(ctx, l.text["count"]).Scan(&c.orders, &c.buyers, &c.refused)
	return c, err
}
