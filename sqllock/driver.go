package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Driver keeps locks in a database. It is safe for concurrent use. Besides [driver.Driver] it is a [driver.Inspector], a
// [driver.Watcher], a [driver.Attacher], a [driver.Raiser] and [driver.Named].
type Driver struct {
	db       *sql.DB
	owned    bool   // db was not the caller's
	pool     any    // what else connections are taken from; nil: db itself
	file     string // that Open opened, or the server
	kind     Dialect
	opts     Options
	dialect  *dialect
	clock    func() (moment, error)
	sections map[string]section
	process  string // names this driver in the line
	bad      error  // what was wrong with the arguments of New; every call answers it

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	store  store
	turn   time.Duration // how long a name is kept for a waiter that was called
	queue  queue
	waker  waker
	closed sync.Once

	sessions atomic.Int32 // on PostgreSQL: whose they are
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Watcher   = (*Driver)(nil)
	_ driver.Attacher  = (*Driver)(nil)
	_ driver.Raiser    = (*Driver)(nil)
	_ driver.Named     = (*Driver)(nil)
)

// New makes a driver on the caller's own pool, which stays the caller's: it is not configured, and not closed. New does no
// I/O; what is wrong with its arguments is reported by the first call. opts may be nil. The tables must exist: see
// [Driver.CreateSchema].
//
// The driver uses at most two connections at a time, each only for the length of one short transaction or read, so a pool
// with one connection is enough. On a server, a statement that is under way when its caller's ctx ends may be given up, and
// its connection closed.
func New(db *sql.DB, dialect Dialect, opts *Options) *Driver {
	d := &Driver{db: db, kind: dialect, process: rand.Text()}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.queue.d, d.waker.d = d, d
	d.waker.kick = make(chan struct{}, 1)
	if d.opts, d.bad = opts.filled(); d.bad != nil {
		return d
	}
	if db == nil {
		d.bad = fmt.Errorf("sqllock: New was called with a nil *sql.DB: %w", driver.ErrInvalid)
		return d
	}
	if d.dialect, d.bad = dialect.inner(); d.bad != nil {
		return d
	}
	d.clock = d.dialect.clock
	d.sections = d.dialect.sections(d.opts)
	d.store, d.turn = d.dialect.store(d), d.dialect.turn
	return d
}

// store is how a kind of database keeps records.
type store interface {
	turn(q *queue)                                                             // runs what is queued
	lanes() int                                                                // how many turns may run at once
	alone(ctx context.Context, patience time.Duration, q *queue, o *op) bool   // runs a request in its caller's goroutine, or queues it again; false: it is to be queued
	see(ctx context.Context, names []string, whole bool) (*sight, error)       // reads names; whole: and who lives
	page(ctx context.Context, from, end, cursor []byte, n int) (*sight, error) // reads a range of names
	wait(places bool) (news <-chan struct{}, anew bool)                        // tells when places of this driver were called
	polls() bool                                                               // nobody tells: look again and again
	hears() bool                                                               // tells of those who come to wait for what is held here
	waiting() string                                                           // which of these, for people
	unwait()                                                                   // ends that
	where() string                                                             // for errors
	close()
}

// Store names the database, the table and the prefix. The file or server of a pool of the caller's is not known without
// asking, and left out.
func (d *Driver) Store() string {
	return fmt.Sprintf("%s %s %q %q", strings.ToLower(d.kind.String()), d.file, d.opts.Table, d.opts.Prefix)
}

// Close ends what is under way, with an error that matches [driver.ErrClosed], and waits for the goroutines of the driver.
// It releases no hold. It closes the database if [Open] opened it. It may be called twice.
func (d *Driver) Close() error {
	var err error
	d.closed.Do(func() {
		d.queue.close()
		d.cancel()
		d.queue.wg.Wait()
		d.waker.close()
		if d.store != nil {
			d.store.close()
		}
		if d.owned {
			err = d.db.Close()
		}
	})
	return err
}

// Enter makes a place without any I/O.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if d.ctx.Err() != nil {
		return nil, errClosed()
	}
	if err := check(r.Hold); err != nil {
		return nil, err
	}
	if r.Kind == driver.Permits && (r.Permits < 1 || r.Permits > r.Limit) {
		return nil, fmt.Errorf("sqllock: %d permits of a semaphore of %d: ask for at least 1 and at most all: %w", r.Permits, r.Limit, driver.ErrInvalid)
	}
	return &place{d: d, r: r, turn: d.turnOf(r.Hold)}, nil
}

// longestName is what the contract allows, in bytes.
const longestName = 4096

func check(h driver.Hold) error {
	switch {
	case h.Kind < driver.Exclusive || h.Kind > driver.Once:
		return unsupported(h.Kind)
	case h.Name == "":
		return fmt.Errorf("sqllock: the name is empty: %w", driver.ErrInvalid)
	case len(h.Name) > longestName:
		return fmt.Errorf("sqllock: the name has %d bytes, at most %d are allowed: %w", len(h.Name), longestName, driver.ErrInvalid)
	case h.ID == "":
		return fmt.Errorf("sqllock: the hold has no ID: %w", driver.ErrInvalid)
	case h.TTL < time.Millisecond:
		return fmt.Errorf("sqllock: a TTL of %v is too short: at least 1ms is needed: %w", h.TTL, driver.ErrInvalid)
	case h.TTL > longestTTL:
		return fmt.Errorf("sqllock: a TTL of %v is too long: at most %v is allowed: %w", h.TTL, longestTTL, driver.ErrInvalid)
	}
	return nil
}

// longestTTL keeps sums of times far from the end of an int64.
const longestTTL = 10 * 365 * 24 * time.Hour

// stored is the name as the database has it.
func (d *Driver) stored(name string) string {
	if name == "" {
		return "" // a request of the driver itself
	}
	return d.opts.Prefix + name
}

// Renew extends holds by their TTL, many of them in one transaction.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	ops := make([]*op, len(hs))
	patience := time.Second
	for i, h := range hs {
		patience = max(patience, h.TTL)
		ops[i] = &op{name: d.stored(h.Name), done: make(chan struct{}), run: func(b *batch, r *record) error {
			if r == nil {
				return driver.ErrNotHeld
			}
			return notHeldUnless(b.renew(r, h))
		}}
	}
	err := d.open(ctx, "renew")
	if err == nil && !d.queue.post(ops...) { // together: one by one, the first would be alone in a transaction
		err = errClosed()
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	timeout, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	over := make(chan time.Time)
	context.AfterFunc(timeout, func() { close(over) })
	for i, o := range ops {
		_, errs[i] = d.await(ctx, "renew", o, over, patience)
	}
	return errs
}

// Release ends h and calls whoever may get in.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	return d.do(ctx, "release", h.TTL, h.Name, func(b *batch, r *record) error {
		if r == nil {
			return driver.ErrNotHeld
		}
		return notHeldUnless(b.release(r, h, end))
	})
}

// Attach confirms and renews a hold that another process may have taken. Its loss is noticed by Renew only: Notify is not
// called.
func (d *Driver) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.bad != nil {
		return driver.Grant{}, d.bad
	}
	if err := check(r.Hold); err != nil {
		return driver.Grant{}, err
	}
	g := driver.Grant{Sent: driver.Now(), TTL: wholeMillis(r.TTL)}
	err := d.do(ctx, "attach", r.TTL, r.Name, func(b *batch, rec *record) error {
		if !b.renew(rec, r.Hold) {
			return driver.ErrNotHeld
		}
		h := rec.hold(r.Hold)
		g.Token, g.Span = h.Token, h.span()
		return nil
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return g, nil
}

// Raise makes token the largest one given out for a name.
func (d *Driver) Raise(ctx context.Context, h driver.Hold, token int64) error {
	if token > largestToken {
		return fmt.Errorf("sqllock: the token %d is too large: at most %d is allowed: %w", token, int64(largestToken), driver.ErrInvalid)
	}
	return d.do(ctx, "raise", h.TTL, h.Name, func(b *batch, r *record) error {
		if r == nil {
			return driver.ErrNotHeld
		}
		return notHeldUnless(b.raise(r, h, token))
	})
}

func notHeldUnless(ok bool) error {
	if ok {
		return nil
	}
	return driver.ErrNotHeld
}

func wholeMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
