// Package location opens the database that a URL names.
package location

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
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

// Kind is what a URL names, numbered as sqllock.Dialect.
type Kind uint8

const (
	SQLite Kind = iota + 1
	PostgreSQL
	MySQL
)

const forms = "write sqlite:///path/to/file.db, sqlite:file.db for a file in the current folder, postgres://user:password@host:5432/database, or mysql://user:password@host:3306/database"

// Open makes a pool, without any I/O. where is the file, or names the server. sqliteParams are the parameters of
// modernc.org/sqlite for a file. Errors never show the location, since it has a password.
func Open(location, sqliteParams string) (db *sql.DB, kind Kind, where string, err error) {
	name, _, ok := strings.Cut(location, ":")
	if !ok || !scheme.MatchString(name) {
		return nil, 0, "", fmt.Errorf("the location has no scheme: %s: %w", forms, driver.ErrInvalid)
	}
	switch strings.ToLower(name) {
	case "sqlite":
		kind = SQLite
		db, where, err = openFile(location, sqliteParams)
	case "postgres", "postgresql":
		kind = PostgreSQL
		db, where, err = openPostgres(location)
	case "mysql", "mariadb":
		kind = MySQL
		db, where, err = openMySQL(location)
	default:
		err = fmt.Errorf("locations of the scheme %q are not supported: %s: %w: %w", name, forms, driver.ErrInvalid, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, 0, "", err
	}
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(3)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, kind, where, nil
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// bad keeps the cause, unless it quotes the location.
func bad(cause error) error {
	var u *url.Error
	if cause == nil || errors.As(cause, &u) {
		return fmt.Errorf("the location cannot be understood: %s, with bytes that have a meaning in URLs as %%XX: %w", forms, driver.ErrInvalid)
	}
	return fmt.Errorf("the location cannot be understood (%v): %s: %w", cause, forms, driver.ErrInvalid)
}

func openPostgres(location string) (*sql.DB, string, error) {
	c, err := pgx.ParseConfig(location)
	if err != nil {
		return nil, "", bad(errors.Unwrap(err)) // the error itself shows the location
	}
	return stdlib.OpenDB(*c), fmt.Sprintf("%s/%s", net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), c.Database), nil
}

func openMySQL(location string) (*sql.DB, string, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, "", bad(err)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, "", bad(nil)
	}
	host, database := u.Host, strings.TrimPrefix(u.Path, "/")
	if database == "" || strings.Contains(database, "/") {
		return nil, "", bad(errors.New("it names no database"))
	}
	c := mysql.NewConfig()
	if raw := dropSocket(u.RawQuery); raw != "" {
		if c, err = mysql.ParseDSN("/?" + raw); err != nil {
			return nil, "", bad(fmt.Errorf("its parameters: %w", err))
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
		return nil, "", bad(err)
	}
	return sql.OpenDB(connector), c.Addr + "/" + database, nil
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

func openFile(location, params string) (*sql.DB, string, error) {
	file, err := sqliteFile(location)
	if err != nil {
		return nil, "", err
	}
	u := url.URL{Path: filepath.ToSlash(file)}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	connector, err := sqlite.NewConnector("file://" + u.EscapedPath() + "?" + params)
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", file, err)
	}
	return sql.OpenDB(connector), file, nil
}

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
