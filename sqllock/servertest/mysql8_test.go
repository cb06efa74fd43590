package servertest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-lock/pawl/sqllock"
)

// notMariaDB is a MariaDB that says it is MySQL, so that the statements for MySQL are run. All of them work on both.
type notMariaDB struct{ sqldriver.Connector }

type notMariaDBConn struct{ sqldriver.Conn }

func (c notMariaDB) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return notMariaDBConn{conn}, err
}

func (c notMariaDBConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, strings.ReplaceAll(query, "VERSION()", "'8.0.36'"), args)
}

func (c notMariaDBConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
}

func (c notMariaDBConn) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c.Conn.(sqldriver.ConnBeginTx).BeginTx(ctx, opts)
}

func testMySQLStatements(t *testing.T, s product) {
	if s.dialect != sqllock.MySQL {
		return
	}
	open := func() *sqllock.Driver {
		config, err := mysql.ParseDSN(s.DSN)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mysql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(notMariaDB{c})
		t.Cleanup(func() { db.Close() })
		return s.on(t, db, nil)
	}
	exchange(t, open(), open())
	exchange(t, open(), s.open(t))
	if n := s.count(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_BEGIN'"); n < 20 {
		t.Errorf("only %d transactions: this was not how MySQL is spoken to", n)
	}
}
