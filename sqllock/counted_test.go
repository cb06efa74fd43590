package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/pawl-lock/pawl/sqllock"
)

// counts are what a driver has SQLite do.
type counts struct{ statements, transactions atomic.Int64 }

// counted is SQLite with counters.
type counted struct {
	sqldriver.Connector
	n *counts
}

type countedConn struct {
	sqldriver.Conn
	n *counts
}

type countedStmt struct {
	sqldriver.Stmt
	n *counts
}

func (c counted) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return countedConn{conn, c.n}, err
}

func (c countedConn) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	tx, err := c.Conn.(sqldriver.ConnBeginTx).BeginTx(ctx, opts)
	if err == nil {
		c.n.transactions.Add(1)
	}
	return tx, err
}

func (c countedConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	s, err := c.Conn.(sqldriver.ConnPrepareContext).PrepareContext(ctx, query)
	return countedStmt{s, c.n}, err
}

func (s countedStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s.n.statements.Add(1)
	return s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
}

func (s countedStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s.n.statements.Add(1)
	return s.Stmt.(sqldriver.StmtQueryContext).QueryContext(ctx, args)
}

// newCounted makes a driver whose statements are counted.
func newCounted(t *testing.T, file string) (*sqllock.Driver, *counts) {
	t.Helper()
	connector, err := sqlite.NewConnector("file:" + file + "?_journal_mode=WAL&_txlock=immediate&_synchronous=NORMAL")
	if err != nil {
		t.Fatal(err)
	}
	n := new(counts)
	db := sql.OpenDB(counted{connector, n})
	t.Cleanup(func() { db.Close() })
	return newOn(t, db, nil), n
}
