package sqltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
)

// StartPostgres starts a PostgreSQL and waits until it answers. args are added to its command line, such as
// "-c", "default_transaction_isolation=serializable". It ends with the test. Its programs are looked for in
// /usr/lib/postgresql (Debian's package postgresql), or where the environment variable POSTGRES_BIN says. As PostgreSQL refuses
// to run as root, root starts it as the user postgres.
func StartPostgres(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, postgres, args)
}

var postgres = kind{
	name: "postgres",
	install: func(s *Server) (*exec.Cmd, error) {
		cmd, err := postgresCommand("initdb", "--no-sync", "--auth=scram-sha-256", "--username=pawl", "--encoding=UTF8",
			"--pwfile="+filepath.Join(s.Dir, "password"), "--pgdata="+filepath.Join(s.Dir, "data"))
		if err != nil {
			return nil, err
		}
		s.Socket = filepath.Join(s.Dir, ".s.PGSQL") // the server adds its port
		file := filepath.Join(s.Dir, "password")
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			return nil, err
		}
		return cmd, give(cmd, s.Dir, file)
	},
	run: func(s *Server) (*exec.Cmd, error) {
		s.Socket = filepath.Join(s.Dir, ".s.PGSQL."+s.port())
		return postgresCommand("postgres", append([]string{"-D", filepath.Join(s.Dir, "data"), "-p", s.port(), "-h", "127.0.0.1", "-k", s.Dir,
			"-c", "fsync=off", "-c", "max_connections=300", "-c", "dynamic_shared_memory_type=mmap"}, s.args...)...)
	},
	where: func(s *Server) {
		s.URL = "postgres://pawl:" + password + "@" + s.Addr + "/postgres?sslmode=disable"
		s.DSN = s.URL
		s.Driver = "pgx"
	},
	finish: syscall.SIGQUIT, // "immediate shutdown": no clean-up but that of its shared memory
}

func postgresCommand(program string, args ...string) (*exec.Cmd, error) {
	dir := os.Getenv("POSTGRES_BIN")
	if dir == "" {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		if len(found) == 0 {
			return nil, errors.New("it is not here: install postgresql, or say in POSTGRES_BIN where its programs are")
		}
		version := func(dir string) int { n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))); return n }
		dir = slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	}
	cmd := exec.Command(filepath.Join(dir, program), args...)
	return cmd, asPostgres(cmd)
}

// give makes files the property of whom a command runs as.
func give(cmd *exec.Cmd, files ...string) error {
	if cmd.SysProcAttr == nil {
		return nil
	}
	who := cmd.SysProcAttr.Credential
	for _, f := range files {
		if err := os.Chown(f, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// asPostgres has root run a program as the user postgres.
func asPostgres(cmd *exec.Cmd) error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return fmt.Errorf("it does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}
