package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/pawl-lock/pawl/driver"
)

// Open makes a driver with a pool of its own, which Close closes, and creates the tables that do not exist yet. opts may be
// nil. ctx bounds the opening only.
//
//	sqlite:///var/lib/app/locks.db                a file by its full path
//	sqlite:locks.db                               a file in the current folder
//	postgres://user:password@host:5432/database   parameters as pgx knows them, such as ?sslmode=verify-full
//	mysql://user:password@host:3306/database      also MariaDB; parameters as go-sql-driver/mysql knows them, such as
//	                                              ?tls=true, and ?socket=/run/mysqld/mysqld.sock
//
// Bytes that have a meaning in URLs are written as %XX. An SQLite file is created if it does not exist; its folder is not,
// and no database of a server is. Errors never show the URL, since it carries a password.
func Open(ctx context.Context, location string, opts *Options) (*Driver, error) {
	if _, err := opts.filled(); err != nil {
		return nil, err
	}
	name, _, ok := strings.Cut(location, ":")
	if !ok || !scheme.MatchString(name) {
		return nil, fmt.Errorf("sqllock: the location has no scheme: %s: %w", forms, driver.ErrInvalid)
	}
	var d *Driver
	var err error
	switch strings.ToLower(name) {
	case "sqlite":
		return openFile(ctx, location, opts)
	case "postgres", "postgresql":
		d, err = openPostgres(location, opts)
	case "mysql", "mariadb":
		d, err = openMySQL(location, opts)
	default:
		err = fmt.Errorf("locations of the scheme %q are not supported: %s: %w: %w", name, forms, driver.ErrInvalid, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}
	d.owned = true
	d.db.SetMaxOpenConns(10)
	d.db.SetMaxIdleConns(3)
	d.db.SetConnMaxIdleTime(5 * time.Minute)
	if err := d.CreateSchema(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

const forms = "write sqlite:///path/to/file.db, sqlite:file.db for a file in the current folder, postgres://user:password@host:5432/database, or mysql://user:password@host:3306/database"

func openFile(ctx context.Context, location string, opts *Options) (*Driver, error) {
	file, err := sqliteFile(location)
	if err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}
	if err := lookAtFile(file); err != nil {
		return nil, fmt.Errorf("sqllock: open %s: %w", file, err)
	}
	connector, err := sqlite.NewConnector(sqliteSource(file))
	if err != nil {
		return nil, fmt.Errorf("sqllock: open %s: %w", file, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(2) // one writes, one reads
	d := New(db, SQLite, opts)
	d.owned, d.file = true, file
	if err := d.store.(*fileStore).prepareFile(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("sqllock: open %s: %w", file, err)
	}
	return d, nil
}

func openPostgres(location string, opts *Options) (*Driver, error) {
	c, err := pgx.ParseConfig(location)
	if err != nil {
		return nil, badLocation(errors.Unwrap(err)) // the error itself shows the location
	}
	d := New(stdlib.OpenDB(*c), PostgreSQL, opts)
	d.file = fmt.Sprintf("%s/%s", net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), c.Database)
	return d, nil
}

// badLocation keeps the cause, unless it quotes the location.
func badLocation(cause error) error {
	var u *url.Error
	if cause == nil || errors.As(cause, &u) {
		return fmt.Errorf("the location cannot be understood: %s, with bytes that have a meaning in URLs as %%XX: %w", forms, driver.ErrInvalid)
	}
	return fmt.Errorf("the location cannot be understood (%v): %s: %w", cause, forms, driver.ErrInvalid)
}

func openMySQL(location string, opts *Options) (*Driver, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, badLocation(err)
	}
	host, database, q := u.Host, strings.TrimPrefix(u.Path, "/"), u.Query()
	if database == "" || strings.Contains(database, "/") {
		return nil, badLocation(errors.New("it names no database"))
	}
	c := mysql.NewConfig()
	if raw := dropSocket(u.RawQuery); raw != "" {
		if c, err = mysql.ParseDSN("/?" + raw); err != nil {
			return nil, badLocation(fmt.Errorf("its parameters: %w", err))
		}
	}
	c.Net, c.Addr, c.DBName, c.User = "tcp", host, database, u.User.Username()
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if s := q.Get("socket"); s != "" {
		c.Net, c.Addr = "unix", s
	}
	c.Logger = &mysql.NopLogger{} // it would write to the standard error
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, badLocation(err)
	}
	d := New(sql.OpenDB(connector), MySQL, opts)
	d.file = c.Addr + "/" + database
	return d, nil
}

// dropSocket is a query without the parameter that is pawl's own.
func dropSocket(query string) string {
	var rest []string
	for part := range strings.SplitSeq(query, "&") {
		if part != "" && !strings.HasPrefix(part, "socket=") {
			rest = append(rest, part)
		}
	}
	return strings.Join(rest, "&")
}

func (d *Driver) hinted(err error) error {
	if hint := d.dialect.fault(err).hint; hint != "" {
		return fmt.Errorf("%s: %w", hint, err)
	}
	return err
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// sqliteFile is the absolute path that a URL names.
func sqliteFile(location string) (string, error) {
	_, rest, _ := strings.Cut(location, ":")
	if strings.ContainsAny(rest, "?#") {
		return "", fmt.Errorf("an sqlite location has no query and no fragment (a ? in a file's name is written %%3F, a # %%23): %s: %w", forms, driver.ErrInvalid)
	}
	if path, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("an sqlite location has no host: %s: %w", forms, driver.ErrInvalid)
		}
		rest = path
	}
	file, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("the location has a %% that begins no %%XX: %s: %w", forms, driver.ErrInvalid)
	case file == "" || strings.HasPrefix(file, ":memory:"):
		return "", fmt.Errorf("a database in memory is not shared with any other process: use a file, or memlock: %w", driver.ErrInvalid)
	case strings.ContainsRune(file, 0):
		return "", fmt.Errorf("the file's name has a NUL byte: %w", driver.ErrInvalid)
	case strings.HasSuffix(file, "/"):
		return "", fmt.Errorf("the location names a folder: %s: %w", forms, driver.ErrInvalid)
	}
	if runtime.GOOS == "windows" && len(file) > 2 && file[0] == '/' && file[2] == ':' {
		file = file[1:] // sqlite:///C:/path
	}
	return filepath.Abs(filepath.FromSlash(file))
}

// lookAtFile finds the mistakes that SQLite has no clear words for.
func lookAtFile(file string) error {
	folder := filepath.Dir(file)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the folder %s does not exist: create it first: %w", folder, err)
	case err != nil:
		return fmt.Errorf("the folder %s cannot be looked at: %w", folder, err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder: %w", folder, driver.ErrInvalid)
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file: choose another name: %w", driver.ErrInvalid)
	}
	return nil
}

// sqliteSource makes the name by which modernc.org/sqlite opens the file.
//
// Transactions take the write lock at once, and conflicts are reported at once: the driver waits by itself, in shorter
// steps than SQLite does and no longer than its caller wants. Commits are not flushed one by one (synchronous=NORMAL),
// see the package's documentation.
func sqliteSource(file string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(file)}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	return "file://" + u.EscapedPath() + "?_txlock=immediate&_busy_timeout=0&_synchronous=NORMAL&_error_rc=1"
}
