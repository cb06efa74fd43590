package sqltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartPgBouncer starts a PgBouncer in front of a PostgreSQL, in transaction mode: every transaction of a client runs in
// another session of the server than the last one. settings are lines of its configuration, such as "default_pool_size = 5". It ends with the
// test. The program is Debian's package pgbouncer. As PgBouncer refuses to run as root, root starts it as the user postgres.
func StartPgBouncer(t testing.TB, behind *Server, settings ...string) *Server {
	t.Helper()
	return start(t, pgbouncer(behind), settings)
}

func pgbouncer(behind *Server) kind {
	return kind{
		name: "pgbouncer",
		install: func(s *Server) (*exec.Cmd, error) {
			users := filepath.Join(s.Dir, "users")
			if err := os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", "pawl", password), 0o600); err != nil {
				return nil, err
			}
			cmd, err := pgbouncerCommand("--version")
			if err != nil {
				return nil, err
			}
			return cmd, give(cmd, s.Dir, users)
		},
		run: func(s *Server) (*exec.Cmd, error) {
			s.Socket = filepath.Join(s.Dir, ".s.PGSQL."+s.port())
			file := filepath.Join(s.Dir, "pgbouncer.ini")
			text := fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%s dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir = %s
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
server_round_robin = 1
max_client_conn = 1000
%s
`, behind.port(), s.port(), s.Dir, filepath.Join(s.Dir, "users"), strings.Join(s.args, "\n"))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				return nil, err
			}
			cmd, err := pgbouncerCommand(file)
			if err != nil {
				return nil, err
			}
			return cmd, give(cmd, file)
		},
		where:  postgres.where,
		finish: syscall.SIGKILL,
	}
}

func pgbouncerCommand(args ...string) (*exec.Cmd, error) {
	for _, p := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} { // sbin is not in everybody's path
		if path, err := exec.LookPath(p); err == nil {
			cmd := exec.Command(path, args...)
			return cmd, asPostgres(cmd)
		}
	}
	return nil, errors.New("it is not here: install pgbouncer")
}
