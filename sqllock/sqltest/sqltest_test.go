package sqltest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

func TestServers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *sqltest.Server{
		"mariadb": sqltest.StartMariaDB, "postgres": sqltest.StartPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dir string
			t.Run("life", func(t *testing.T) {
				s := start(t)
				dir = s.Dir
				life(t, s)
			})
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the directory is left behind: %v", err)
			}
		})
	}
}

func life(t *testing.T, s *sqltest.Server) {
	db, ctx := s.DB(), t.Context()
	exec := func(q string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	sum := func(ctx context.Context) (n int, err error) {
		err = db.QueryRowContext(ctx, "SELECT COALESCE(SUM(n), 0) FROM x").Scan(&n)
		return n, err
	}
	exec("CREATE TABLE x (n INT)")
	exec("INSERT INTO x VALUES (1)")
	if _, err := os.Stat(s.Socket); err != nil {
		t.Errorf("the socket: %v", err)
	}

	s.Stop()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	if n, err := sum(short); err == nil {
		t.Errorf("a frozen server answers %d", n)
	}
	cancel()
	s.Cont()
	if n, err := sum(ctx); err != nil || n != 1 {
		t.Errorf("after Cont: got %d, %v, want 1", n, err)
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO x VALUES (10)"); err != nil {
		t.Fatal(err)
	}
	exec("INSERT INTO x VALUES (100)")
	was := s.PID()
	s.Kill()
	if err := db.PingContext(ctx); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if err := tx.Commit(); err == nil {
		t.Error("a transaction outlived its server")
	}
	if n, err := sum(ctx); err != nil || n != 101 || s.PID() == was {
		t.Errorf("after Restart: got %d, %v in process %d, want 101 in another than %d", n, err, s.PID(), was)
	}
	s.Restart()
	s.Stop() // a frozen server must not keep the test from ending
}
