package row

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/sqllock"
)

// table is what the driver needs to know of the table's columns.
type table struct {
	d                 *Driver
	keyChars, byChars int
	step              int64  // the microseconds that a time is rounded to
	zoned             bool   // PostgreSQL: times are instants, not readings of a wall clock
	widest            int    // bytes of a character that the key can store
	collation         string // of the key
	index             string // of the key, in MySQL
}

// column is a column of it.
type column struct {
	name     string
	kind     string // in words of the database
	class    class
	chars    int   // of a text; 0: no limit
	step     int64 // of a time
	optional bool  // it may be left out
	unique   bool  // no two rows have the same
}

type class uint8

const (
	other class = iota
	text
	instant
)

// noLimit is for texts of any length.
const noLimit = 1 << 20

// look looks at the table, once.
func (d *Driver) look(ctx context.Context) (*table, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	d.mu.Lock()
	t := d.table
	d.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, columns, err := d.wire.columns(ctx, d)
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 { // it is missing, or hidden: the server knows which
		s := d.statement()
		s.add("SELECT 1 FROM %s WHERE 1 = 0", d.name(d.lay.Table))
		rows, err := d.db.QueryContext(ctx, s.sql.String())
		if err == nil {
			rows.Close()
			err = fmt.Errorf("its columns cannot be seen: this user lacks the right to SELECT from it")
		}
		return nil, err
	}
	t.d = d
	var wrong []string
	find := func(name string, want class) *column {
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
		if i < 0 {
			i = slices.IndexFunc(columns, func(c column) bool { return d.wire.quote("") != `""` && strings.EqualFold(c.name, name) })
		}
		switch {
		case i < 0:
			wrong = append(wrong, "column "+name+" is missing")
			return &column{}
		case columns[i].class != want:
			wrong = append(wrong, fmt.Sprintf("column %s is %s, and should be %s", name, columns[i].kind, map[class]string{text: "a text such as VARCHAR", instant: "a time such as TIMESTAMP"}[want]))
		}
		columns[i].optional = true // we fill it in
		return &columns[i]
	}
	key, by, until := find(d.lay.Key, text), find(d.lay.By, text), find(d.lay.Until, instant)
	if d.lay.At != "" {
		find(d.lay.At, instant)
	}
	if len(wrong) == 0 && !key.unique {
		wrong = append(wrong, "column "+d.lay.Key+" is neither the primary key nor unique, so that two could hold one name")
	}
	for _, c := range columns {
		if !c.optional {
			wrong = append(wrong, "column "+c.name+" has no default and may not be NULL, and pawl does not know it")
		}
	}
	if len(wrong) > 0 {
		return nil, d.invalid("the table %s in %v does not fit: %s", d.lay.Table, d.kind, strings.Join(wrong, "; "))
	}
	t.keyChars, t.byChars, t.step = key.chars, by.chars, max(until.step, 1)
	if t.keyChars == 0 {
		t.keyChars = noLimit
	}
	if t.byChars == 0 {
		t.byChars = 255
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table = t
	return t, nil
}

// Check looks at the table: whether it is there, fits, and may be read.
func (d *Driver) Check(ctx context.Context) error {
	if d.bad != nil {
		return d.bad
	}
	return d.retry(ctx, "look at", func() error {
		t, err := d.look(ctx)
		if err == nil {
			_, err = d.read(ctx, t, "")
		}
		return err
	})
}

// CreateSchema creates the tables that do not exist yet, and checks what is there.
func (d *Driver) CreateSchema(ctx context.Context) error {
	if d.bad != nil {
		return d.bad
	}
	for _, statement := range d.lay.Schema {
		err := d.retry(ctx, "create", func() error {
			_, err := d.db.ExecContext(ctx, statement)
			return err
		})
		if err != nil {
			return err
		}
	}
	return d.Check(ctx)
}

// Tokens is the statement that creates the table of the numbers.
func Tokens(dialect sqllock.Dialect, table string) string {
	name := "TEXT"
	if dialect == sqllock.MySQL {
		name = "VARBINARY(1020)"
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n\tname %s NOT NULL PRIMARY KEY,\n\tlast BIGINT NOT NULL\n)", Quote(dialect, table), name)
}

// Text is statements as DDL to print.
func Text(statements []string) string { return strings.Join(statements, ";\n\n") + ";\n" }

// fits says why a name cannot be stored in the key column such that it is found again and is like no other.
func (t *table) fits(name string) error {
	switch n := utf8.RuneCountInString(name); {
	case !utf8.ValidString(name):
		return errors.New("it is not UTF-8, and the table holds texts")
	case strings.ContainsRune(name, 0):
		return errors.New("it has a NUL byte, and the table holds texts")
	case n > t.keyChars:
		return fmt.Errorf("it has %d characters, and the column %s takes %d", n, t.d.lay.Key, t.keyChars)
	}
	for _, r := range name {
		if utf8.RuneLen(r) > t.widest {
			return fmt.Errorf("the column %s cannot store %q: its character set is too small", t.d.lay.Key, r)
		}
	}
	return nil
}

// ceil and floor round a time to what the column can store, so that the database does not do it in its own way.
func (t *table) ceil(us int64) int64  { return (us + t.step - 1) / t.step * t.step }
func (t *table) floor(us int64) int64 { return us / t.step * t.step }

func (t *table) time(s *statement, us int64) string {
	return t.d.wire.time(s, t, us)
}
