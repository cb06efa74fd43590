package pawl

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Client takes locks from one store. It is safe for concurrent use; a program needs one per store. The zero Client is
// not usable.
type Client struct {
	*core
	opts Options
	bad  error  // why opts cannot work; told by every acquire
	pol  policy // the part of opts that two holders must share to share a grant
}

// policy is what a store and other holders see of Options. A grant passes only between requests of equal policy.
type policy struct {
	ttl, maxHold, minHold, linger, slice time.Duration
	span                                 int
	noKeepalive                          bool
	note, holder                         string
}

// core is what all Clients made by With share.
//
// mu guards everything below it and all lines, waiters, grants and leases. It is never held across a driver call, a
// callback or a wait.
type core struct {
	d      driver.Driver
	id     string // the uuid in front of all hold ids
	host   string
	seq    atomic.Int64
	quit   chan struct{}   // closed when Close begins
	base   context.Context // of background requests; ends at the end of Close
	cancel context.CancelFunc
	events events
	tasks  tasks
	spare  sync.Pool // of waiters

	mu     sync.Mutex
	closed bool
	lines  map[lineKey]*line
	agenda agenda

	shared     context.Context // of releases
	sharedStop context.CancelFunc
	sharedAt   driver.Instant // when it was made
}

// New makes a client over d, which it owns from now on: Close closes it. It does no I/O and starts nothing; the first
// Lock does.
func New(d driver.Driver) *Client {
	host, _ := os.Hostname()
	c := &core{d: d, id: newUUID(), host: host, quit: make(chan struct{}), lines: map[lineKey]*line{}}
	c.base, c.cancel = context.WithCancel(context.Background())
	c.agenda.init()
	return c.client(Options{TTL: DefaultTTL, Span: maxSpan, Slice: defaultSlice, Holder: filepath.Base(os.Args[0]) + "@" + host})
}

var pid = os.Getpid() // a system call each time

func newUUID() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (c *core) client(o Options) *Client {
	bad := o.check()
	return &Client{core: c, opts: o, bad: bad, pol: policy{o.TTL, o.MaxHold, o.MinHold, o.Linger, o.Slice, o.Span, o.NoKeepalive, o.Note, o.Holder}}
}

// With is the same client with other defaults: same store, same queues, same re-entry, closed together. Fields of o
// that are zero stay as they are. Options that cannot work are reported by every Lock, as ErrInvalid.
func (c *Client) With(o Options) *Client { return c.client(o.over(c.opts)) }

// Mutex is the exclusive lock of that name, 1 to 4096 bytes. A newcomer may pass a waiter of another process.
func (c *Client) Mutex(name string) *Mutex {
	return &Mutex{target{c: c, kind: driver.Exclusive, name: name, permits: 1}}
}

// FairMutex is a Mutex that strictly serves in order of arrival, across processes: every waiter queues in the store. All
// users of the name must agree.
func (c *Client) FairMutex(name string) *Mutex {
	return &Mutex{target{c: c, kind: driver.Fair, name: name, permits: 1}}
}

// RWMutex is the read-write lock of that name.
func (c *Client) RWMutex(name string) *RWMutex {
	return &RWMutex{target{c: c, kind: driver.Write, name: name, permits: 1}}
}

// Semaphore lets in at most limit permits at a time. All users of the name must name the same limit (ErrMismatch).
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{target{c: c, kind: driver.Permits, name: name, permits: 1, limit: limit}}
}

func (o *Options) log() *slog.Logger { return cmp.Or(o.Logger, slog.Default()) }

// ours reports whether a hold was taken by this client.
func (c *core) ours(id string) bool { return strings.HasPrefix(id, c.id) }

// Close ends every wait with ErrClosed and the Context of every lease (with a *LostError that also matches ErrClosed),
// then waits for their Unlocks, until the last trust deadline (at most one TTL). It never frees a lock whose holder has
// not said that it stopped: such leases run out by themselves, and Close returns an error that names them. It gives back
// what lingers and closes the driver. A second Close answers nil at once.
func (c *Client) Close() error {
	var out after
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.quit)
	for _, ln := range c.lines {
		for w := ln.head; w != nil; w = w.next {
			w.fail(wrap("lock", w.t.name, ErrClosed))
			if !w.counted {
				w.counted = true
				c.tasks.begin()
			}
		}
	}
	type open struct {
		name  string
		trust driver.Instant
		over  chan struct{}
	}
	var leases []open
	for _, g := range c.agenda.all() {
		if g.leases == nil {
			if g.idle {
				c.drain(g)
			}
			continue
		}
		g.over = make(chan struct{})
		leases = append(leases, open{g.hold.Name, g.trust, g.over})
		c.lose(g, Closing, nil, &out)
	}
	c.mu.Unlock()
	out.run()

	var errs []error
	for _, o := range leases {
		t := time.NewTimer(o.trust.Until())
		select {
		case <-o.over:
		case <-t.C:
			select {
			case <-o.over: // while another one was waited for
			default:
				errs = append(errs, fmt.Errorf("pawl: close: %q was not unlocked; it runs out by itself", o.name))
			}
		}
		t.Stop()
	}
	c.tasks.wait(closeGrace)
	c.cancel()
	c.tasks.wait(closeGrace)
	c.stopTimers()
	return errors.Join(append(errs, c.d.Close())...)
}

// closeGrace bounds how long Close waits for background requests, first to finish and then to notice that they must.
const closeGrace = 2 * time.Second

// after collects what has to run once mu is unlocked.
type after []func()

func (a *after) add(f func()) { *a = append(*a, f) }

func (a after) run() {
	for _, f := range a {
		f()
	}
}

// tasks counts background goroutines. Unlike a sync.WaitGroup it may grow while somebody waits, and the wait is bounded.
type tasks struct {
	n    atomic.Int64
	mu   sync.Mutex
	idle chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (t *tasks) run(f func()) {
	t.begin()
	go func() {
		defer t.end()
		f()
	}()
}

func (t *tasks) begin() { t.n.Add(1) }

func (t *tasks) end() {
	if t.n.Add(-1) > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle != nil && t.n.Load() == 0 {
		close(t.idle)
		t.idle = nil
	}
}

func (t *tasks) wait(limit time.Duration) {
	t.mu.Lock()
	if t.n.Load() == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	tm := time.NewTimer(limit)
	defer tm.Stop()
	select {
	case <-idle:
	case <-tm.C:
	}
}
