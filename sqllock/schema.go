package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// layout is the version of the tables. A database with another one is refused.
const layout = 2

// field is one column of a table.
type field struct {
	name, kind string
	notNull    bool
	key        int // its place in the primary key, from 1; 0: not in it
}

// CreateSchema creates the tables that do not exist yet. It needs the right to create tables only if one is missing, may be
// called at any time and by several processes at once, and waits, until ctx ends, for whoever keeps the database locked.
// A table of the same name with other columns is an error that shows the difference. [Open] calls it.
func (d *Driver) CreateSchema(ctx context.Context) error {
	if d.bad != nil {
		return d.bad
	}
	missing := false
	err := d.retry(ctx, func() error {
		var err error
		missing, err = d.checkTables(ctx)
		return err
	})
	if err == nil && missing {
		err = d.retry(ctx, func() error {
			for statement := range strings.SplitSeq(d.sections["schema"].text, ";\n") {
				if _, err := d.db.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			_, err = d.checkTables(ctx)
		}
	}
	if err != nil {
		return d.wrap("create the tables", err)
	}
	return nil
}

// checkTables compares the tables that exist with what schema wants.
func (d *Driver) checkTables(ctx context.Context) (missing bool, err error) {
	for _, word := range []string{"lock", "process", "state"} {
		table := tables(d.opts)[word]
		have, err := d.dialect.fields(ctx, d, table)
		if err != nil {
			return false, err
		}
		if len(have) == 0 {
			missing = true
			continue
		}
		want := wanted(d.sections["schema"].text, d.dialect.quote(table))
		if diff := difference(have, want); diff != "" {
			return false, fmt.Errorf("the table %s does not fit (%s): set Options.Table to another name, or drop this table while no program uses it: %w",
				table, diff, driver.ErrInvalid)
		}
	}
	if _, file := d.store.(*fileStore); !missing && !file { // a file has its row when it is first used
		rows, err := d.ask(ctx, "SELECT one FROM "+d.dialect.quote(tables(d.opts)["state"]))
		missing = true
		err = scanAll(rows, err, func(func(...any) error) error { missing = false; return nil })
		return missing, err
	}
	return missing, nil
}

// Schema is the DDL that CreateSchema runs, for those who create tables by themselves. opts may be nil.
func Schema(dialect Dialect, opts *Options) (string, error) {
	o, err := opts.filled()
	if err != nil {
		return "", err
	}
	d, err := dialect.inner()
	if err != nil {
		return "", err
	}
	return d.sections(o)["schema"].text + "\n", nil
}

func scanFields(rows *sql.Rows, err error) (out []field, _ error) {
	err = scanAll(rows, err, func(scan func(...any) error) error {
		var f field
		err := scan(&f.name, &f.kind, &f.notNull, &f.key)
		out = append(out, f)
		return err
	})
	return out, err
}

var column = regexp.MustCompile(`(?m)^\t(\w+) +(\w+)([^,\n-]*)`)

// wanted reads the columns of a table out of the schema's text, so that they are written down once.
func wanted(schema, quoted string) []field {
	_, rest, _ := strings.Cut(schema, "CREATE TABLE IF NOT EXISTS "+quoted+" (")
	body, _, _ := strings.Cut(rest, "\n)")
	var out []field
	for _, m := range column.FindAllStringSubmatch(body, -1) {
		f := field{name: m[1], kind: m[2], notNull: strings.Contains(m[3], "NOT NULL")}
		if strings.Contains(m[3], "PRIMARY KEY") {
			f.key = 1
		}
		out = append(out, f)
	}
	return out
}

// difference says in words how the columns differ; "" if they do not.
func difference(have, want []field) string {
	var diffs []string
	for _, w := range want {
		i := slices.IndexFunc(have, func(h field) bool { return strings.EqualFold(h.name, w.name) })
		switch {
		case i < 0:
			diffs = append(diffs, "column "+w.name+" is missing")
		case !strings.EqualFold(have[i].kind, w.kind):
			diffs = append(diffs, fmt.Sprintf("column %s is %s, not %s", w.name, have[i].kind, w.kind))
		case have[i].key != w.key:
			diffs = append(diffs, "the primary key differs at column "+w.name)
		case w.notNull && !have[i].notNull && w.key == 0:
			diffs = append(diffs, "column "+w.name+" may be NULL")
		}
	}
	for _, h := range have {
		if h.notNull && !slices.ContainsFunc(want, func(w field) bool { return strings.EqualFold(h.name, w.name) }) {
			diffs = append(diffs, "column "+h.name+" is not known")
		}
	}
	return strings.Join(diffs, ", ")
}
