package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"google.golang.org/grpc"

	"github.com/pawl-lock/pawl/driver"
)

// Options change how a Driver uses its cluster. The zero value, like nil, is the default.
type Options struct {
	// Prefix is put before every name, as it is: a namespace such as "locks/", at most 1024 bytes. By default there is
	// none, so that another client sees exactly the name that pawl was given. All keys of the driver begin with it.
	Prefix string

	// PeerToken numbers mutexes (Exclusive and Fair) by the revision that etcdctl lock exports as ETCD_LOCK_REV and that
	// concurrency.Mutex has in its header, and leaders by the revision that concurrency.Election calls Rev: one token a
	// hold, without local hand-off. By default the token is the create revision of the hold's key, times 256. The two
	// have no common order, so all clients of a name must agree; a name that is in use the other way is ErrMismatch.
	PeerToken bool
}

// Driver keeps locks in an etcd cluster, with the keys of etcd's own package concurrency. It is safe for concurrent use.
type Driver struct {
	client  *clientv3.Client
	own     bool  // Open made the client
	bad     error // a bad option, reported by every call
	opts    Options
	conn    *grpc.ClientConn
	leases  pb.LeaseClient
	watches pb.WatchClient
	pulse   *pulse
	ear     *ear
	cluster atomic.Uint64   // the ID of the first cluster that answered
	life    context.Context // ends with Close; all that is sent with it requires a leader
	end     context.CancelCauseFunc
	wake    chan struct{} // capacity 1: tend has something to do
	wg      sync.WaitGroup
	notes   notes

	mu       sync.Mutex
	closed   bool
	tends    bool
	sessions map[int64]*session // by TTL in seconds
	opening  map[int64]*opening
	all      map[*session]struct{} // that are not dead
	places   map[string]*place     // by hold ID: all that have, or may have, a key in the store
	kept     map[*keep]struct{}    // names that stay taken after their hold
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Watcher   = (*Driver)(nil)
	_ driver.Named     = (*Driver)(nil)
)

// New makes a driver over a client, which stays the caller's: Close leaves it as it is. New does no I/O; a bad option is
// reported by the first call. The driver uses the client's connection and login, with one watch stream and one keepalive
// stream of its own. It does not see a KV, Lease or Watcher that the caller has put into the client, such as those of
// package namespace: use Options.Prefix. To gRPC interceptors of the client, a transaction is a slice of bytes.
func New(client *clientv3.Client, opts *Options) *Driver {
	d := &Driver{client: client, wake: make(chan struct{}, 1), sessions: map[int64]*session{}, opening: map[int64]*opening{},
		all: map[*session]struct{}{}, places: map[string]*place{}, kept: map[*keep]struct{}{}}
	d.life, d.end = context.WithCancelCause(clientv3.WithRequireLeader(context.Background()))
	if opts != nil {
		d.opts = *opts
	}
	switch {
	case client == nil || client.ActiveConnection() == nil:
		d.bad = invalid("the client is nil or was not made by clientv3.New")
		return d
	case len(d.opts.Prefix) > 1024:
		d.bad = invalid("Options.Prefix has %d bytes, at most 1024 are allowed", len(d.opts.Prefix))
	}
	d.conn = client.ActiveConnection()
	d.leases = clientv3.RetryLeaseClient(client)
	d.watches = pb.NewWatchClient(d.conn)
	d.pulse = &pulse{d: d}
	d.ear = newEar(d)
	return d
}

// Close stops what the driver started, and the client if Open made it. Sessions by which nothing lives are revoked; the
// others run out, with all that lives by them. Close waits for what is under way, which it cuts short; it takes at most
// about a second when the cluster does not answer.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	var idle []*session
	for s := range d.all {
		if len(s.places) == 0 && len(s.seats) == 0 {
			idle = append(idle, s)
		}
	}
	d.mu.Unlock()
	d.end(fmt.Errorf("etcdlock: %w", driver.ErrClosed))
	if d.pulse != nil {
		d.pulse.close()
		d.ear.close()
		var revoking sync.WaitGroup
		for _, s := range idle {
			revoking.Go(func() { d.revokeLease(s.lease) })
		}
		revoking.Wait()
	}
	d.wg.Wait()
	if d.pulse != nil {
		d.pulse.close()
	}
	if d.own {
		d.client.Close()
	}
	return nil
}

// Store names the members that the client was given, in order, and the prefix. Processes that were given different members
// of one cluster name it differently.
func (d *Driver) Store() string {
	if d.bad != nil {
		return "etcd"
	}
	var hosts []string
	for _, e := range d.client.Endpoints() {
		if _, rest, ok := strings.Cut(e, "://"); ok {
			e = rest
		}
		hosts = append(hosts, e)
	}
	slices.Sort(hosts)
	return "etcd " + strings.Join(slices.Compact(hosts), ",") + " " + d.opts.Prefix
}

// run starts f in a goroutine that Close waits for. It answers false, and does nothing, once the driver is closed.
func (d *Driver) run(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.wg.Go(f)
	return true
}

// usable answers why the driver cannot be used.
func (d *Driver) usable() error {
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

// Enter makes a place. It does no I/O.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if err := check(r.Hold); err != nil {
		return nil, err
	}
	switch {
	case r.Kind == driver.Permits && (r.Permits < 1 || r.Permits > r.Limit):
		return nil, invalid("%d of %d permits can never be had", r.Permits, r.Limit)
	case r.Kind != driver.Permits && r.Permits != 1:
		return nil, invalid("a hold of kind %s has 1 permit, not %d", r.Kind, r.Permits)
	case r.TTL < time.Millisecond:
		return nil, invalid("a TTL is at least a millisecond, not %v", r.TTL)
	case seconds(r.TTL) > maxSeconds:
		return nil, invalid("etcd has no leases of more than %d seconds", maxSeconds)
	case r.Notify == nil:
		return nil, invalid("a request needs a Notify")
	}
	return newPlace(d, r), nil
}

// check refuses what cannot be in this store.
func check(h driver.Hold) error {
	switch {
	case h.Kind < driver.Exclusive || h.Kind > driver.Once:
		return fmt.Errorf("etcdlock: kind %d: %w", h.Kind, errors.ErrUnsupported)
	case len(h.Name) < 1 || len(h.Name) > 4096:
		return invalid("a name has 1 to 4096 bytes, not %d", len(h.Name))
	case !goodID(h.ID):
		return invalid("a hold's ID is \"<uuid>:<number>\", not %q", h.ID)
	}
	return nil
}

func (d *Driver) base(name string) string { return d.opts.Prefix + name }

// maxSeconds is the longest lease that etcd grants.
const maxSeconds = 9_000_000_000

// seconds is a duration as a lease has it: rounded up, so that no hold is shorter than it was asked for.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
