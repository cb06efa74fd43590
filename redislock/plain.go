package redislock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
)

var (
	stringScript   = load("string")
	unstringScript = load("unstring")
	restringScript = load("restring")
)

// Plain keeps mutexes in the layout "one plain string key, set if absent, with an expiry", which it shares with redis-py,
// redsync (one pool), bsm/redislock (one key), node-redlock (one resource), redis-semaphore's mutex, Spring's
// RedisLockRegistry, ShedLock and the like: whoever computes the same key on the same server is excluded. It carries
// Exclusive only, and no tokens: the others count none, so a number of pawl's would order nothing. It is safe for concurrent
// use.
//
// Nobody queues in this layout: waiters look again every 50 to 150 ms. Some clients (ShedLock unless told otherwise) delete or
// overwrite a lock that they lost long ago; the holder is told at its next renewal. A key without expiry counts as held.
//
// Besides the lock, each release leaves a small key pawl_gone:… for a TTL and 10 s: a request of the hold that were still on
// its way is refused by it.
type Plain struct {
	d      *Driver
	spring string
}

var _ driver.Driver = (*Plain)(nil)

// PlainOptions change how a Plain uses its store. The zero value, like nil, is the default.
type PlainOptions struct {
	// Prefix is put before every name, such as "mutex:" for redis-semaphore, or "job-lock:default:" for ShedLock.
	Prefix string

	// SpringRegistry is the registry key of a Spring RedisLockRegistry. It is put before every name with a colon, behind
	// Prefix, and each release is told to Spring's waiters, in the way of all its versions.
	SpringRegistry string
}

// NewPlain is New for a Plain: the client stays the caller's.
func NewPlain(client rueidis.Client, opts *PlainOptions) *Plain {
	p, o := plainOptions(opts)
	p.d = New(client, o)
	return p
}

// OpenPlain is Open for a Plain.
func OpenPlain(ctx context.Context, rawURL string, opts *PlainOptions) (*Plain, error) {
	p, o := plainOptions(opts)
	d, err := Open(ctx, rawURL, o)
	if err != nil {
		return nil, err
	}
	p.d = d
	return p, nil
}

func plainOptions(opts *PlainOptions) (*Plain, *Options) {
	p, o := &Plain{}, &Options{}
	if opts != nil {
		o.Prefix, p.spring = opts.Prefix, opts.SpringRegistry
		if p.spring != "" {
			o.Prefix += p.spring + ":"
		}
	}
	return p, o
}

// Close stops what NewPlain or OpenPlain started. It releases nothing.
func (p *Plain) Close() error { return p.d.Close() }

func (p *Plain) check(h driver.Hold) error {
	switch {
	case p.d.bad != nil:
		return p.d.bad
	case h.Kind != driver.Exclusive:
		return fmt.Errorf("redislock: kind %s in the layout of plain strings: %w", h.Kind, errors.ErrUnsupported)
	case len(h.Name) < 1 || len(h.Name) > 4096:
		return invalid("a name has 1 to 4096 bytes, not %d", len(h.Name))
	case h.ID == "" || len(h.ID) > 256:
		return invalid("a hold's ID is \"<uuid>:<number>\", not %q", h.ID)
	case strings.HasPrefix(p.d.opts.Prefix+h.Name, "pawl_gone:"):
		return invalid("names that begin with pawl_gone: are pawl's own")
	case p.d.lanes.cluster && !oneSlot(p.d.opts.Prefix+h.Name):
		return invalid("the keys of %q would be on different nodes of a Redis Cluster, because of its braces", h.Name)
	}
	return nil
}

// value is what the key holds: new for each hold, of fixed length, and not to be guessed, since the ID is not.
func value(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// keys are the lock, and the mark that refuses a late request of this hold.
func (p *Plain) keys(h driver.Hold) []string {
	main := p.d.opts.Prefix + h.Name
	return []string{main, "pawl_gone:" + keysOf(main).own + ":" + value(h.ID)}
}

// Enter makes a place. It does no I/O.
func (p *Plain) Enter(_ context.Context, r driver.Request) (driver.Place, error) {
	if err := p.check(r.Hold); err != nil {
		return nil, err
	}
	switch {
	case p.d.lanes.isClosed():
		return nil, errClosed
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
	p    *Plain
	r    driver.Request
	open bool // a request may be under way, or have won something
	over bool
}

const plainAgain = 100 * time.Millisecond

func (x *plainPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	switch {
	case x.over:
		return driver.Grant{}, fmt.Errorf("redis: the place was left: %w", driver.ErrNotDone)
	case span < 1:
		return driver.Grant{}, invalid("a grant has at least one token, not %d", span)
	}
	before := x.open
	x.open = true
	sent := driver.Now()
	msg, err := x.p.d.lanes.run(ctx, x.r.TTL, request{script: stringScript, keys: x.p.keys(x.r.Hold), args: []string{value(x.r.ID), millis(x.r.TTL)}})
	if err != nil {
		if isNotDone(err) {
			x.open = before
		}
		return driver.Grant{}, err
	}
	if !msg.IsArray() {
		return driver.Grant{Sent: sent, TTL: x.r.TTL, Span: 1}, nil
	}
	x.open = before
	a, err := msg.ToArray()
	if err != nil || len(a) == 0 {
		return driver.Grant{}, fmt.Errorf("redis: an empty answer: %w", err)
	}
	switch what, _ := a[0].ToString(); what {
	case "gone":
		return driver.Grant{}, fmt.Errorf("redis: this hold was given up before its request arrived: %w", driver.ErrNotDone)
	case "type":
		kind, _ := a[1].ToString()
		return driver.Grant{}, fmt.Errorf("redis key %q holds a %s, and a lock of this layout is a string: %w", x.p.d.opts.Prefix+x.r.Name, kind,
			&driver.MismatchError{Want: driver.Exclusive})
	}
	e := &driver.HeldError{Ahead: -1, Again: plainAgain/2 + time.Duration(sent)%plainAgain}
	switch left, _ := a[1].ToInt64(); {
	case left >= 0:
		e.Remaining = time.Duration(left) * time.Millisecond
		e.Again = min(e.Again, e.Remaining+time.Millisecond)
	case left == -1:
		e.Remaining = -1
	}
	e.By.Remaining = e.Remaining
	return driver.Grant{}, e
}

func (x *plainPlace) Leave(ctx context.Context) error {
	if x.open {
		if _, err := x.p.end(ctx, x.r.Hold, 0, x.r.TTL+late); err != nil {
			return err
		}
	}
	x.open, x.over = false, true
	return nil
}

func (p *Plain) end(ctx context.Context, h driver.Hold, keep, refuse time.Duration) (bool, error) {
	keys, channels := p.keys(h), []string{"", ""}
	if p.spring != "" {
		channels = []string{p.spring + "-channel", p.spring + "-channel:" + keys[0]}
	}
	args := []string{value(h.ID), millis(keep), value(h.ID + " kept"), millis(refuse), channels[0], channels[1], keys[0]}
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
	// A hold has no token here that would tell whether its request was answered.
	there, err := p.end(ctx, h, end.Keep, h.TTL+late)
	if err == nil && !there {
		err = driver.ErrNotHeld
	}
	return err
}

// Renew extends holds.
func (p *Plain) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	renew := func(i int) {
		h := hs[i]
		if errs[i] = p.check(h); errs[i] != nil {
			return
		}
		msg, err := p.d.lanes.run(ctx, max(h.TTL, minLimit), request{script: restringScript, keys: p.keys(h)[:1], args: []string{value(h.ID), millis(max(h.TTL, 1))}})
		n := int64(0)
		if err == nil {
			n, err = msg.AsInt64()
		}
		if err == nil && n != 1 {
			err = driver.ErrNotHeld
		}
		errs[i] = err
	}
	var wg sync.WaitGroup
	for i := range hs {
		if i == len(hs)-1 {
			renew(i)
			break
		}
		wg.Go(func() { renew(i) })
	}
	wg.Wait()
	return errs
}
