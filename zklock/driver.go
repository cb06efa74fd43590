package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

// Options change how a Driver uses its store. The zero value, like nil, is the default.
type Options struct {
	// Root is the path under which the locks are: the lock "a" is the directory Root + "/a". It is made when it does not
	// exist. Default: "/". Open takes it from the URL's path instead.
	Root string

	// SessionTimeout is what Open asks the ensemble for: how long after the death of this process its locks stay taken,
	// give or take a tick. The ensemble may answer with more or less (2 to 20 of its ticks, if not configured otherwise).
	// Holds are granted for at most two thirds of it at a time. Default: 30 s. New does not use it.
	SessionTimeout time.Duration

	// ACL is given to every node that the driver creates, directories included. Default: open to the world, as Curator's.
	// With another one, zk.AuthACL(zk.PermAll) for instance, Open's URL should have credentials.
	ACL []zk.ACL

	// TLS, if not nil, makes Open talk TLS to the servers' secure ports.
	TLS *tlsConfig

	// PeerToken makes a hold's token the plain czxid of its node, as other clients of the family use it. A grant then has
	// one token, so nothing is handed off inside the process without asking the ensemble.
	PeerToken bool

	// Logger gets a warning when a stranger is seen: see Stranger. Default: slog.Default().
	Logger *slog.Logger

	// OnStranger, if not nil, is called for each Stranger that is logged, on a goroutine of its own. Close waits for it.
	OnStranger func(Stranger)
}

// Driver keeps locks in ZooKeeper, in the layout of Curator's recipes. It is safe for concurrent use.
type Driver struct {
	conn  *zk.Conn
	wire  *wire  // of a connection that Open made; nil: the caller's
	where string // the servers that Open was given
	root  string
	bad   error // a bad option, reported by every call
	opts  Options
	acl   []zk.ACL
	life  context.Context // ends with Close
	end   context.CancelCauseFunc
	hub   hub
	keep  keeper
	odd   strangers
	marks marks
	once  sync.Once
	named sync.Once // sets where, if Open did not

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup // goroutines that end with life, and that Close waits for
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Watcher   = (*Driver)(nil)
	_ driver.Named     = (*Driver)(nil)
)

// New makes a driver over a connection, which stays the caller's: Close leaves it and its session as they are. New does no
// I/O; a bad option is reported by the first call.
//
// All holds of the driver live in conn's session. The negotiated session timeout, which the client library tells to
// nobody, is read from inside the connection object.
func New(conn *zk.Conn, opts *Options) *Driver {
	d := &Driver{conn: conn}
	if opts != nil {
		d.opts = *opts
	}
	d.life, d.end = context.WithCancelCause(context.Background())
	d.hub.init(d)
	d.keep.init(d)
	d.acl = d.opts.ACL
	if len(d.acl) == 0 {
		d.acl = zk.WorldACL(zk.PermAll)
	}
	d.root, d.bad = cleanRoot(d.opts.Root)
	switch {
	case d.bad != nil:
	case conn == nil:
		d.bad = invalid("the connection is nil")
	case d.opts.SessionTimeout < 0:
		d.bad = invalid("Options.SessionTimeout is negative: %v", d.opts.SessionTimeout)
	case timeoutField < 0:
		d.bad = invalid("this version of the client library %T does not show its session timeout; use the one in zklock's go.mod", conn)
	}
	return d
}

// Close stops what the driver started.
//
// A driver made by New leaves the caller's connection alone. Since its session lives on, what nobody released would stay
// taken for as long as that: so the driver goes on in the background until the last TTL is over, deletes each node at its
// time, and ends then.
//
// A driver made by Open ends its connection. If nothing is held, it also ends the session. If something is, it does not,
// so that Close releases nothing: the server finds out after the session timeout.
func (d *Driver) Close() error {
	d.once.Do(func() {
		d.mu.Lock()
		d.closed = true
		d.mu.Unlock()
		d.end(errClosed)
		if d.wire != nil {
			d.wire.close(d.conn, d.keep.empty())
			d.keep.quit()
		}
		d.keep.closed()
		d.tasks.Wait()
	})
	return nil
}

// Store names the servers that Open was given, in order, and the root. Processes that were given different servers of one
// ensemble name it differently. A driver made by New knows only the server that the connection has when Store is called first:
// use Open where locks of several ensembles are taken together.
func (d *Driver) Store() string {
	if d.bad != nil {
		return "zookeeper"
	}
	d.named.Do(func() {
		if d.where == "" {
			d.where = d.conn.Server()
		}
	})
	return "zookeeper " + d.where + " " + d.root + "/"
}

// spawn runs f, which ends with life, unless the driver is closed.
func (d *Driver) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.tasks.Go(f)
	}
	return !d.closed
}

// Enter makes a place. It does no I/O.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if d.life.Err() != nil {
		return nil, errClosed
	}
	if err := check(r.Hold); err != nil {
		return nil, err
	}
	switch {
	case r.Kind == driver.Permits && (r.Permits < 1 || r.Permits > r.Limit):
		return nil, invalid("%d of %d permits can never be had", r.Permits, r.Limit)
	case r.Kind == driver.Permits && r.Permits > maxWeight:
		return nil, invalid("a hold has at most %d permits, not %d: each is a node", maxWeight, r.Permits)
	case r.Kind == driver.Permits && r.Permits*(len(d.dir(r.Name))+128) > maxBytes:
		return nil, invalid("%d permits of a name of %d bytes are too much for one transaction", r.Permits, len(r.Name))
	case r.Kind != driver.Permits && r.Permits != 1:
		return nil, invalid("a hold of kind %s has 1 permit, not %d", r.Kind, r.Permits)
	case r.TTL < time.Millisecond:
		return nil, invalid("a TTL is at least a millisecond, not %v", r.TTL)
	case len(r.Value) > maxValue:
		return nil, invalid("a leader's value has at most %d bytes, not %d", maxValue, len(r.Value))
	case r.Notify == nil:
		return nil, invalid("a request needs a Notify")
	}
	if r.Kind == driver.Permits {
		return newPermitsPlace(d, r), nil
	}
	return newPlace(d, r), nil
}

const (
	maxWeight = 1000
	maxValue  = 64 << 10
	maxBytes  = 512 << 10 // of paths in one transaction; servers take a megabyte
)

// check refuses what cannot be in this store.
func check(h driver.Hold) error {
	if r, _ := roleOf(h.Kind); r == none {
		return fmt.Errorf("zklock: kind %s: %w", h.Kind, errors.ErrUnsupported)
	}
	if len(h.Name) < 1 || len(h.Name) > 4096 {
		return invalid("a name has 1 to 4096 bytes, not %d", len(h.Name))
	}
	return checkID(h.ID)
}

// dir is the directory of a lock.
func (d *Driver) dir(name string) string { return d.root + "/" + escape(name) }

// tokenShift leaves the low bits of a token to number the hand-offs of one grant.
const tokenShift = 8

// token is the first token of the hold whose node the transaction czxid made, and how many it has.
func (d *Driver) token(czxid int64, span int) (int64, int) {
	if d.opts.PeerToken {
		return czxid, 1
	}
	return czxid << tokenShift, min(span, 1<<tokenShift)
}

// bound is a context for requests that serve one call: it ends with ctx, after limit, and when the driver is closed.
func (d *Driver) bound(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("zookeeper: no answer within %v: %w", limit, context.DeadlineExceeded))
	})
	stop := context.AfterFunc(d.life, func() { cancel(errClosed) })
	return ctx, func() {
		timer.Stop()
		stop()
		cancel(nil)
	}
}
