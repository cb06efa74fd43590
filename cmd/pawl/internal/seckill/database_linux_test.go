package seckill

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// servers are the databases that a shop may be in, beside a file.
var servers = map[string]func(testing.TB, ...string) *sqltest.Server{"mariadb": sqltest.StartMariaDB, "postgres": sqltest.StartPostgres}

// tablesOf lists the tables of a database that are not the system's.
func tablesOf(t *testing.T, s *sqltest.Server) []string {
	t.Helper()
	rows, err := s.DB().Query("SELECT table_name FROM information_schema.tables WHERE table_schema IN ('pawl', 'public')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		names = append(names, n)
	}
	return names
}

// The sale with locks, stock, orders and marks in one database on a server: the same promises, the same accidents, and
// nothing is left of it.
func TestSaleOnAServer(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			mine := s.DB()
			if _, err := mine.Exec("CREATE TABLE stock (n INTEGER)"); err != nil {
				t.Fatal(err)
			}
			o := program(t, "--backend", s.URL, "--buyers", "400", "--stock", "40", "--json")
			if o.code != 0 || strings.Contains(o.stderr, "sesame") {
				t.Fatalf("exit code %d, stderr %q, stdout %s", o.code, o.stderr, o.stdout)
			}
			if o.stderr != "" {
				t.Logf("stderr: %s", o.stderr)
			}
			r := parse(t, o.stdout)
			if len(r.Strategies) != len(strategies) {
				t.Errorf("got %d strategies, want all", len(r.Strategies))
			}
			for _, s := range r.Strategies {
				if s.Safe && (s.Sold != 40 || s.Duplicates != 0) || s.strategy.broken && s.Oversold == 0 || (s.Name == "lock+token") != (s.RefusedStale > 0) {
					t.Errorf("%+v: want 40 sold, no duplicates, late writes refused; and the broken ones broken", s)
				}
			}
			if left := tablesOf(t, s); len(left) != 1 || left[0] != "stock" {
				t.Errorf("tables %q are left, want only the one that was there", left)
			}
			t.Run("setnx", func(t *testing.T) {
				l, err := openLedger(place{Server: s.URL, Tables: "t_", Conns: 2})
				if err != nil {
					t.Fatal(err)
				}
				defer l.close()
				if err := l.create(t.Context()); err != nil {
					t.Fatal(err)
				}
				naiveRules(t, s.URL, l)
				if err := l.drop(t.Context()); err != nil {
					t.Error(err)
				}
			})
			t.Run("no right", func(t *testing.T) { noRight(t, name, s) })
			t.Run("interrupted", func(t *testing.T) { interruptedOnAServer(t, s) })
			t.Run("no server", func(t *testing.T) {
				s.Kill()
				o := program(t, "--backend", s.URL, "--strategy", "row-update,lock")
				if o.code != codeUnavailable || strings.Contains(o.stderr, "sesame") {
					t.Errorf("exit code %d, stderr %q", o.code, o.stderr)
				}
			})
		})
	}
}

// A user who may not create tables is told so, before anything starts.
func noRight(t *testing.T, name string, s *sqltest.Server) {
	db := s.DB()
	for _, q := range map[string][]string{
		"mariadb":  {"CREATE USER guest IDENTIFIED BY 'sesame-guest'", "GRANT SELECT ON pawl.* TO guest"},
		"postgres": {"CREATE USER guest PASSWORD 'sesame-guest'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"},
	}[name] {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	url := strings.Replace(s.URL, "pawl:sesame-open", "guest:sesame-guest", 1)
	for _, strategy := range []string{"row-update", "lock"} {
		o := program(t, "--backend", url, "--strategy", strategy)
		if o.code != codePermission || !strings.Contains(o.stderr, "may not create tables") || strings.Contains(o.stderr, "sesame") || o.stdout != "" {
			t.Errorf("%s: exit code %d, stderr %q", strategy, o.code, o.stderr)
		}
	}
	o := program(t, "--backend", strings.Replace(s.URL, "sesame-open", "sesame-wrong", 1), "--strategy", "row-update")
	if o.code != codePermission || strings.Contains(o.stderr, "sesame") {
		t.Errorf("a wrong password: exit code %d, stderr %q", o.code, o.stderr)
	}
}

// Ctrl-C takes the tables away too.
func interruptedOnAServer(t *testing.T, s *sqltest.Server) {
	cmd := exec.Command(os.Args[0], "seckill", "--backend", s.URL, "--strategy", "lock-wait", "--rate", "100")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	db := s.DB()
	eventually(t, "somebody has bought", func() bool {
		for _, name := range tablesOf(t, s) {
			var n int
			if strings.HasSuffix(name, "_orders") && db.QueryRow(fmt.Sprintf("SELECT count(*) FROM %s", name)).Scan(&n) == nil && n > 0 {
				return true
			}
		}
		return false
	})
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, stderr.String())
	}
	if left := tablesOf(t, s); len(left) != 1 {
		t.Errorf("tables %q are left, want only the one that was there", left)
	}
}
