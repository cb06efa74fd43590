package sqltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver named "mysql"
)

// StartMariaDB starts a MariaDB and waits until it answers. args are added to its command line, such as
// "--transaction-isolation=READ-COMMITTED". It ends with the test. The programs mariadbd and mariadb-install-db must be in
// the search path: Debian's package mariadb-server.
func StartMariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, mariadb, args)
}

var mariadb = kind{
	name: "mariadb",
	install: func(s *Server) (*exec.Cmd, error) {
		program, err := lookMariaDB("mariadb-install-db")
		if err != nil {
			return nil, err
		}
		s.Socket = filepath.Join(s.Dir, "s")
		// Every start runs this; the first has something to do.
		init := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS pawl;\nCREATE USER IF NOT EXISTS pawl@'%%' IDENTIFIED BY '%s';\n"+
			"GRANT ALL ON *.* TO pawl@'%%' WITH GRANT OPTION;\n", password)
		if err := os.WriteFile(filepath.Join(s.Dir, "init.sql"), []byte(init), 0o600); err != nil {
			return nil, err
		}
		return exec.Command(program, append([]string{"--no-defaults", "--datadir=" + filepath.Join(s.Dir, "data"),
			"--tmpdir=" + s.Dir, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M"}, asRoot()...)...), nil
	},
	run: func(s *Server) (*exec.Cmd, error) {
		program, err := lookMariaDB("mariadbd")
		if err != nil {
			return nil, err
		}
		args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(s.Dir, "data"), "--socket=" + s.Socket, "--port=" + s.port(),
			"--bind-address=127.0.0.1", "--pid-file=" + filepath.Join(s.Dir, "pid"), "--init-file=" + filepath.Join(s.Dir, "init.sql"),
			"--tmpdir=" + s.Dir, "--skip-name-resolve", "--max-connections=1000", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M",
			"--innodb-flush-log-at-trx-commit=2"}, asRoot()...)
		return exec.Command(program, append(args, s.args...)...), nil
	},
	where: func(s *Server) {
		s.URL = "mysql://pawl:" + password + "@" + s.Addr + "/pawl"
		s.DSN = "pawl:" + password + "@tcp(" + s.Addr + ")/pawl"
		s.Driver = "mysql"
	},
	finish: syscall.SIGKILL,
}

// asRoot is what MariaDB wants to be told before it runs as root.
func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func lookMariaDB(program string) (string, error) {
	for _, p := range []string{program, "/usr/sbin/" + program} { // sbin is not in everybody's path
		if path, err := exec.LookPath(p); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not here: install mariadb-server", program)
}
