// Package row keeps mutexes in tables that belong to others: one row a name, with a holder and a time until which it holds.
// Packages shedlock and plaintable say what their table looks like, and whose clock counts; everything else is here.
//
// Every step reads the row first, without any lock, and then changes it on condition that it is still the same. All times
// that are written come from that reading, so a request that arrives late cannot hold for longer than it was asked to.
//
// A row is taken in a transaction of several statements, so of an attempt without an answer only the COMMIT can be under
// way, and while it is, the server keeps the row locked. [place.Leave] waits for that lock, and then knows.
package row

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/location"
)

// Layout is what a table looks like and how its users treat it.
type Layout struct {
	Package string // in errors
	Table   string // "schema.table" names a schema

	Key, By, Until string
	At             string // when it was taken; "": there is no such column

	Stays  bool   // a free row stays, with a time that has passed; else it is deleted
	Millis bool   // SQLite: times are whole numbers of milliseconds; else texts
	Prefix string // of every name
	Tokens string // the table of the numbers; "": no tokens
	Clock  Clock
	Schema []string // the statements that create the tables
}

// Clock is whose clock the users of a table have agreed on, and in which zone they write it down.
type Clock struct {
	Zone  *time.Location // the client's clock, in this zone; nil: the database's
	Local bool           // the database's clock in its session's zone; else in UTC
}

// Driver keeps mutexes in one table. It is safe for concurrent use.
type Driver struct {
	db    *sql.DB
	owned bool
	where string
	kind  sqllock.Dialect
	lay   Layout
	wire  wire
	bad   error // what was wrong with the arguments; every call answers it

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	poll   poller
	closed sync.Once

	mu    sync.Mutex
	table *table    // nil: not looked at yet
	sweep time.Time // when to look for the dead again
	shut  bool      // nothing is started any more
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Attacher  = (*Driver)(nil)
	_ driver.Named     = (*Driver)(nil)
)

// New makes a driver on the caller's own pool. It does no I/O.
func New(db *sql.DB, kind sqllock.Dialect, lay Layout) *Driver {
	d := &Driver{db: db, kind: kind, lay: lay}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.poll.d = d
	d.poll.kick = make(chan struct{}, 1)
	d.wire = wires[kind]
	switch {
	case db == nil:
		d.bad = d.invalid("New was called with a nil *sql.DB")
	case d.wire == nil:
		d.bad = d.invalid("%v is not supported: use sqllock.SQLite, sqllock.PostgreSQL or sqllock.MySQL", kind)
	default:
		for what, name := range map[string]string{"table": lay.Table, "key": lay.Key, "holder": lay.By, "time": lay.Until, "time of taking": lay.At, "table of tokens": lay.Tokens} {
			if err := identifier(name); err != nil {
				d.bad = d.invalid("the name of the %s %v", what, err)
			}
		}
	}
	return d
}

func identifier(name string) error {
	switch {
	case len(name) > 128:
		return fmt.Errorf("has %d bytes: at most 128 are allowed", len(name))
	case strings.ContainsRune(name, 0) || !utf8.ValidString(name):
		return errors.New("has a NUL byte or is not UTF-8")
	}
	return nil
}

// Open makes a driver with a pool of its own, and looks at the table. An SQLite file that is not there has no table either,
// and is not made.
func Open(ctx context.Context, url string, layout func(sqllock.Dialect) Layout) (*Driver, error) {
	db, kind, where, err := location.Open(url, "mode=rw&_txlock=immediate&_busy_timeout=0&_error_rc=1")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", layout(0).Package, err)
	}
	dialect := sqllock.Dialect(kind)
	d := New(db, dialect, layout(dialect))
	d.owned, d.where = true, where
	if err := d.Check(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Driver) invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", d.lay.Package, fmt.Sprintf(format, args...), driver.ErrInvalid)
}

// Store names the database, the table and the prefix.
func (d *Driver) Store() string {
	return fmt.Sprintf("%s %s %s %q %q", strings.ToLower(d.kind.String()), d.where, d.lay.Package, d.lay.Table, d.lay.Prefix)
}

// Close ends what is under way and waits for the goroutines of the driver. It releases no hold.
func (d *Driver) Close() error {
	var err error
	d.closed.Do(func() {
		d.mu.Lock()
		d.shut = true
		d.mu.Unlock()
		d.cancel()
		d.wg.Wait()
		if d.owned {
			err = d.db.Close()
		}
	})
	return err
}

// start runs f in the background, unless the driver is closed.
func (d *Driver) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.wg.Go(f)
	}
	return !d.shut
}

// bound is ctx for one request: an answer that takes a TTL is worth nothing.
func (d *Driver) bound(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, min(max(ttl, time.Second), longestTTL))
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// longestTTL keeps every time within what the databases can store.
const longestTTL = 10 * 365 * 24 * time.Hour

// The ID of a hold is in the row, followed by its token and by who has it, for people:
//
//	1f0c2b9e-7c1d-4f6a-9a57-0d2f8d3c1b11:7#1764531000000000 orders@web-3
//
// A name that is only kept has the ID behind "kept/", so that nobody renews or releases it. Whatever else is there is another
// client's, and is as a whole what names its hold.
var ours = regexp.MustCompile(`^((?:kept/)?` + idForm + `)(?:#([0-9]{1,19}))?(?: (.*))?$`)

const (
	idForm = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]{1,19}`
	kept   = "kept/"
)

var isID = regexp.MustCompile(`^` + idForm + `$`)

func parse(by string) (id string, token int64, who driver.Holder, own bool) {
	m := ours.FindStringSubmatch(by)
	if m == nil {
		return by, 0, driver.Holder{Label: by}, false
	}
	token, _ = strconv.ParseInt(m[2], 10, 64)
	return m[1], token, driver.Holder{Label: m[3]}, true
}

// compose is what is stored of a hold, in at most n characters of ASCII.
func compose(id string, token int64, who driver.Holder, n int) (string, error) {
	s := id
	if token != 0 {
		s += "#" + strconv.FormatInt(token, 10)
	}
	if need := len(kept) + len(s); n < need {
		return "", fmt.Errorf("the column of the holder takes %d characters, and %d are needed", n, need)
	}
	label := who.Label
	if label == "" {
		label = who.Host
	}
	label = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, label))
	if room := n - len(kept) - len(s) - 1; label != "" && room > 0 {
		s += " " + strings.TrimSpace(label[:min(len(label), room)])
	}
	return s, nil
}

// line is one row as read.
type line struct {
	key, by   string
	until, at int64 // microseconds of the wall clock that the table's users have agreed on
}

func (l *line) heldAt(now int64) bool { return l != nil && l.until > now }

// is reports whether the row is what h is named in.
func (l *line) is(h driver.Hold) bool {
	id, token, _, _ := parse(l.by)
	return id == h.ID && (h.Token == 0 || h.Token == token)
}

func (l *line) shown(name string, now int64) driver.HeldBy {
	id, token, who, _ := parse(l.by)
	by := driver.HeldBy{
		Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: id, Token: token, Permits: 1},
		Who:  who, Remaining: left(l.until, now),
	}
	if l.at != 0 && l.at <= now {
		by.Since = time.Now().Add(-time.Duration(now-l.at) * time.Microsecond)
	}
	return by
}

// left is the time until an end; a row whose time is NULL never ends.
func left(until, now int64) time.Duration {
	if until == never {
		return -1
	}
	return time.Duration(max(until-now, 0)) * time.Microsecond
}

const never = 1<<63 - 1

// sight is some rows, and the time at which they were read.
type sight struct {
	now   int64
	rows  map[string]*line // by key, exact bytes
	order []string         // as read
	like  *line            // a row that the table's collation takes for one of those asked for
}

func (d *Driver) stored(name string) string { return d.lay.Prefix + name }

func (d *Driver) check(h driver.Hold) error {
	switch {
	case d.bad != nil:
		return d.bad
	case h.Kind != driver.Exclusive:
		return fmt.Errorf("%s: this table carries mutexes only, no lock of the kind %q: %w", d.lay.Package, h.Kind.String(), errors.ErrUnsupported)
	case h.Name == "":
		return d.invalid("the name is empty")
	case len(h.Name) > 4096:
		return d.invalid("the name has %d bytes, at most 4096 are allowed", len(h.Name))
	case h.ID == "":
		return d.invalid("the hold has no ID")
	}
	return nil
}

// Enter makes a place without any I/O.
func (d *Driver) Enter(_ context.Context, r driver.Request) (driver.Place, error) {
	if err := d.check(r.Hold); err != nil {
		return nil, err
	}
	switch {
	case d.ctx.Err() != nil:
		return nil, d.errClosed()
	case !isID.MatchString(r.ID):
		return nil, d.invalid("a hold's ID is \"<uuid>:<number>\", not %q", r.ID)
	case r.TTL < time.Millisecond || r.TTL > longestTTL:
		return nil, d.invalid("a TTL of %v: at least 1ms and at most %v", r.TTL, longestTTL)
	case r.Permits > 1:
		return nil, d.invalid("a mutex has one permit, not %d", r.Permits)
	}
	return &place{d: d, r: r}, nil
}

// Release ends a hold: its row is freed, or deleted, as the table's users do it. end.Keep leaves it taken.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if err := d.check(h); err != nil {
		return err
	}
	ctx, done := d.bound(ctx, max(h.TTL, 5*time.Second))
	defer done()
	return d.retry(ctx, "release", func() error {
		t, err := d.look(ctx)
		if err != nil {
			return err
		}
		seen, err := d.read(ctx, t, d.stored(h.Name))
		if err != nil {
			return err
		}
		l := seen.rows[d.stored(h.Name)]
		if !l.heldAt(seen.now) || !l.is(h) {
			return driver.ErrNotHeld
		}
		s := d.statement()
		switch by := l.by; {
		case end.Keep > 0:
			if _, _, _, own := parse(by); own {
				by = cut(kept+strings.TrimPrefix(by, kept), t.byChars)
			}
			d.update(s, t, l, line{by: by, until: t.ceil(seen.now + min(end.Keep, longestTTL).Microseconds())}, false)
		case d.lay.Stays:
			d.update(s, t, l, line{by: by, until: t.floor(seen.now)}, false)
		default:
			d.remove(s, t, l)
		}
		return one(s.exec(ctx, d.db))
	})
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// errRace says that somebody else changed the row in the meantime. Nothing was done.
var errRace = errors.New("others change the same row all the time")

// one wants exactly one row to have been changed.
func one(n int64, err error) error {
	if err == nil && n != 1 {
		return errRace
	}
	return err
}

// Renew extends holds, all of them in one transaction. A row that somebody else has locked is left out, so that it delays no
// other, and answers "try again".
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	todo := make([]int, 0, len(hs))
	var ttl time.Duration
	for i, h := range hs {
		if errs[i] = d.check(h); errs[i] == nil {
			todo = append(todo, i)
			ttl = max(ttl, h.TTL)
		}
	}
	ctx, done := d.bound(ctx, ttl)
	defer done()
	for len(todo) > 0 {
		n := min(len(todo), largestBatch)
		if err := d.retry(ctx, "renew", func() error { return d.renew(ctx, hs, errs, todo[:n]) }); err != nil {
			for _, i := range todo[:n] {
				errs[i] = err
			}
		}
		todo = todo[n:]
	}
	return errs
}

const largestBatch = 250

func (d *Driver) renew(ctx context.Context, hs []driver.Hold, errs []error, todo []int) error {
	t, err := d.look(ctx)
	if err != nil {
		return err
	}
	keys := make([]string, len(todo))
	for n, i := range todo {
		keys[n] = d.stored(hs[i].Name)
	}
	var missing []int
	err = d.transact(ctx, func(tx *sql.Conn) error {
		missing = nil
		seen, err := d.readIn(ctx, tx, t, d.wire.skipLocked(), keys...)
		if err != nil {
			return err
		}
		longer := make(map[int64][]string) // by the new end
		for _, i := range todo {
			h, key := hs[i], d.stored(hs[i].Name)
			l := seen.rows[key]
			errs[i] = nil
			switch want := t.ceil(seen.now + min(h.TTL, longestTTL).Microseconds()); {
			case l == nil:
				missing = append(missing, i)
			case !l.heldAt(seen.now) || !l.is(h):
				errs[i] = driver.ErrNotHeld
			case l.until < want:
				longer[want] = append(longer[want], key)
			}
		}
		for until, keys := range longer {
			s := d.statement()
			d.extend(s, t, keys, until)
			if _, err := s.exec(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	// These rows are not there, or somebody has locked them.
	keys = keys[:0]
	for _, i := range missing {
		keys = append(keys, d.stored(hs[i].Name))
	}
	seen, err := d.read(ctx, t, keys...)
	if err != nil {
		return err
	}
	for _, i := range missing {
		if l := seen.rows[d.stored(hs[i].Name)]; l.heldAt(seen.now) && l.is(hs[i]) {
			errs[i] = d.wrap("renew", errLocked)
		} else {
			errs[i] = driver.ErrNotHeld
		}
	}
	return nil
}

var errLocked = errors.New("somebody else keeps the row locked in a transaction")

// Attach confirms and renews a hold that another process may have taken. Its loss is noticed by Renew only.
func (d *Driver) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g := driver.Grant{Sent: driver.Now(), TTL: r.TTL, Span: 1}
	if err := d.check(r.Hold); err != nil {
		return g, err
	}
	if err := d.Renew(ctx, []driver.Hold{r.Hold})[0]; err != nil {
		return driver.Grant{}, err
	}
	bounded, done := d.bound(ctx, r.TTL)
	defer done()
	err := d.retry(bounded, "attach", func() error {
		t, err := d.look(bounded)
		if err != nil {
			return err
		}
		seen, err := d.read(bounded, t, d.stored(r.Name))
		if err != nil {
			return err
		}
		l := seen.rows[d.stored(r.Name)]
		if !l.heldAt(seen.now) || !l.is(r.Hold) {
			return driver.ErrNotHeld
		}
		_, g.Token, _, _ = parse(l.by)
		return nil
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return g, nil
}
