package sqllock

import (
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// Options change what [New] and [Open] do. nil, and the zero value of each field, mean the default. Two clients share
// locks if all their options are equal.
type Options struct {
	// Table is the name of the table that holds the locks. Its companions are called Table_process and Table_state.
	// Default: pawl_lock.
	Table string

	// Prefix is put before every name in the database, so that several applications can use one table.
	// Default: none.
	Prefix string
}

const longestTable = 48 // leaves room for "_process" in every database's limit for identifiers

func (o *Options) filled() (Options, error) {
	var f Options
	if o != nil {
		f = *o
	}
	if f.Table == "" {
		f.Table = "pawl_lock"
	}
	switch {
	case len(f.Table) > longestTable:
		return f, fmt.Errorf("sqllock: Options.Table has %d bytes: at most %d are allowed: %w", len(f.Table), longestTable, driver.ErrInvalid)
	case strings.ContainsRune(f.Table, 0):
		return f, fmt.Errorf("sqllock: Options.Table has a NUL byte: choose another name: %w", driver.ErrInvalid)
	case strings.HasPrefix(strings.ToLower(f.Table), "sqlite_"):
		return f, fmt.Errorf("sqllock: Options.Table begins with sqlite_, which SQLite keeps for itself: choose another name: %w", driver.ErrInvalid)
	}
	return f, nil
}
