package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// Options change how a Driver uses its store. The zero value, like nil, is the default.
type Options struct {
	// Prefix is put before every name: a namespace, at most 1024 bytes. By default there is none, so that another client
	// sees exactly the name that pawl was given.
	Prefix string

	// Fenced takes the tokens of mutexes (Exclusive and Fair) from the counter of Redisson's fenced lock, one for each
	// hold, so that both clients number their holds together. By default pawl numbers for itself. All clients of a name
	// must agree on it.
	Fenced bool

	// Replicas is how many replicas must have got a hold, or its renewal, before that counts: WAIT, on the connection that
	// asked. They have a tenth of the TTL for it, at least 50 ms and at most a second. A hold that fewer have got is given
	// back, and the error matches driver.ErrNotDone; a renewal that fewer have got is no renewal.
	//
	// It buys this: a hold outlives a fail-over to any replica that confirmed it. So it must be as many as there are
	// replicas, or the one that confirmed must be the one that is promoted; Sentinel and Cluster prefer the replica that
	// has got most, among those they can reach. It does not buy consensus: a replica has confirmed what is in its memory,
	// and may itself restart empty; one that cannot be reached may keep a quorum of Sentinels from the right choice; and an
	// old primary that is cut off still takes requests, though it confirms none (also set min-replicas-to-write there).
	// Each acquisition costs one more round trip, and requests are not batched. Without enough replicas nothing is granted.
	// Default 0: none, so that a fail-over may lose what it confirmed last.
	Replicas int

	// NoMessages and NoScripts say that the server, or a proxy in between, has no SUBSCRIBE and PUBLISH or no EVALSHA and
	// EVAL. The driver notices by itself when they are refused; a proxy that just closes the connection needs the option.
	// See Mode for how it works then.
	NoMessages, NoScripts bool

	// Logger is told once when the server turns out to allow no messages or no scripts. Default slog.Default().
	Logger *slog.Logger
}

// Driver keeps locks on a Redis server, in the layout of Redisson. It is safe for concurrent use.
type Driver struct {
	redis  wire.Client
	client rueidis.Client // nil: it is of another library
	own    bool           // Open made the client
	stop   func()         // ends what Open's client is dialing
	bad    error          // a bad option, reported by every call
	opts   Options
	lanes  *lanes
	ear    *ear
	people *people
	modes  *modes
	poller *poller
	speaks sync.Once
	busy   busy

	once     sync.Once
	life     context.Context // until Close begins
	end      func()
	watchers sync.WaitGroup
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Watcher   = (*Driver)(nil)
	_ driver.Attacher  = (*Driver)(nil)
	_ driver.Raiser    = (*Driver)(nil)
	_ driver.Joiner    = (*Driver)(nil)
)

// New makes a driver over a client, which stays the caller's: Close leaves it as it is. New does no I/O; a bad option is
// reported by the first call. The driver uses connections of its own from the client's pool for blocking commands: at most
// five for requests, and one to listen as soon as something waits. Over a Cluster, requests share the client's connections;
// over Sentinels, a goroutine looks ten times a second whether the client has turned to another primary, until Close.
//
// The client should not retry (ClientOption.DisableRetry), and its ConnWriteTimeout bounds how long a server that does not
// answer is waited for.
func New(client rueidis.Client, opts *Options) *Driver {
	if client == nil {
		return Over(nil, fmt.Errorf("redislock: the client is nil: %w", driver.ErrInvalid), opts)
	}
	return overRueidis(client, dedicate(client), opts)
}

func overRueidis(client rueidis.Client, dedicate func() dedicated, opts *Options) *Driver {
	d := Over(&rueidisClient{client, dedicate}, nil, opts)
	d.client = client
	return d
}

// Over is New for another library than rueidis; bad, if not nil, is what is wrong with the client. It is for modules of this
// tree, such as goredis, since the interface is internal.
func Over(client wire.Client, bad error, opts *Options) *Driver {
	d := &Driver{redis: client, bad: bad, modes: newModes(&Options{})}
	if opts != nil {
		d.opts = *opts
	}
	switch {
	case bad != nil:
		return d
	case d.opts.Replicas < 0 || d.opts.Replicas > 1000:
		d.bad = fmt.Errorf("redislock: Options.Replicas is %d: %w", d.opts.Replicas, driver.ErrInvalid)
	case len(d.opts.Prefix) > 1024:
		d.bad = fmt.Errorf("redislock: Options.Prefix has %d bytes, at most 1024 are allowed: %w", len(d.opts.Prefix), driver.ErrInvalid)
	}
	d.life, d.end = context.WithCancel(context.Background())
	d.modes = newModes(&d.opts)
	d.lanes = newLanes(client, d.modes)
	d.ear = newEar(client, d.modes)
	d.poller = newPoller(d)
	d.people = newPeople(d.lanes)
	d.watchers.Go(d.follow)
	return d
}

// Close stops what the driver started, and the client if Open made it. It waits for a request that is under way, which it
// cuts short where it can.
func (d *Driver) Close() error {
	d.once.Do(func() {
		if d.lanes == nil {
			return
		}
		d.end()
		if d.own {
			d.stop()
		}
		d.watchers.Wait()
		d.poller.close()
		d.ear.close()
		d.lanes.close()
		if d.own {
			d.redis.Close()
		}
	})
	return nil
}

// Enter makes a place. It does no I/O.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if d.lanes.isClosed() {
		return nil, errClosed
	}
	if err := d.check(r.Hold); err != nil {
		return nil, err
	}
	if why := d.modes.get().NoScripts; why != nil && r.Kind != driver.Exclusive {
		return nil, errNoScripts(why)
	}
	switch {
	case r.Kind == driver.Permits && (r.Permits < 1 || r.Permits > r.Limit):
		return nil, invalid("%d of %d permits can never be had", r.Permits, r.Limit)
	case r.Kind != driver.Permits && r.Permits != 1:
		return nil, invalid("a hold of kind %s has 1 permit, not %d", r.Kind, r.Permits)
	case r.TTL < time.Millisecond:
		return nil, invalid("a TTL is at least a millisecond, not %v", r.TTL)
	case r.Notify == nil:
		return nil, invalid("a request needs a Notify")
	}
	return newPlace(d, r), nil
}

// check refuses what cannot be in this store.
func (d *Driver) check(h driver.Hold) error {
	switch {
	case h.Kind < driver.Exclusive || h.Kind > driver.Once:
		return fmt.Errorf("redislock: kind %d: %w", h.Kind, errors.ErrUnsupported)
	case len(h.Name) < 1 || len(h.Name) > 4096:
		return invalid("a name has 1 to 4096 bytes, not %d", len(h.Name))
	case len(h.ID) < 1 || len(h.ID) > 256 || strings.ContainsAny(h.ID, " *\r\n"):
		return invalid("a hold's ID is \"<uuid>:<number>\", not %q", h.ID)
	}
	return checkName(d.opts.Prefix+h.Name, d.lanes.cluster)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("redislock: %w: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}

func (d *Driver) keys(name string) keys { return keysOf(d.opts.Prefix + name) }

// counter is the key that Redisson's fenced lock counts with, if it is to be shared.
func (d *Driver) counter(k keys, kind driver.Kind) []string {
	if d.opts.Fenced && (kind == driver.Exclusive || kind == driver.Fair) {
		return []string{k.counter()}
	}
	return nil
}

// Release ends a hold.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if d.bad != nil {
		return d.bad
	}
	if err := d.check(h); err != nil {
		return err
	}
	d.ear.release(h.ID)
	e := ending{hold: h, keep: end.Keep, result: string(end.Value)}
	e.last = end.Last
	if e.last == 0 {
		e.last = h.Token
	}
	if h.Token == 0 {
		e.refuse = h.TTL + late // its request may still be on the way
	}
	there, err := d.finish(ctx, e)
	if err == nil && !there {
		err = driver.ErrNotHeld
	}
	return err
}

// late is how much longer than its TTL a request may be on its way: as long as a connection that does not answer is kept.
const late = 2 * maxLimit

// ending is the end of a hold or of a place.
type ending struct {
	hold   driver.Hold
	last   int64         // the last token used
	keep   time.Duration // how long the name stays taken
	result string        // of a Once
	leave  bool          // also leave the line
	begun  bool          // the hold was ended, but nobody was let in yet
	refuse time.Duration // how long to refuse requests of this ID that come later
}

// finish carries out an ending. It answers whether there was a hold.
func (d *Driver) finish(ctx context.Context, e ending) (bool, error) {
	h, k := e.hold, d.keys(e.hold.Name)
	if d.opts.Fenced && h.Kind.Family() == driver.Exclusive {
		e.last = h.Token // the counter is Redisson's
	}
	if !d.modes.scripts() {
		return d.finishByTransaction(ctx, e)
	}
	var r request
	var u *unlocking
	if h.Kind == driver.Exclusive && h.Token != 0 && e.last == h.Token && e.keep <= 0 && !e.leave && !d.lanes.cluster && !d.busy.lately(k.main) {
		u = unlockings.Get().(*unlocking)
		u.d, u.k, u.e = d, k, e
		u.quick = quick{script: unlocksScript, keys: k.toUnlock(), nkeys: 3, args: [2]string{h.ID, number(h.Token)}, nargs: 2, then: u}
		r.quick = &u.quick
	} else {
		r = e.request(k)
	}
	msg, err := d.lanes.run(ctx, max(h.TTL, minLimit), r)
	if d.without(err) {
		return d.finishByTransaction(ctx, e)
	}
	if err != nil {
		return false, err // a lane may still know u
	}
	if u != nil {
		*u = unlocking{}
		unlockings.Put(u)
	}
	n, err := msg.AsInt64()
	return n == 1, err
}

var unlockings = sync.Pool{New: func() any { return new(unlocking) }}

// unlocking is the quick end of a hold.
type unlocking struct {
	quick
	d *Driver
	k keys
	e ending
}

func (u *unlocking) whole(begun bool) request {
	u.d.busy.note(u.k.main)
	u.e.begun = begun
	return u.e.request(u.k)
}

// request ends a hold or a place, whatever goes on at its name.
func (e ending) request(k keys) request {
	h := e.hold
	how, late := "", millis(e.refuse)
	switch {
	case e.begun:
		how = "2"
	case e.leave:
		how = "1"
	}
	args := []string{h.ID, number(h.Token), number(e.last), millis(e.keep)}
	switch h.Kind {
	case driver.Read, driver.Write:
		write := ""
		if h.Kind == driver.Write {
			write = "1"
		}
		return request{
			script: unrwScript,
			keys:   []string{k.main, k.line(), k.due(), k.token(), k.held(), k.readHold(h.ID)},
			args:   append(args, k.rwChannel(), millis(grace(h.Kind)), how, late, write, k.base()),
		}
	case driver.Permits:
		names := permitNames(h.ID, max(h.Permits, 1))
		args[2] = strconv.Itoa(len(names))
		args = append(append(args, k.semChannel(), millis(grace(h.Kind)), how, late), names...)
		if e.keep > 0 {
			args = append(args, permitNames(h.ID+":kept", len(names))...)
		}
		return request{
			script: unpermitsScript,
			keys:   []string{k.main, k.set(), k.line(), k.due(), k.held(), k.permits()},
			args:   args,
		}
	case driver.Leader, driver.Once:
		return request{
			script: unlockScript,
			keys:   []string{k.lock(), k.line(), k.due(), k.token()},
			args:   append(args, k.watch(), h.Kind.String(), e.result, how, late),
		}
	}
	return request{
		script: unlockScript,
		keys:   []string{k.main, k.line(), k.due(), k.token(), k.queue(), k.queueDue()},
		args:   append(args, k.lockChannel(), h.Kind.String(), e.result, how, late),
	}
}

// grace is how long a place that was called has to come before the next one may.
func grace(k driver.Kind) time.Duration {
	if k == driver.Leader {
		return time.Second
	}
	return 30 * time.Millisecond
}

// millis is a duration for a script, rounded up; "" is none.
func millis(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// number is a token for a script; "" is none.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Raise lets later tokens begin above token.
func (d *Driver) Raise(ctx context.Context, h driver.Hold, token int64) error {
	if d.bad != nil {
		return d.bad
	}
	if err := d.check(h); err != nil {
		return err
	}
	if token < 1 {
		return invalid("a token is above 0, not %d", token)
	}
	k := d.keys(h.Name)
	keys, field, what := []string{k.main, k.token()}, h.ID, "hash"
	switch h.Kind {
	case driver.Leader, driver.Once:
		keys[0] = k.lock()
	case driver.Read:
		keys, what = append(keys, k.readHold(h.ID)), "read"
	case driver.Write:
		field += ":write"
	case driver.Permits:
		keys[0], field, what = k.set(), permitNames(h.ID, 1)[0], "permits"
	default:
		if c := d.counter(k, h.Kind); c != nil {
			keys, what = append(keys, c...), "fenced"
		}
	}
	msg, err := d.lanes.run(ctx, max(h.TTL, minLimit), request{script: raiseScript, keys: keys, args: []string{field, number(token), what}})
	if err != nil {
		return err
	}
	if n, err := msg.AsInt64(); err != nil || n != 1 {
		return errors.Join(err, driver.ErrNotHeld)
	}
	return nil
}
