// Package servertest tests sqllock on real database servers.
package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}

// product is a server that the tests run on.
type product struct {
	*sqltest.Server
	dialect sqllock.Dialect
	table   string // Options.Table
}

func mariadb(t testing.TB, args ...string) product {
	t.Helper()
	return product{sqltest.StartMariaDB(t, args...), sqllock.MySQL, "pawl_lock"}
}

func postgres(t testing.TB, args ...string) product {
	t.Helper()
	return product{sqltest.StartPostgres(t, args...), sqllock.PostgreSQL, "pawl_lock"}
}

// on runs a test on each product, with a server of its own.
func on(t *testing.T, f func(t *testing.T, s product)) {
	t.Helper()
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		f(t, mariadb(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		f(t, postgres(t))
	})
}

// TestServer has the tests that leave a server as it was share one, each with tables of its own.
func TestServer(t *testing.T) {
	on(t, func(t *testing.T, s product) {
		t.Cleanup(func() { // PostgreSQL logs every statement that fails
			if !strings.Contains(s.Output(), "ready") {
				t.Error("the server's log is not where it should be")
			}
			for line := range strings.Lines(s.Output()) {
				// Two CREATE TABLE IF NOT EXISTS at once may meet in PostgreSQL's own catalogue.
				if strings.Contains(line, "duplicate key") && !strings.Contains(line, `constraint "pg_`) {
					t.Errorf("in the server's log: %s", line)
				}
			}
		})
		for _, c := range []struct {
			name string
			test func(t *testing.T, s product)
		}{
			{"idle", testIdle}, {"locked_row", testLockedRow}, {"pools", testPools}, {"rights", testRights}, {"refuses", testRefuses},
			{"sweep", testSweep}, {"renew_many", testRenewMany}, {"crowd", testCrowd}, {"mysql_statements", testMySQLStatements}, {"late_end", testLateCommit}, {"killed_connections", testKilledConnections},
			{"pooler", testPooler}, {"pooler_again", testPoolerAgain}, {"pgx", testPgx}, {"statements", testStatements}, {"light", testLight}, {"read_only", testReadOnly},
		} {
			s.table = c.name
			t.Run(c.name, func(t *testing.T) { c.test(t, s) })
		}
	})
}

// TestFaults has the tests that stop a server share another one.
func TestFaults(t *testing.T) {
	on(t, func(t *testing.T, s product) {
		s.table = "frozen"
		t.Run("frozen", func(t *testing.T) { testFrozen(t, s) })
		s.table = "late"
		t.Run("late", func(t *testing.T) { testLateGuess(t, s) })
		s.table = "forgotten"
		t.Run("forgotten_release", func(t *testing.T) { testForgottenRelease(t, s) })
		s.table = "restart"
		t.Run("restart", func(t *testing.T) { testRestart(t, s) })
	})
}

// open makes a driver with a pool of its own, as another process would have it.
func (s product) open(t testing.TB) *sqllock.Driver {
	t.Helper()
	d, err := sqllock.Open(context.Background(), s.URL, &sqllock.Options{Table: s.table})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// exec runs a statement as the tests' own.
func (s product) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// blob is bytes in SQL text.
func (s product) blob(b string) string {
	if s.dialect == sqllock.PostgreSQL {
		return fmt.Sprintf(`'\x%x'::bytea`, b)
	}
	return fmt.Sprintf("X'%x'", b)
}

func (s product) secrets() []string {
	u, _ := url.Parse(s.URL)
	password, _ := u.User.Password()
	return []string{password, s.URL, s.DSN}
}

// TestConformance is the suite on each product, and once more, for the kinds that differ most, on a pool of pgx behind a pooler
// in transaction mode.
func TestConformance(t *testing.T) {
	on(t, func(t *testing.T, s product) {
		s.open(t)
		db := s.DB() // one pool for all, since a connection costs more than a case
		db.SetMaxOpenConns(36)
		db.SetMaxIdleConns(36)
		h := s.harness(func() driver.Driver { return sqllock.New(db, s.dialect, nil) })
		h.Stall = func(t testing.TB) func() {
			s.Stop()
			var once atomic.Bool
			return func() {
				if once.CompareAndSwap(false, true) {
					s.Cont()
				}
			}
		}
		drivertest.Run(t, h)
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		s := postgres(t)
		s.open(t)
		config, err := pgxpool.ParseConfig(sqltest.StartPgBouncer(t, s.Server, "default_pool_size = 20").DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns = 36
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		h := s.harness(func() driver.Driver { return some{sqllock.NewPgx(pool, nil)} })
		h.Kinds = someKinds
		drivertest.Run(t, h)
	})
}

var someKinds = []driver.Kind{driver.Exclusive, driver.Permits}

// some carries some kinds only, so that the suite takes less time.
type some struct{ *sqllock.Driver }

func (d some) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if !slices.Contains(someKinds, r.Kind) {
		return nil, errors.ErrUnsupported
	}
	return d.Driver.Enter(ctx, r)
}

func (s product) harness(open func() driver.Driver) drivertest.Harness {
	return drivertest.Harness{
		Open:        func(testing.TB) driver.Driver { return open() },
		Kinds:       everyKind,
		MinTTL:      minTTL,
		Together:    16,
		WriterFirst: true,
		Delete: func(t testing.TB, name string) {
			s.exec(t, "DELETE FROM "+s.table+" WHERE name = "+s.blob(name))
		},
		Secrets: s.secrets(),
	}
}
