package etcdlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// place is one contender, and, once granted, one hold.
type place struct {
	d     *Driver
	r     driver.Request
	base  string
	value string // of its key

	// Only Try and Leave touch these.
	pred    *sub   // watches what is in front
	seen    string // the key that pred watches
	watched bool   // pred was live when the queue was last read
	known   bool   // the client knows that the place is in line

	// Under Driver.mu.
	state state
	sess  *session // whose seat it has
	attn  *session // by whose lease its key lives now: another one after a renewal for longer
	seat  string   // its key
	rev   int64    // create revision of its key; 0: not known
	mod   int64    // revision of its last change, as joined
	loose bool     // a request to put the key may still be on its way
	token int64
	until driver.Instant // a hold ends then, unless it is renewed
	since driver.Instant // when it was granted
	own   *sub           // watches its own key
	busy  bool           // tend ends it just now

	renewing int // renewals that are under way: tend leaves it alone meanwhile

	mu     sync.Mutex // held while Notify runs, so that it does not run after Leave or Release has returned
	silent bool
}

type state uint8

const (
	fresh  state = iota // has no key, but perhaps an unanswered request for one
	queued              // has a key in line
	held
	ending  // a release was sent
	leaving // Leave failed: tend goes on, since the session may outlive the caller's patience
	gone    // left, released or lost
)

func newPlace(d *Driver, r driver.Request) *place {
	p := &place{d: d, r: r, base: d.base(r.Name)}
	p.r.Value = bytes.Clone(r.Value)
	p.value = string(p.r.Value)
	if r.Kind != driver.Leader {
		p.value = d.notes.text(record{ID: r.ID, Kind: r.Kind.String(), Label: r.Who.Label, Host: r.Who.Host, Note: r.Who.Note,
			PID: r.Who.PID, Peer: p.peer()})
	}
	return p
}

// peer reports whether its token is a plain revision.
func (p *place) peer() bool { return p.d.opts.PeerToken && peers(p.r.Kind) }

// maxRejoins bounds how often one Try starts anew because its session ended or others kept coming in between.
const maxRejoins = 8

// Try makes one attempt. Alone at the name it is one transaction. A place that waits has its key in line before it watches
// what is in front of it, and reads once more after the watch is live, so that no change falls between.
func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
	d := p.d
	if err := d.usable(); err != nil {
		return driver.Grant{}, err
	}
	if span < 1 {
		return driver.Grant{}, invalid("a grant has at least one token, not %d", span)
	}
	ctx, stop := d.bound(ctx, p.r.TTL)
	defer stop()
	for range maxRejoins {
		d.mu.Lock()
		st := p.state
		d.mu.Unlock()
		if st == gone || st == ending || st == leaving {
			return driver.Grant{}, fmt.Errorf("etcd: the place was left: %w", driver.ErrNotDone)
		}
		var q *queue
		var err error
		if st == fresh {
			q, err = p.join(ctx)
		} else {
			q, err = p.look(ctx)
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return driver.Grant{}, p.refused(err)
		}
		var g driver.Grant
		if q == nil {
			g, err = p.granted(ctx, span)
		} else {
			g, err = p.decide(ctx, q, span)
		}
		if !errors.Is(err, errAgain) {
			return g, err
		}
	}
	return driver.Grant{}, fmt.Errorf("etcd: the session's lease or the place in line was lost %d times", maxRejoins)
}

// errAgain says that the attempt has to begin anew.
var errAgain = errors.New("again")

// refused makes the error of an attempt that failed. A place that the client knows to be in line has only been reading: it
// stays in line. One that has just joined is not to be forgotten: the error is not certain.
func (p *place) refused(err error) error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	switch {
	case p.state == fresh:
		return err
	case p.known && !p.loose:
		return undone(err)
	case certain(err):
		return fmt.Errorf("%s; the place is in line", err)
	}
	return err
}

// look reads the queue for a place that is in line.
func (p *place) look(ctx context.Context) (*queue, error) {
	d := p.d
	d.mu.Lock()
	s, seat, rev := p.sess, p.seat, p.rev
	dead := s == nil || s.dead
	d.mu.Unlock()
	if dead {
		p.stand()
		return nil, errAgain
	}
	q, err := d.look(ctx, p.r.TTL, p.base)
	if err != nil {
		return nil, err
	}
	if i := q.find(seat); i >= 0 && q.line[i].rev == rev {
		return q, nil
	}
	// Deleted by another's hand, or with the lease. A copy of the request that may still arrive keeps the seat.
	d.mu.Lock()
	loose := p.loose
	d.mu.Unlock()
	if loose {
		if err := p.undo(ctx); err != nil {
			return nil, err
		}
	}
	p.stand()
	return nil, errAgain
}

// decide grants, refuses, or lets the place wait.
func (p *place) decide(ctx context.Context, q *queue, span int) (driver.Grant, error) {
	for {
		n := len(q.line)
		if p.seat != "" {
			if i := q.find(p.seat); i >= 0 {
				n = i
			}
		}
		v := q.judge(&p.r, n, p.peer())
		switch {
		case v.free:
			return p.granted(ctx, span)
		case v.wrong != nil:
			return driver.Grant{}, p.retreat(ctx, v.wrong)
		case v.done:
			return driver.Grant{}, p.retreat(ctx, p.d.doneError(ctx, q.result))
		case !p.r.Wait:
			return driver.Grant{}, p.retreat(ctx, p.heldError(q, v))
		}
		again, looking, err := p.follow(ctx, v)
		if err != nil {
			return driver.Grant{}, err
		}
		if !looking {
			e := p.heldError(q, v)
			e.Again = again
			p.known = true
			return driver.Grant{}, e
		}
		if q, err = p.look(ctx); err != nil {
			if errors.Is(err, errAgain) {
				return driver.Grant{}, err
			}
			return driver.Grant{}, p.refused(err)
		}
	}
}

// follow watches what is in front. It answers true when the watch is new and the place has to look once more; and, when
// there is no watch to be had, how soon to look again instead.
func (p *place) follow(ctx context.Context, v verdict) (again time.Duration, looking bool, err error) {
	ear := p.d.ear
	key, end := v.watch, ""
	if key == "" {
		key, end = first(p.base), last(p.base)
	}
	if p.pred == nil || p.seen != key {
		ear.drop(p.pred)
		p.pred, p.seen, p.watched = ear.watch(key, end, false, p.changed), key, false
	}
	if !ear.wait(ctx, p.pred) {
		if ctx.Err() != nil {
			return 0, false, p.refused(translate(ctx, ctx.Err()))
		}
		return deafPause, false, nil
	}
	looking, p.watched = !p.watched, true
	return 0, looking, nil
}

// heldError says who has the name.
func (p *place) heldError(q *queue, v verdict) *driver.HeldError {
	e := &driver.HeldError{Ahead: v.ahead}
	if v.by != nil {
		e.By = p.d.heldBy(p.r.Name, q, v.by)
	}
	return e
}

// retreat takes a key out of line again that a race put there, and answers err.
func (p *place) retreat(ctx context.Context, err error) error {
	p.d.mu.Lock()
	there := p.state == queued
	p.d.mu.Unlock()
	if !there {
		return err
	}
	if e := p.undo(ctx); e != nil {
		return fmt.Errorf("etcd: %s; the place is still in line: %s", err, e)
	}
	p.d.ear.drop(p.pred)
	p.pred, p.seen = nil, ""
	p.stand()
	return err
}

// changed tells the client to look.
func (p *place) changed() { p.tell(driver.Changed) }

func (p *place) tell(s driver.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silent {
		p.r.Notify(s)
	}
}

// hush ends all news. It is not called with Driver.mu held, since Notify may be running.
func (p *place) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// sessionLost tells the client that the lease is gone, and with it the key.
func (p *place) sessionLost(s *session) {
	d := p.d
	d.mu.Lock()
	was := p.state
	mine := p.attn == s
	if was == held && mine {
		p.state = gone
		p.rise()
	}
	d.mu.Unlock()
	switch {
	case !mine:
	case was == held:
		p.tell(driver.Lost)
	case was == queued:
		p.tell(driver.Changed)
	}
}

// Leave gives the place up.
func (p *place) Leave(ctx context.Context) error {
	d := p.d
	p.hush()
	d.ear.drop(p.pred)
	p.pred, p.seen = nil, ""
	d.mu.Lock()
	nothing := p.sess == nil
	if nothing {
		p.state = gone
	}
	closed := d.closed
	d.mu.Unlock()
	switch {
	case nothing:
		return nil
	case closed:
		return errClosed
	}
	ctx, stop := d.bound(ctx, p.r.TTL)
	defer stop()
	err := p.undo(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if p.state != gone {
			p.state = leaving
			d.tend()
		}
		return err
	}
	p.rise()
	p.state = gone
	return nil
}
