package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/pawl-lock/pawl/driver"
)

// session is one lease that all contenders of a driver with one TTL (in whole seconds) live by. The driver keeps it alive;
// each hold ends by itself when nobody renews it (see tend).
type session struct {
	d       *Driver
	seconds int64 // asked for
	lease   int64
	ttl     time.Duration // granted
	mark    string        // a key of the lease that tells when the lease is gone
	gone    chan struct{} // closed when the store has said that the lease is gone, or this driver has revoked it

	watch *sub
	look  chan struct{} // capacity 1: the mark may be gone

	// Under Driver.mu.
	dead   bool
	sent   driver.Instant // before the last answered keepalive
	gen    int64          // revision of the mark: a request that was sent under an older one does nothing
	seats  map[string]string
	places map[*place]struct{}
	used   driver.Instant
}

// opening is a session that is being made.
type opening struct {
	done chan struct{}
	s    *session
	err  error
}

// session answers the living session for a TTL, and makes it if there is none. Its errors are certain: nothing of a hold
// was asked for yet.
func (d *Driver) session(ctx context.Context, seconds int64) (*session, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, errClosed
	}
	if s := d.sessions[seconds]; s != nil {
		s.used = driver.Now()
		d.mu.Unlock()
		return s, nil
	}
	o := d.opening[seconds]
	if o == nil {
		o = &opening{done: make(chan struct{})}
		d.opening[seconds] = o
		d.wg.Go(func() { d.open(o, seconds) })
	}
	d.mu.Unlock()
	select {
	case <-o.done:
		return o.s, o.err
	case <-ctx.Done():
		return nil, undone(translate(ctx, ctx.Err()))
	}
}

func (d *Driver) open(o *opening, seconds int64) {
	defer close(o.done)
	ctx, stop := d.bound(context.Background(), min(time.Duration(seconds)*time.Second, 10*time.Second))
	defer stop()
	s, err := d.grant(ctx, seconds)
	d.mu.Lock()
	delete(d.opening, seconds)
	if err == nil && d.closed {
		err = errClosed
	}
	if err != nil {
		d.mu.Unlock()
		if s != nil {
			d.revokeLease(s.lease)
		}
		o.err = undone(err)
		return
	}
	o.s = s
	s.used = driver.Now()
	d.sessions[seconds] = s
	d.all[s] = struct{}{}
	d.wg.Go(s.live)
	d.mu.Unlock()
}

// grant gets a lease and leaves its mark. With an error it may answer a session that has to be revoked.
func (d *Driver) grant(ctx context.Context, seconds int64) (*session, error) {
	s := &session{d: d, seconds: seconds, lease: newLease(), gone: make(chan struct{}), look: make(chan struct{}, 1),
		seats: map[string]string{}, places: map[*place]struct{}{}}
	s.sent = driver.Now()
	var err error
	if s.ttl, err = d.lease(ctx, s.lease, seconds); err != nil {
		if certain(err) {
			return nil, err
		}
		return s, err
	}
	s.mark = markKey(d.opts.Prefix, s.lease)
	a := d.ask(ctx, s.ttl, nil, []op{s.putMark()}, nil)
	if a.err != nil {
		return s, a.err
	}
	s.gen = a.resp.rev
	return s, nil
}

// lease gets a lease, with the ID that it is to have. It answers the TTL as granted.
func (d *Driver) lease(ctx context.Context, id, seconds int64) (time.Duration, error) {
	ttl := time.Duration(seconds) * time.Second
	a := ask(ctx, d, ttl, func(ctx context.Context) (*pb.LeaseGrantResponse, error) {
		r, err := d.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: seconds, ID: id})
		if err == nil {
			err = d.sameCluster(r.GetHeader().GetClusterId())
		}
		if is(err, rpctypes.ErrGRPCLeaseExist) { // a copy of the same request was first
			return &pb.LeaseGrantResponse{}, nil
		}
		return r, err
	})
	switch {
	case a.err != nil:
		return 0, a.err
	case a.resp.Error != "":
		return 0, fmt.Errorf("etcd: a lease was refused: %s: %w", a.resp.Error, driver.ErrNotDone)
	case a.resp.TTL == 0:
		b := d.pulse.keepAlive(ctx, id, ttl)
		return b.ttl, b.err
	}
	return time.Duration(a.resp.TTL) * time.Second, nil
}

// idleLimit is how long a session that nobody uses is kept, at least.
const idleLimit = time.Minute

// live keeps the lease alive until it is gone, idle for long, or the driver is closed.
func (s *session) live() {
	d := s.d
	s.watch = d.ear.watch(s.mark, "", false, func() {
		select {
		case s.look <- struct{}{}:
		default:
		}
	})
	defer func() { d.ear.drop(s.watch) }()
	t := time.NewTimer(s.ttl / 4)
	defer t.Stop()
	for failed := time.Duration(0); ; {
		select {
		case <-d.life.Done():
			return
		case <-s.gone:
			return
		case <-s.look:
		case <-t.C:
		}
		if s.retire() {
			d.revokeLease(s.lease)
			return
		}
		ctx, stop := d.bound(context.Background(), s.ttl)
		err := s.beat(ctx)
		stop()
		switch {
		case errors.Is(err, errLeaseGone):
			return
		case err != nil:
			failed = min(max(2*failed, 20*time.Millisecond), s.ttl/20, time.Second)
			t.Reset(failed/2 + rand.N(failed))
		default:
			failed = 0
			t.Reset(s.ttl / 4)
		}
	}
}

// retire reports whether the session was idle for long, and takes it out of use.
func (s *session) retire() bool {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.places) > 0 || len(s.seats) > 0 || driver.Now().Sub(s.used) < max(idleLimit, s.ttl) {
		return false
	}
	d.forget(s)
	return true
}

// forget takes a session out of use. The caller has d.mu.
func (d *Driver) forget(s *session) {
	if !s.dead {
		s.dead = true
		close(s.gone)
	}
	if d.sessions[s.seconds] == s {
		delete(d.sessions, s.seconds)
	}
	delete(d.all, s)
}

// beat sends a keepalive and takes the answer in.
func (s *session) beat(ctx context.Context) error {
	b := s.d.pulse.keepAlive(ctx, s.lease, s.ttl)
	if errors.Is(b.err, errLeaseGone) {
		s.lose()
	}
	if b.err != nil {
		return b.err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.dead {
		return errLeaseGone
	}
	if b.ttl >= s.ttl {
		s.sent = max(s.sent, b.sent)
	} else { // what is left was not raised to the full TTL
		s.sent = max(s.sent, b.sent.Add(b.ttl-s.ttl))
	}
	return nil
}

// lose tells all that live by the session that the store has ended it.
func (s *session) lose() {
	d := s.d
	d.mu.Lock()
	d.forget(s)
	var ps []*place
	for p := range s.places {
		ps = append(ps, p)
	}
	d.mu.Unlock()
	for _, p := range ps {
		p.sessionLost(s)
	}
}

// conflict takes in that a request found another mark than it was sent under. kv is the mark as it is now.
func (s *session) conflict(ctx context.Context, gen int64) error {
	d := s.d
	if gen == 0 { // gone, with its lease or by another's hand
		if err := s.beat(ctx); err != nil {
			return err
		}
		d.mu.Lock()
		old := s.gen
		d.mu.Unlock()
		a := d.ask(ctx, s.ttl, []cond{created(s.mark, 0)}, []op{s.putMark()}, []op{get(s.mark)})
		switch {
		case leaseGone(a.err):
			s.lose()
			return errLeaseGone
		case a.err != nil:
			return a.err
		case a.resp.succeeded:
			gen = a.resp.rev
		default:
			gen = a.resp.modified(0)
		}
		gen = max(gen, old)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.gen = max(s.gen, gen)
	return nil
}
