// Package location opens the database that a URL names, for the layouts that sqllock's own tables are not in. The URLs are
// those of sqllock.Open.
package location

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

const forms = "write sqlite:///path/to/file.db, postgres://user:password@host:5432/database, or mysql://user:password@host:3306/database"

// Open makes a pool, without any I/O. where names the server. Errors never show the location, since it has a password.
func Open(location string) (db *sql.DB, kind sqllock.Dialect, where string, err error) {
	scheme, _, _ := strings.Cut(location, ":")
	switch strings.ToLower(scheme) {
	case "sqlite":
		kind = sqllock.SQLite
		db, where, err = openFile(location)
	case "postgres", "postgresql":
		kind = sqllock.PostgreSQL
		db, where, err = openPostgres(location)
	case "mysql", "mariadb":
		kind = sqllock.MySQL
		db, where, err = openMySQL(location)
	default:
		err = fmt.Errorf("the location has no scheme that is supported: %s: %w: %w", forms, driver.ErrInvalid, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, 0, "", err
	}
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(3)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, kind, where, nil
}

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
	database := strings.TrimPrefix(u.Path, "/")
	if database == "" || strings.Contains(database, "/") {
		return nil, "", bad(errors.New("it names no database"))
	}
	socket := q.Get("socket")
	q.Del("socket")
	c := mysql.NewConfig()
	if len(q) > 0 {
		if c, err = mysql.ParseDSN("/?" + q.Encode()); err != nil {
			return nil, "", bad(fmt.Errorf("its parameters: %w", err))
		}
	}
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, database, u.User.Username()
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	c.Logger = &mysql.NopLogger{} // it would write to the standard error
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, "", bad(err)
	}
	return sql.OpenDB(connector), c.Addr + "/" + database, nil
}

func openFile(location string) (*sql.DB, string, error) {
	_, rest, _ := strings.Cut(location, ":")
	if path, ok := strings.CutPrefix(rest, "//"); ok {
		rest = path
		if !strings.HasPrefix(path, "/") {
			return nil, "", bad(errors.New("an sqlite location has no host"))
		}
	}
	file, err := url.PathUnescape(rest)
	if err != nil || file == "" || strings.ContainsAny(rest, "?#") || strings.HasPrefix(file, ":memory:") || strings.ContainsRune(file, 0) {
		return nil, "", bad(errors.New("an sqlite location names a file, without parameters"))
	}
	if file, err = filepath.Abs(filepath.FromSlash(file)); err != nil {
		return nil, "", bad(err)
	}
	u := url.URL{Path: filepath.ToSlash(file)} // mode=rw: a file that is not there has no table either, and is not made
	connector, err := sqlite.NewConnector("file://" + u.EscapedPath() + "?mode=rw&_txlock=immediate&_busy_timeout=0&_error_rc=1")
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", file, err)
	}
	return sql.OpenDB(connector), file, nil
}
