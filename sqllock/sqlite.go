package sqllock

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

//go:embed sqlite.sql
var sqliteText string

func sqliteDialect() *dialect {
	return &dialect{
		text:   sqliteText,
		quote:  sqliteQuote,
		store:  newFileStore,
		turn:   50 * time.Millisecond,
		clock:  machineClock,
		fault:  sqliteFault,
		fields: sqliteFields,
	}
}

func sqliteQuote(identifier string) string {
	return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"`
}

// sqliteLocate asks for the file of the main database, with symbolic links resolved.
func sqliteLocate(ctx context.Context, db *sql.DB) (string, error) {
	var seq int
	var name string
	var file sql.NullString
	err := db.QueryRowContext(ctx, "PRAGMA database_list").Scan(&seq, &name, &file)
	switch {
	case err != nil && sqliteCode(err) == 0 && ctx.Err() == nil:
		return "", fmt.Errorf("the pool is closed, or is not one of SQLite: %w", err)
	case err != nil:
		return "", err
	case file.String == "":
		return "", fmt.Errorf("a database in memory is not shared with any other process: use a file, or memlock: %w", driver.ErrInvalid)
	}
	return file.String, nil
}

func sqliteFields(ctx context.Context, d *Driver, table string) ([]field, error) {
	rows, err := d.db.QueryContext(ctx, `SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY name`, table)
	return scanFields(rows, err)
}

// The primary result codes of SQLite that mean something here (https://www.sqlite.org/rescode.html).
const (
	sqliteError    = 1
	sqlitePerm     = 3
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadonly = 8
	sqliteIOErr    = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteProtocol = 15
	sqliteSchema   = 17
	sqliteNotADB   = 26
)

func sqliteCode(err error) int {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func sqliteFault(err error) fault {
	switch sqliteCode(err) {
	case sqliteBusy, sqliteLocked, sqliteProtocol, sqliteSchema:
		return fault{again: true, hint: "another program keeps the database locked: end its transaction, or give pawl a file of its own"}
	case sqliteReadonly, sqlitePerm:
		return fault{hint: "it cannot be written: give this user the right to write to the file and to its folder, or choose another file"}
	case sqliteCantOpen:
		return fault{hint: "the file cannot be opened: look whether its folder exists and this user may write there"}
	case sqliteNotADB:
		return fault{hint: "the file is not an SQLite database: choose another file"}
	case sqliteCorrupt:
		return fault{hint: "the file is damaged: stop all programs that use it and delete it together with its -wal and -shm files"}
	case sqliteFull:
		return fault{hint: "the disk is full: make room"}
	case sqliteIOErr:
		return fault{hint: "reading or writing the file failed: look at the disk, and whether it is full"}
	case sqliteError:
		if strings.Contains(err.Error(), "no such table") {
			return fault{hint: "its tables are missing: call CreateSchema once"}
		}
	}
	return fault{}
}
