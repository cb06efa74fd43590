package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	text := write("text", strings.Repeat("this is no database\n", 200))
	otherTable := filepath.Join(dir, "other.db")
	exec1(t, otherTable, "CREATE TABLE pawl_lock (name TEXT PRIMARY KEY, holder TEXT NOT NULL)")
	for _, c := range []struct {
		what, location, want string
	}{
		{"missing folder", "sqlite://" + dir + "/missing/locks.db", "create it first"},
		{"folder is a file", "sqlite://" + text + "/locks.db", "folder"},
		{"file is a folder", "sqlite://" + dir, "regular file"},
		{"ends in a slash", "sqlite://" + dir + "/", "folder"},
		{"no database", "sqlite://" + text, "not an SQLite database"},
		{"other columns", "sqlite://" + otherTable, "column state is missing"},
		{"no scheme", dir + "/locks.db", "sqlite:///path/to/file.db"},
		{"empty", "", "sqlite:///path/to/file.db"},
		{"another database", "oracle://me:secret@host/db", `"oracle"`},
		{"nobody at home", "postgres://me:secret@127.0.0.1:1/db?sslmode=disable", "refused"},
		{"nobody at home", "mysql://me:secret@127.0.0.1:1/db", "refused"},
		{"bad port", "postgres://me:secret@host:http/db", "cannot be understood"},
		{"bad port", "mysql://me:secret@host:http/db", "cannot be understood"},
		{"bad escape", "postgres://me:secret%zz@host/db", "cannot be understood"},
		{"bad escape", "mysql://me:secret%zz@host/db", "cannot be understood"},
		{"bad parameter", "mysql://me:secret@host/db?timeout=soon", "cannot be understood"},
		{"bad parameter", "postgres://me:secret@host/db?sslmode=perhaps", "cannot be understood"},
		{"without database", "mysql://me:secret@host", "names no database"},
		{"host", "sqlite://me:secret@host/locks.db", "has no host"},
		{"query", "sqlite://" + dir + "/locks.db?secret=1", "no query"},
		{"no path", "sqlite:", "in memory"},
		{"memory", "sqlite::memory:", "in memory"},
		{"bad escape", "sqlite:%zz", "%XX"},
		{"NUL", "sqlite:a%00b", "NUL"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, err := sqllock.Open(within(t, soon), c.location, nil)
			if err == nil {
				d.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error %q does not say %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error %q shows a secret", err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("the missing folder was created")
	}
}

func exec1(t *testing.T, file, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

func TestOpenAcceptsAnyPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a b.db", "a?b.db", "a#b.db", "a%20b.db", "ü.db", "a&b=c.db", "a;b'c\".db", "mode=ro"} {
		file := filepath.Join(dir, name)
		escaped := strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(file)
		d, err := sqllock.Open(within(t, soon), "sqlite://"+escaped, nil)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		mustGet(t, d, "x", driver1m)
		d.Close()
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%q was not created: %v", name, err)
		}
	}
	// A link and its target are one file.
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(filepath.Join(dir, "ü.db"), link); err != nil {
		t.Fatal(err)
	}
	mustBeHeld(t, open(t, link), "x")
}

func TestOpenRelative(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	d, err := sqllock.Open(within(t, soon), "sqlite:locks.db", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	mustGet(t, d, "x", driver1m)
	t.Chdir("/") // the driver goes on with the file that it opened
	mustBeHeld(t, d, "x")
	mustBeHeld(t, open(t, filepath.Join(dir, "locks.db")), "x")
}

// childOpen opens a file and takes a lock, as a user who may not write there, and says what came of it.
func childOpen(args []string) error {
	ctx := context.Background()
	d, err := sqllock.Open(ctx, "sqlite://"+args[0], nil)
	if err == nil {
		_, err = ask(ctx, d, "x", driver1m, false)
	}
	fmt.Println(err)
	return nil
}

// Who has the old file open would exclude nobody who opens the new one, so nothing is granted any more.
func TestReplacedFile(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	a := mustGet(t, d, "x", driver1m)
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	open(t, file)
	for what, err := range map[string]error{
		"Renew": d.Renew(within(t, soon), []driver.Hold{a.Hold})[0],
		"Try":   try(t, d, "y"),
	} {
		if err == nil || errors.Is(err, driver.ErrNotHeld) || !strings.Contains(err.Error(), "deleted or replaced") {
			t.Errorf("%s in a file that was replaced: %v", what, err)
		}
	}
}

func try(t *testing.T, d driver.Driver, name string) error {
	t.Helper()
	a, err := ask(within(t, soon), d, name, driver1m, false)
	if err != nil {
		return err
	}
	_, err = a.place.Try(within(t, soon), 1)
	return err
}
