package sqllock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock/internal/location"
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
func Open(ctx context.Context, url string, opts *Options) (*Driver, error) {
	if _, err := opts.filled(); err != nil {
		return nil, err
	}
	db, kind, where, err := location.Open(url, sqliteParams)
	if err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}
	d := New(db, Dialect(kind), opts)
	d.owned, d.file = true, where
	if kind == location.SQLite {
		if err = d.openFile(ctx); err != nil {
			err = fmt.Errorf("sqllock: open %s: %w", where, err)
		}
	} else {
		err = d.CreateSchema(ctx)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// sqliteParams have transactions take the write lock at once, and conflicts reported at once: the driver waits by itself, in
// shorter steps than SQLite does and no longer than its caller wants. Commits are not flushed one by one (synchronous=NORMAL),
// see the package's documentation.
const sqliteParams = "_txlock=immediate&_busy_timeout=0&_synchronous=NORMAL&_error_rc=1"

func (d *Driver) openFile(ctx context.Context) error {
	if err := lookAtFile(d.file); err != nil {
		return err
	}
	d.db.SetMaxOpenConns(4)
	d.db.SetMaxIdleConns(2) // one writes, one reads
	d.db.SetConnMaxIdleTime(0)
	return d.store.(*fileStore).prepareFile(ctx)
}

func (d *Driver) hinted(err error) error {
	if hint := d.dialect.fault(err).hint; hint != "" {
		return fmt.Errorf("%s: %w", hint, err)
	}
	return err
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
