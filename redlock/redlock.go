package redlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// DefaultMaxTTL is the largest TTL of a hold, unless Options say otherwise.
const DefaultMaxTTL = 30 * time.Second

// Options change how a quorum works. All users of one quorum should use the same MaxTTL and Durable.
type Options struct {
	// NodeTimeout bounds each request to a member. 0: a twentieth of the hold's TTL, at least 250 ms and at most 2 s. It is
	// never more than a third of the TTL.
	NodeTimeout time.Duration

	// MaxTTL is the largest TTL of a hold that any user of the quorum asks for, and so the time for which a member that
	// restarted does not vote. 0: DefaultMaxTTL. A request for more is ErrInvalid.
	MaxTTL time.Duration

	// WithoutToken saves the round trip of the write-back: every grant has token 0, so no resource can be guarded by it.
	WithoutToken bool

	// Durable says that the members keep over a restart all that they confirmed (Redis: appendfsync always), so that a
	// member that restarted may vote at once. Wrong, it lets two clients hold one name.
	Durable bool
}

func (o Options) check() string {
	switch {
	case o.NodeTimeout < 0:
		return fmt.Sprintf("a node timeout of %v", o.NodeTimeout)
	case o.MaxTTL < minTTL:
		return fmt.Sprintf("a largest TTL of %v: at least %v is needed", o.MaxTTL, minTTL)
	}
	return ""
}

const (
	minTTL  = 10 * time.Millisecond
	maxSpan = 1 << 16 // tokens of one grant
)

// drift is the part of a TTL by which the members' clocks may differ from ours, in whole milliseconds.
func drift(ttl time.Duration) time.Duration {
	return (ttl/100 + 2*time.Millisecond + time.Millisecond - 1).Truncate(time.Millisecond)
}

// Driver is a quorum over several stores. It is safe for concurrent use.
type Driver struct {
	members  []*member
	majority int
	opts     Options
	bad      error
	tokens   bool // all members can raise a token
	twins    atomic.Pointer[error]

	base   context.Context // of every request to a member; ends at the end of Close
	cancel context.CancelFunc
	quit   chan struct{} // closed when Close begins
	tasks  tasks
	hub    hub

	mu      sync.Mutex
	closed  bool
	claims  map[string]*claim // by hold ID: what was got or attached here
	sweepAt int               // sweep claims that are over when there are so many
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Watcher   = (*Driver)(nil)
	_ driver.Attacher  = (*Driver)(nil)
)

// New makes a quorum over members, an odd number of at least three independent stores, none of them twice. It owns the
// members from now on: Close closes them. It does no I/O and starts nothing. A set of members or options that cannot work
// is told by every later call, as ErrInvalid, and by Check.
func New(members []driver.Driver, opts *Options) *Driver {
	d := &Driver{majority: len(members)/2 + 1, quit: make(chan struct{}), claims: map[string]*claim{}}
	if opts != nil {
		d.opts = *opts
	}
	if d.opts.MaxTTL == 0 {
		d.opts.MaxTTL = DefaultMaxTTL
	}
	d.base, d.cancel = context.WithCancel(context.Background())
	d.hub.d = d
	d.hub.ctx, d.hub.stop = context.WithCancel(d.base)
	if bad := checkMembers(members); bad != "" {
		d.bad = fmt.Errorf("redlock: %w: %s", driver.ErrInvalid, bad)
	} else if bad := d.opts.check(); bad != "" {
		d.bad = fmt.Errorf("redlock: %w: %s", driver.ErrInvalid, bad)
	}
	d.tokens = !d.opts.WithoutToken
	for i, x := range members {
		m := newMember(i, x)
		d.members = append(d.members, m)
		d.tokens = d.tokens && m.raiser != nil
	}
	return d
}

func checkMembers(members []driver.Driver) string {
	n := len(members)
	switch {
	case n < 3:
		return fmt.Sprintf("a quorum of %d: at least 3 members are needed, since with fewer no member may fail", n)
	case n%2 == 0:
		return fmt.Sprintf("a quorum of %d members survives no more failures than one of %d: take an odd number", n, n-1)
	}
	for i, x := range members {
		if x == nil {
			return fmt.Sprintf("member %d is nil", i+1)
		}
		for j, y := range members[:i] {
			if y != nil && reflect.TypeOf(x) == reflect.TypeOf(y) && reflect.TypeOf(x).Comparable() && x == y {
				return fmt.Sprintf("members %d and %d are the same: every member must be a store of its own", j+1, i+1)
			}
		}
	}
	return ""
}

// Check says why the quorum cannot work at all, or nil. It does no I/O: that two members are one and the same store is
// only known after the first acquisition.
func (d *Driver) Check() error {
	if err := d.twins.Load(); err != nil {
		return *err
	}
	return d.bad
}

// nodeLimit bounds one request to a member about a hold of that TTL.
func (d *Driver) nodeLimit(ttl time.Duration) time.Duration {
	if ttl <= 0 { // of a hold that was only seen from outside
		ttl = d.opts.MaxTTL
	}
	limit := d.opts.NodeTimeout
	if limit == 0 {
		limit = min(max(ttl/20, 250*time.Millisecond), 2*time.Second)
	}
	return max(min(limit, ttl/3), time.Millisecond)
}

// votes is how many members must agree to a request. Two majorities share a member, which is enough where any two holds
// that conflict do so at each member. Of a semaphore of L permits, L holds may be at each member, and L+1 of them must
// not find enough members all the same: (L+1)·votes > N·L.
func (d *Driver) votes(kind driver.Kind, limit int) int {
	n := len(d.members)
	switch {
	case kind != driver.Permits:
		return d.majority
	case limit <= 0: // not known
		return n
	}
	return n*limit/(limit+1) + 1
}

var errClosed = fmt.Errorf("redlock: the driver is %w: %w", driver.ErrClosed, driver.ErrNotDone)

// ready says why nothing can be asked.
func (d *Driver) ready() error {
	if d.bad != nil {
		return d.bad
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	return nil
}

// closeGrace is how long Close lets undos and releases that are under way finish, and how long it waits for members that
// do not notice that their requests were cancelled.
const closeGrace = 500 * time.Millisecond

// Close ends what is under way, lets undos have a short time to finish, waits for them, and closes the members. It
// releases no hold. A second Close answers nil at once.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	close(d.quit)
	d.hub.stop()
	d.tasks.wait(closeGrace)
	d.cancel()
	d.tasks.wait(4 * closeGrace)
	errs := make([]error, len(d.members))
	for i, m := range d.members {
		if m.d != nil {
			errs[i] = m.wrap(m.d.Close())
		}
	}
	return errors.Join(errs...)
}

// find is what was got here under that ID and may live.
func (d *Driver) find(id string) *claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims[id]
}

// keep remembers a claim, and forgets others that ran out.
func (d *Driver) keep(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.claims) >= d.sweepAt {
		now := driver.Now()
		for id, x := range d.claims {
			if x.ranOut(now) {
				delete(d.claims, id)
			}
		}
		d.sweepAt = 2*len(d.claims) + 64
	}
	d.claims[c.r.ID] = c
}

func (d *Driver) forget(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims[c.r.ID] == c {
		delete(d.claims, c.r.ID)
	}
}

// each asks all members at once, each within limit, and hands every answer to got, one at a time, until got has enough,
// all have answered, or ctx or the driver ends. Requests that are still under way then go on.
func each[T any](ctx context.Context, d *Driver, limit time.Duration, ask func(ctx context.Context, m *member) T, got func(m *member, answer T) (enough bool)) error {
	type item struct {
		m *member
		v T
	}
	answers := make(chan item, len(d.members))
	for _, m := range d.members {
		d.tasks.run(func() {
			ctx, stop := context.WithTimeout(d.base, limit)
			defer stop()
			answers <- item{m, ask(ctx, m)}
		})
	}
	for range d.members {
		select {
		case a := <-answers:
			if got(a.m, a.v) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("redlock: %w", context.Cause(ctx))
		case <-d.quit:
			return errEnded
		}
	}
	return nil
}

// errEnded ends what is under way at Close. Unlike errClosed it does not say that nothing was done.
var errEnded = fmt.Errorf("redlock: the driver was %w meanwhile", driver.ErrClosed)
