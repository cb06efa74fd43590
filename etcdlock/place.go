package etcdlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
		g, err := p.decide(ctx, q, span)
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

// join puts the place in line, or takes a free name at once. It answers the queue with the place's own key in it.
func (p *place) join(ctx context.Context) (*queue, error) {
	d := p.d
	s, gen, err := p.sit(ctx)
	if err != nil {
		return nil, err
	}
	mark := clientv3.Compare(clientv3.ModRevision(s.mark), "=", gen)
	put := clientv3.OpPut(p.seat, p.value, clientv3.WithLease(clientv3.LeaseID(s.lease)))
	getMark := clientv3.OpGet(s.mark, clientv3.WithKeysOnly())

	// Nobody there: one transaction, which changes nothing if there is.
	a := d.ask(ctx, p.r.TTL, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(first(p.base)), "=", 0).WithRange(last(p.base)), mark},
		[]clientv3.Op{put}, []clientv3.Op{getMark, lookOps(p.base)})
	if err := p.asked(s, a); err != nil {
		return nil, err
	}
	if a.resp.Succeeded {
		p.joined(a.resp.Header.Revision, a.resp.Header.Revision)
		return newQueue([]contender{p.self(a.resp.Header.Revision)}), nil
	}
	q, rev, err := p.read(ctx, s, gen, a)
	if err != nil || rev != 0 {
		return q, err
	}
	v := q.judge(&p.r, len(q.line), p.peer())
	if v.wrong != nil || v.done || !v.free && !p.r.Wait {
		p.stand()
		return q, nil
	}

	// In line, or free but for keys of other names.
	a = d.ask(ctx, p.r.TTL, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(p.seat), "=", 0), mark},
		[]clientv3.Op{put, lookOps(p.base)}, []clientv3.Op{getMark, lookOps(p.base)})
	if err := p.asked(s, a); err != nil {
		return nil, err
	}
	if !a.resp.Succeeded {
		q, rev, err := p.read(ctx, s, gen, a)
		if err == nil && rev == 0 {
			err = errAgain
		}
		return q, err
	}
	p.joined(a.resp.Header.Revision, a.resp.Header.Revision)
	return d.see(ctx, p.r.TTL, p.base, a.resp.Responses[1].GetResponseRange())
}

// sit gets a session and a key of its own under it. The plain key is a mutex's, if no other of this session has it.
func (p *place) sit(ctx context.Context) (*session, int64, error) {
	d := p.d
	d.mu.Lock()
	if old := d.places[p.r.ID]; old != nil && old != p && old.state != gone {
		// The same request again: the same key. What is known of the hold goes over to this place.
		p.sess, p.attn, p.seat, p.loose, p.token, p.until, p.value = old.sess, old.attn, old.seat, old.loose, old.token, old.until, old.value
		for _, s := range []*session{old.sess, old.attn} {
			if s != nil {
				delete(s.places, old)
				s.places[p] = struct{}{}
			}
		}
		old.state = gone
		d.places[p.r.ID] = p
		if old.own != nil {
			defer d.ear.drop(old.own)
		}
	}
	s := p.sess
	if s != nil && !s.dead {
		gen := s.gen
		d.mu.Unlock()
		return s, gen, nil
	}
	p.rise()
	d.mu.Unlock()
	s, err := d.session(ctx, seconds(p.r.TTL))
	if err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, 0, errClosed
	}
	if s.dead {
		return nil, 0, errAgain
	}
	p.sess, p.attn, p.loose = s, s, false
	p.seat = plainKey(p.base, s.lease)
	plain := false
	if p.r.Kind == driver.Exclusive || p.r.Kind == driver.Fair {
		if id, taken := s.seats[p.base]; !taken || id == p.r.ID {
			s.seats[p.base] = p.r.ID
			plain = true
		}
	}
	if !plain {
		p.seat += tail(p.r.Hold, p.r.Limit, p.peer())
	}
	s.places[p] = struct{}{}
	d.places[p.r.ID] = p
	return s, s.gen, nil
}

// stand gives the seat up. Nothing of it is in the store, nor on its way there.
func (p *place) stand() {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	p.rise()
	if p.state != gone {
		p.state = fresh
	}
}

// rise takes the place out of the driver's books. The caller has d.mu.
func (p *place) rise() {
	d := p.d
	for _, s := range []*session{p.sess, p.attn} {
		if s != nil {
			delete(s.places, p)
			s.used = driver.Now()
		}
	}
	if s := p.sess; s != nil && s.seats[p.base] == p.r.ID {
		delete(s.seats, p.base)
	}
	if d.places[p.r.ID] == p {
		delete(d.places, p.r.ID)
	}
	if p.own != nil {
		d.ear.drop(p.own)
		p.own = nil
	}
	p.sess, p.attn, p.seat, p.rev, p.mod, p.loose = nil, nil, "", 0, 0, false
}

// asked takes in what became of a request to put the key.
func (p *place) asked(s *session, a answer) error {
	d := p.d
	d.mu.Lock()
	p.loose = p.loose || a.loose
	loose := p.loose
	d.mu.Unlock()
	switch {
	case a.err == nil:
		return nil
	case leaseGone(a.err):
		s.lose()
		p.stand()
		return errAgain
	case certain(a.err) && !loose:
		p.stand()
	case certain(a.err):
		return fmt.Errorf("%s; an earlier copy of the request may still arrive", a.err)
	}
	return a.err
}

// read takes in the answer of a transaction whose conditions did not hold. rev is that of the own key, if it is there.
func (p *place) read(ctx context.Context, s *session, gen int64, a answer) (q *queue, rev int64, err error) {
	now := int64(0)
	for _, kv := range a.resp.Responses[0].GetResponseRange().GetKvs() {
		now = kv.ModRevision
	}
	if q, err = p.d.see(ctx, p.r.TTL, p.base, a.resp.Responses[1].GetResponseRange()); err != nil {
		return nil, 0, err
	}
	if i := q.find(p.seat); i >= 0 && q.line[i].id == p.r.ID {
		p.joined(q.line[i].rev, q.line[i].mod)
		return q, q.line[i].rev, nil
	} else if i >= 0 { // somebody used our lease: the other form of key is nobody else's
		p.d.mu.Lock()
		p.seat = plainKey(p.base, s.lease) + tail(p.r.Hold, p.r.Limit, p.peer())
		p.d.mu.Unlock()
		return nil, 0, errAgain
	}
	if now == gen {
		return q, 0, nil
	}
	switch err := s.conflict(ctx, now); {
	case errors.Is(err, errLeaseGone):
		p.stand()
	case err != nil:
		return nil, 0, err
	}
	return nil, 0, errAgain
}

func (p *place) joined(rev, mod int64) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.rev, p.mod = rev, mod
	if p.state == fresh {
		p.state = queued
	}
}

func (p *place) self(rev int64) contender {
	return contender{key: p.seat, rev: rev, mod: rev, id: p.r.ID, permits: p.r.Permits, limit: p.r.Limit}
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

// granted makes the grant of a place that is at the head.
func (p *place) granted(ctx context.Context, span int) (driver.Grant, error) {
	d := p.d
	d.mu.Lock()
	s, rev := p.attn, p.rev
	old := s == nil || driver.Now().Sub(s.sent) > s.ttl/2
	d.mu.Unlock()
	if s == nil {
		return driver.Grant{}, errAgain
	}
	if old { // too little trust is left: the lease may even be over
		if err := s.beat(ctx); err != nil {
			if errors.Is(err, errLeaseGone) {
				return driver.Grant{}, errAgain
			}
			return driver.Grant{}, p.refused(err)
		}
	}
	token := rev << spanBits
	span = min(span, 1<<spanBits)
	if p.peer() {
		span = 1
		var err error
		if token, err = p.peerToken(ctx, s, rev); err != nil {
			return driver.Grant{}, err
		}
	}
	d.ear.drop(p.pred)
	p.pred, p.seen = nil, ""
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return driver.Grant{}, fmt.Errorf("etcdlock: %w", driver.ErrClosed)
	case s.dead || p.state != queued && p.state != held:
		return driver.Grant{}, errAgain
	}
	now := driver.Now()
	p.state, p.token, p.since = held, token, now
	p.until = max(p.until, now.Add(s.ttl))
	d.tend()
	return driver.Grant{Sent: s.sent, TTL: s.ttl, Token: token, Span: span}, nil
}

// peerToken is the revision that other clients would number this hold by. A leader's is that of its key. A mutex's is
// that of the transaction which found it at the head; a place that waited writes its key again, so that the key's
// modification revision is the token.
func (p *place) peerToken(ctx context.Context, s *session, rev int64) (int64, error) {
	if p.r.Kind == driver.Leader {
		return rev, nil
	}
	p.d.mu.Lock()
	token, mod := p.token, p.mod
	p.d.mu.Unlock()
	switch {
	case token != 0: // the same request again
		return token, nil
	case p.pred == nil: // joined and was alone in one transaction
		return mod, nil
	}
	a := p.d.ask(ctx, p.r.TTL, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(p.seat), "=", rev)},
		[]clientv3.Op{clientv3.OpPut(p.seat, p.value, clientv3.WithLease(clientv3.LeaseID(s.lease)))}, nil)
	switch {
	case a.err != nil:
		return 0, p.refused(a.err)
	case !a.resp.Succeeded:
		return 0, errAgain
	}
	return a.resp.Header.Revision, nil
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
