package servertest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
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

// asMySQL opens a driver that speaks to a MariaDB as to a MySQL.
func (s product) asMySQL(t testing.TB, dsn string) *sqllock.Driver {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
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

func testMySQLStatements(t *testing.T, s product) {
	if s.dialect != sqllock.MySQL {
		return
	}
	exchange(t, s.asMySQL(t, s.DSN), s.asMySQL(t, s.DSN))
	exchange(t, s.asMySQL(t, s.DSN), s.open(t))
	if n := s.count(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_BEGIN'"); n < 20 {
		t.Errorf("only %d transactions: this was not how MySQL is spoken to", n)
	}
}

// A COMMIT that the server does not answer bounds nothing: ctx does, the driver goes on with other names, and whatever became
// of that COMMIT, the name is free when its release was asked for again.
func testLateCommit(t *testing.T, s product) {
	if s.dialect != sqllock.MySQL {
		return
	}
	g := rowtest.NewGate(t, s.Addr) // the table's name must not look like a COMMIT
	d := s.asMySQL(t, g.Through(s.DSN))
	for i, arrives := range []bool{true, false} {
		name := fmt.Sprint("commit ", i)
		a := mustTake(t, d, name, time.Minute)
		g.Arm()
		ctx, cancel := context.WithCancel(context.Background())
		released := make(chan error, 1)
		go func() { released <- d.Release(ctx, a.Hold, driver.End{}) }()
		select {
		case <-g.Kept:
		case err := <-released:
			t.Fatalf("Release: %v before any COMMIT", err)
		}
		cancel()
		select {
		case err := <-released:
			if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNotDone) {
				t.Errorf("the COMMIT is under way, but Release says: %v", err)
			}
		case <-time.After(soon):
			t.Error("Release waits for a COMMIT although its ctx has ended")
		}
		mustRelease(t, d, mustTake(t, d, name+", another", time.Minute))
		g.Open <- arrives
		if err := d.Release(within(t, soon), a.Hold, driver.End{}); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release once more: %v", err)
		}
		mustRelease(t, d, mustTake(t, d, name, time.Minute))
	}
}
