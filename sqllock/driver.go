package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Driver keeps locks in a database. It is safe for concurrent use. Besides [driver.Driver] it is a [driver.Inspector], a
// [driver.Watcher], a [driver.Attacher], a [driver.Raiser] and [driver.Named].
type Driver struct {
	db       *sql.DB
	owned    bool   // Open made db
	file     string // that Open opened
	opts     Options
	dialect  *dialect
	clock    func() (moment, error)
	sections map[string]section
	process  string // names this driver in the line
	bad      error  // what was wrong with the arguments of New; every call answers it

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	queue  queue
	waker  waker
	setup  setup
	closed sync.Once

	sawBoot atomic.Bool // the database was seen in this boot
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
// with one connection is enough.
func New(db *sql.DB, dialect Dialect, opts *Options) *Driver {
	d := &Driver{db: db, process: rand.Text()}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.queue.d, d.waker.d, d.setup.d = d, d, d
	d.setup.turn = make(chan struct{}, 1)
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
	return d
}

// Store names the file, the table and the prefix. The file of a pool of the caller's is not known without asking, and left
// out.
func (d *Driver) Store() string {
	return fmt.Sprintf("sqlite %s %q %q", d.file, d.opts.Table, d.opts.Prefix)
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
		d.setup.close()
		if d.owned {
			err = d.db.Close()
		}
	})
	return err
}

// Enter makes a place without any I/O. Kinds other than [driver.Exclusive] and [driver.Fair] are errors.ErrUnsupported.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if d.ctx.Err() != nil {
		return nil, errClosed()
	}
	p := &place{d: d, r: r, name: d.stored(r.Name), turn: turnOf(r.Hold)}
	if err := check(r.Hold); err != nil {
		return nil, err
	}
	return p, nil
}

// longestName is what the contract allows, in bytes.
const longestName = 4096

func check(h driver.Hold) error {
	switch {
	case h.Kind != driver.Exclusive && h.Kind != driver.Fair:
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
func (d *Driver) stored(name string) []byte { return []byte(d.opts.Prefix + name) }

// Renew extends holds by their TTL, up to 512 of them in one transaction.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	const most = 512 // the others may write in between: a renewal takes about 10 µs
	errs := make([]error, len(hs))
	for from := 0; from < len(hs); from += most {
		part := hs[from:min(from+most, len(hs))]
		answers := make([]error, len(part))
		var patience time.Duration
		for _, h := range part {
			patience = max(patience, h.TTL)
		}
		err := d.do(ctx, "renew", patience, func(b *batch) error {
			for i, h := range part {
				ok, err := b.renew(h)
				if err != nil {
					return err
				}
				answers[i] = notHeldUnless(ok)
			}
			return nil
		})
		for i := range part {
			if err != nil { // and answers may still be written
				errs[from+i] = err
			} else {
				errs[from+i] = answers[i]
			}
		}
	}
	return errs
}

// Release ends h and calls the first in line.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	return d.do(ctx, "release", h.TTL, func(b *batch) error {
		ok, err := b.release(h, end)
		if err != nil {
			return err
		}
		return notHeldUnless(ok)
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
	var row lockRow
	err := d.do(ctx, "attach", r.TTL, func(b *batch) error {
		ok, err := b.renew(r.Hold)
		if err != nil {
			return err
		}
		if !ok {
			return driver.ErrNotHeld
		}
		row, err = b.lock(d.stored(r.Name))
		return err
	})
	if err != nil {
		return driver.Grant{}, err
	}
	g.Token, g.Span = row.token, row.span()
	return g, nil
}

// Raise makes token the largest one given out for a name.
func (d *Driver) Raise(ctx context.Context, h driver.Hold, token int64) error {
	if token > largestToken {
		return fmt.Errorf("sqllock: the token %d is too large: at most %d is allowed: %w", token, int64(largestToken), driver.ErrInvalid)
	}
	return d.do(ctx, "raise", h.TTL, func(b *batch) error {
		n, err := b.exec("raise", d.stored(h.Name), h.ID, h.Token, b.now, token)
		if err != nil {
			return err
		}
		b.reserve(token)
		return notHeldUnless(n == 1)
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
