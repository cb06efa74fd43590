package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

var (
	stringScript      = load("string")
	unstringScript    = load("unstring")
	restringScript    = load("restring")
	raiseStringScript = load("raisestring")
	showStringScript  = load("inspectstring")
)

// Plain keeps mutexes in the layout "one plain string key, set if absent, with an expiry", which it shares with redis-py,
// redsync, bsm/redislock (one key), node-redlock (one resource), redis-semaphore's mutex, Spring's RedisLockRegistry,
// ShedLock and the like: whoever computes the same key on the same server is excluded. It carries Exclusive only. It is safe
// for concurrent use. docs/redis-string.md says what each of them shares.
//
// Nobody queues in this layout, and hardly anybody tells of a release. Where the server allows CLIENT TRACKING (RESP3), it
// tells pawl's waiters of every release, deletion and expiry, whoever held the lock: on one connection, in a cluster one for
// each node concerned, which exists only while somebody waits. Elsewhere one command for all names that are waited for looks
// at them every 10 to 250 ms. [Plain.Mode] says which.
//
// Some clients (ShedLock unless told otherwise) delete or overwrite a lock that they lost long ago; the holder is told at
// its next renewal. A key without expiry counts as held.
//
// Besides the lock, a key pawl_gone:… is left for a TTL and 10 s after each release: a request of the hold that were still
// on its way is refused by it.
type Plain struct {
	d      *Driver
	out    *lookouts
	spring string
	fenced bool
}

var (
	_ driver.Driver     = (*Plain)(nil)
	_ driver.Inspector  = (*Plain)(nil)
	_ driver.Watcher    = (*Plain)(nil)
	_ driver.Attacher   = (*Plain)(nil)
	_ driver.Raiser     = (*Plain)(nil)
	_ driver.Incarnated = (*Plain)(nil)
	_ driver.Surveyed   = (*Plain)(nil)
)

// PlainOptions change how a Plain uses its store. The zero value, like nil, is the default.
type PlainOptions struct {
	// Prefix is put before every name, such as "mutex:" for redis-semaphore, or "job-lock:default:" for ShedLock.
	Prefix string

	// SpringRegistry is the registry key of a Spring RedisLockRegistry (without Prefix, if that is set too). It is put before
	// every name with a colon, and each release is told to Spring's waiters, in the way of all its versions.
	SpringRegistry string

	// Fenced gives each hold a token, counted in a key beside the lock. Only pawl's clients count there: a hold of any
	// other client has no number, so a token says nothing about the holds of others. It is for names whose holders are
	// all pawl's, or whose resource takes requests with a token only. All of pawl's clients of a name must agree on it. By
	// default tokens are 0.
	Fenced bool
}

// NewPlain is New for a Plain: the client stays the caller's.
func NewPlain(client rueidis.Client, opts *PlainOptions) *Plain {
	p, o := plainOptions(opts)
	p.begin(New(client, o))
	return p
}

// OverPlain is Over for a Plain.
func OverPlain(client wire.Client, bad error, opts *PlainOptions) *Plain {
	p, o := plainOptions(opts)
	p.begin(Over(client, bad, o))
	return p
}

// OpenPlain is Open for a Plain. The URL may say so: redis://host?layout=string.
func OpenPlain(ctx context.Context, rawURL string, opts *PlainOptions) (*Plain, error) {
	p, o := plainOptions(opts)
	d, err := openLayout(ctx, rawURL, layoutString, o)
	if err != nil {
		return nil, err
	}
	p.begin(d)
	return p, nil
}

func plainOptions(opts *PlainOptions) (*Plain, *Options) {
	p, o := &Plain{}, &Options{}
	if opts != nil {
		o.Prefix, p.fenced = opts.Prefix, opts.Fenced
		if opts.SpringRegistry != "" {
			p.spring = opts.Prefix + opts.SpringRegistry
			o.Prefix = p.spring + ":"
		}
	}
	return p, o
}

func (p *Plain) begin(d *Driver) {
	p.d, p.out = d, newLookouts(d)
}

// Close stops what NewPlain or OpenPlain started. It releases nothing.
func (p *Plain) Close() error {
	p.out.close()
	return p.d.Close()
}

func (p *Plain) check(h driver.Hold) error {
	switch {
	case p.d.bad != nil:
		return p.d.bad
	case h.Kind != driver.Exclusive:
		return fmt.Errorf("redislock: kind %s in the layout of plain strings: %w", h.Kind, errors.ErrUnsupported)
	case len(h.Name) < 1 || len(h.Name) > 4096:
		return invalid("a name has 1 to 4096 bytes, not %d", len(h.Name))
	case h.ID == "":
		return invalid("a hold has an ID")
	case ownKey(p.d.opts.Prefix + h.Name):
		return invalid("keys that begin with pawl_gone: or pawl_token: are pawl's own; choose another name or a Prefix")
	case p.d.lanes.cluster && !oneSlot(p.d.opts.Prefix+h.Name):
		return invalid("the keys of %q would be on different nodes of a Redis Cluster, because of its braces", h.Name)
	}
	return nil
}

func ownKey(key string) bool {
	return strings.HasPrefix(key, "pawl_gone:") || strings.HasPrefix(key, "pawl_token:")
}

// keys are the lock, the mark that refuses a late request of this hold, and with Fenced the tokens.
func (p *Plain) keys(h driver.Hold) []string {
	k := keysOf(p.d.opts.Prefix + h.Name)
	keys := []string{k.main, k.own("pawl_gone:") + ":" + value(h.ID)}
	if p.fenced {
		keys = append(keys, k.token())
	}
	return keys
}

// Enter makes a place. It does no I/O.
func (p *Plain) Enter(_ context.Context, r driver.Request) (driver.Place, error) {
	if err := p.check(r.Hold); err != nil {
		return nil, err
	}
	switch {
	case p.d.lanes.isClosed():
		return nil, errClosed
	case len(r.ID) > 256:
		return nil, invalid("a hold's ID is \"<uuid>:<number>\", not %q", r.ID)
	case r.Permits != 1:
		return nil, invalid("a hold of kind %s has 1 permit, not %d", r.Kind, r.Permits)
	case r.TTL < time.Millisecond:
		return nil, invalid("a TTL is at least a millisecond, not %v", r.TTL)
	case r.Notify == nil:
		return nil, invalid("a request needs a Notify")
	}
	return &plainPlace{p: p, r: r}, nil
}

type plainPlace struct {
	p *Plain
	r driver.Request

	// Only Try and Leave touch these, and they do not overlap.
	open bool // a request may be under way, or have won something
	over bool

	mu    sync.Mutex // held while Notify runs, so that it does not run after Leave has returned
	ended bool
}

// Try makes one attempt. A place that waits and was refused is told of what changed since it asked: the first look at the
// key is later.
func (x *plainPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	switch {
	case x.over:
		return driver.Grant{}, fmt.Errorf("redis: the place was left: %w", driver.ErrNotDone)
	case span < 1:
		return driver.Grant{}, invalid("a grant has at least one token, not %d", span)
	}
	if !x.p.fenced {
		span = 1
	}
	before := x.open
	x.open = true
	sent := driver.Now()
	args := []string{value(x.r.ID), millis(x.r.TTL), strconv.Itoa(span)}
	msg, err := x.p.d.lanes.run(ctx, x.r.TTL, request{script: stringScript, keys: x.p.keys(x.r.Hold), args: args})
	if err != nil {
		if isNotDone(err) {
			x.open = before
		}
		return driver.Grant{}, err
	}
	if !msg.IsArray() {
		return x.granted(msg, sent, span)
	}
	a, err := msg.ToArray()
	if err != nil || len(a) < 2 {
		return driver.Grant{}, fmt.Errorf("redis: an unknown answer: %w", err)
	}
	what, _ := a[0].ToString()
	if what == "again" { // the span that it got first is not known
		return x.granted(a[1], sent, 1)
	}
	x.open = before
	switch what {
	case "gone":
		return driver.Grant{}, fmt.Errorf("redis: this hold was given up before its request arrived: %w", driver.ErrNotDone)
	case "type":
		kind, _ := a[1].ToString()
		return driver.Grant{}, fmt.Errorf("redis key %q holds a %s, and a lock of this layout is a string: %w", x.key(), kind,
			&driver.MismatchError{Want: driver.Exclusive})
	}
	e := &driver.HeldError{Ahead: -1}
	switch left, _ := a[1].ToInt64(); {
	case left >= 0:
		e.Remaining = remaining(left)
	case left == -1:
		e.Remaining = -1
	}
	if len(a) > 2 {
		value, _ := a[2].ToString()
		e.By.Hold = driver.Hold{Kind: driver.Exclusive, Name: x.r.Name, ID: owner(value), Permits: 1}
	}
	e.By.Remaining = e.Remaining
	if x.r.Wait {
		x.p.out.add(x.key(), x)
	}
	return driver.Grant{}, e
}

func (x *plainPlace) granted(token wire.Reply, sent driver.Instant, span int) (driver.Grant, error) {
	text, err := token.ToString()
	if err != nil {
		return driver.Grant{}, fmt.Errorf("redis: %w", err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return driver.Grant{}, fmt.Errorf("redis: the token %q is not a number", text)
	}
	x.end()
	return driver.Grant{Sent: sent, TTL: x.r.TTL, Token: n, Span: span}, nil
}

func (x *plainPlace) key() string { return x.p.d.opts.Prefix + x.r.Name }

// end ends all news for the place.
func (x *plainPlace) end() {
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	if x.r.Wait {
		x.p.out.forget(x.key(), x)
	}
}

// heard reports that the name may have got free.
func (x *plainPlace) heard() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		x.r.Notify(driver.Changed)
	}
}

// Leave gives the place up, and what its request may have won.
func (x *plainPlace) Leave(ctx context.Context) error {
	x.end()
	if x.open {
		if _, err := x.p.end(ctx, x.r.Hold, 0, x.r.TTL+late); err != nil {
			return err
		}
	}
	x.open, x.over = false, true
	return nil
}

// end ends a hold, and refuses requests for it that come later for as long as refuse.
func (p *Plain) end(ctx context.Context, h driver.Hold, keep, refuse time.Duration) (bool, error) {
	keys, channels := p.keys(h), []string{"", ""}
	if p.spring != "" {
		channels = []string{p.spring + "-channel", p.spring + "-channel:" + keys[0]}
	}
	args := []string{value(h.ID), number(h.Token), millis(keep), kept(h.ID), millis(refuse), channels[0], channels[1], keys[0]}
	msg, err := p.d.lanes.run(ctx, max(h.TTL, minLimit), request{script: unstringScript, keys: keys, args: args})
	if err != nil {
		return false, err
	}
	n, err := msg.AsInt64()
	return n == 1, err
}

// Release ends a hold.
func (p *Plain) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if err := p.check(h); err != nil {
		return err
	}
	refuse := h.TTL + late
	if h.Token != 0 {
		refuse = 0 // its request was answered
	}
	there, err := p.end(ctx, h, end.Keep, refuse)
	if err == nil && !there {
		err = driver.ErrNotHeld
	}
	return err
}

// Renew extends holds, many with one request. Whose key is gone, or has another's value, has lost it: nothing is made again.
func (p *Plain) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	size := together
	if p.d.bad == nil && p.d.lanes.cluster {
		size = 1 // keys of different slots
	}
	var wg sync.WaitGroup
	for from := 0; from < len(hs); from += size {
		to := min(from+size, len(hs))
		if to == len(hs) {
			p.renew(ctx, hs[from:to], errs[from:to])
			break
		}
		wg.Go(func() { p.renew(ctx, hs[from:to], errs[from:to]) })
	}
	wg.Wait()
	return errs
}

func (p *Plain) renew(ctx context.Context, hs []driver.Hold, errs []error) {
	var keys, args []string
	var asked []int
	limit := minLimit
	for i, h := range hs {
		if errs[i] = p.check(h); errs[i] != nil {
			continue
		}
		asked = append(asked, i)
		limit = max(limit, h.TTL)
		keys = append(keys, p.d.opts.Prefix+h.Name)
		args = append(args, value(h.ID), millis(max(h.TTL, 1)))
	}
	if len(asked) == 0 {
		return
	}
	answer := ""
	msg, err := p.d.lanes.run(ctx, limit, request{script: restringScript, keys: keys, args: args})
	if err == nil {
		answer, err = msg.ToString()
	}
	if err == nil && len(answer) != len(asked) {
		err = fmt.Errorf("redis: a renewal of %d holds was answered for %d", len(asked), len(answer))
	}
	for n, i := range asked {
		switch {
		case err != nil:
			errs[i] = err
		case answer[n] != '1':
			errs[i] = driver.ErrNotHeld
		}
	}
}

// Attach takes over a hold that another process got. Nothing tells that it is lost but the next renewal.
func (p *Plain) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	switch {
	case r.Notify == nil:
		return driver.Grant{}, invalid("a request needs a Notify")
	case r.TTL < time.Millisecond:
		return driver.Grant{}, invalid("a TTL is at least a millisecond, not %v", r.TTL)
	}
	sent := driver.Now()
	if err := p.Renew(ctx, []driver.Hold{r.Hold})[0]; err != nil {
		return driver.Grant{}, err
	}
	return driver.Grant{Sent: sent, TTL: r.TTL, Token: r.Token, Span: 1}, nil
}

// Raise lets later tokens begin above token. Without Fenced there are none: errors.ErrUnsupported.
func (p *Plain) Raise(ctx context.Context, h driver.Hold, token int64) error {
	if err := p.check(h); err != nil {
		return err
	}
	switch {
	case !p.fenced:
		return fmt.Errorf("redislock: tokens without PlainOptions.Fenced: %w", errors.ErrUnsupported)
	case token < 1:
		return invalid("a token is above 0, not %d", token)
	}
	keys := []string{p.d.opts.Prefix + h.Name, keysOf(p.d.opts.Prefix + h.Name).token()}
	msg, err := p.d.lanes.run(ctx, max(h.TTL, minLimit), request{script: raiseStringScript, keys: keys, args: []string{value(h.ID), number(token)}})
	if err != nil {
		return err
	}
	if n, err := msg.AsInt64(); err != nil || n != 1 {
		return errors.Join(err, driver.ErrNotHeld)
	}
	return nil
}

// Incarnation is that of [Driver.Incarnation].
func (p *Plain) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	return p.d.Incarnation(ctx)
}

// Survey is that of [Driver.Survey].
func (p *Plain) Survey(ctx context.Context) (driver.Survey, error) { return p.d.Survey(ctx) }
