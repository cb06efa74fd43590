package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// together is how many keys are read in one transaction: etcd's default limit.
const together = 128

// renewal is one hold of a Renew.
type renewal struct {
	i    int // in the caller's slice
	p    *place
	s    *session
	seat string
	rev  int64
	ttl  time.Duration
}

// Renew extends holds: one keepalive for each session, and one read of the keys for every 128 holds, at the same time. A
// hold that another session has cannot be extended from here.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	if err := d.usable(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	limit := time.Duration(0)
	for _, h := range hs {
		limit = max(limit, h.TTL)
	}
	ctx, stop := d.bound(ctx, limit)
	defer stop()
	begun := driver.Now()
	var rs []renewal
	var longer, others []int
	d.mu.Lock()
	for i, h := range hs {
		p := d.places[h.ID]
		switch {
		case p == nil || p.r.Name != h.Name || p.state != held && p.state != ending:
			others = append(others, i)
		case h.Token != 0 && h.Token != p.token:
			errs[i] = driver.ErrNotHeld
		case p.busy:
			errs[i] = errors.New("etcd: the hold's TTL is over, and it is being ended")
		default:
			p.renewing++
			if h.TTL > p.attn.ttl {
				longer = append(longer, len(rs))
			}
			rs = append(rs, renewal{i, p, p.attn, p.seat, p.rev, h.TTL})
		}
	}
	d.mu.Unlock()
	var wg sync.WaitGroup
	seats := make(chan struct{}, 8) // at once
	each := func(f func()) {
		wg.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			f()
		})
	}
	for _, n := range longer {
		r := &rs[n]
		each(func() {
			if seconds(r.ttl) > maxSeconds {
				errs[r.i] = invalid("etcd has no leases of more than %d seconds", int64(maxSeconds))
			} else if s, err := d.move(ctx, r); err != nil {
				errs[r.i] = err
			} else {
				r.s = s
			}
		})
	}
	for _, i := range others {
		each(func() { errs[i] = d.elsewhere(ctx, hs[i]) })
	}
	wg.Wait()

	beats := map[*session]*error{}
	for _, r := range rs {
		if beats[r.s] == nil && errs[r.i] == nil {
			beats[r.s] = new(error)
		}
	}
	for s, err := range beats {
		each(func() { *err = s.beat(ctx) })
	}
	for from := 0; from < len(rs); from += together {
		some := rs[from:min(from+together, len(rs))]
		each(func() { d.confirm(ctx, limit, some, errs) })
	}
	wg.Wait()

	d.mu.Lock()
	var lost []*place
	for _, r := range rs {
		r.p.renewing--
		var err error
		if b := beats[r.s]; b != nil {
			err = *b
		}
		switch {
		case errors.Is(err, errLeaseGone) || errs[r.i] == driver.ErrNotHeld:
			errs[r.i] = driver.ErrNotHeld
			if r.p.rev == r.rev && r.p.state == held {
				r.p.vanish()
				lost = append(lost, r.p)
			}
		case errs[r.i] != nil:
		case err != nil:
			errs[r.i] = err
		case r.p.state == held:
			r.p.until = max(r.p.until, begun.Add(max(r.ttl, r.s.ttl)))
		}
	}
	d.mu.Unlock()
	for _, p := range lost {
		p.tell(driver.Lost)
	}
	return errs
}

// confirm reads the keys of some holds.
func (d *Driver) confirm(ctx context.Context, ttl time.Duration, rs []renewal, errs []error) {
	ops := make([]op, len(rs))
	for i, r := range rs {
		ops[i] = get(r.seat)
	}
	a := d.ask(ctx, ttl, nil, ops, nil)
	for i, r := range rs {
		switch {
		case errs[r.i] != nil:
		case a.err != nil:
			errs[r.i] = a.err
		default:
			kvs := a.resp.reads[i].GetKvs()
			if len(kvs) == 0 || kvs[0].CreateRevision != r.rev {
				errs[r.i] = driver.ErrNotHeld
			}
		}
	}
}

// move lets a hold live by a longer lease. Its key keeps its name and its create revision.
func (d *Driver) move(ctx context.Context, r *renewal) (*session, error) {
	s, err := d.session(ctx, seconds(r.ttl))
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	value, peer := r.p.value, r.p.peer() && r.p.r.Kind != driver.Leader
	if peer { // the key's modification revision will no longer be the token
		value = record{ID: r.p.r.ID, Kind: r.p.r.Kind.String(), Label: r.p.r.Who.Label, Host: r.p.r.Who.Host, Note: r.p.r.Who.Note,
			PID: r.p.r.Who.PID, Peer: true, Token: r.p.token}.text()
	}
	d.mu.Unlock()
	a := d.ask(ctx, r.ttl, []cond{created(r.seat, r.rev)}, []op{put(r.seat, value, s.lease)}, nil)
	switch {
	case leaseGone(a.err):
		s.lose()
		return nil, fmt.Errorf("etcd: the new session's lease is gone")
	case a.err != nil:
		return nil, a.err
	case !a.resp.succeeded:
		return nil, driver.ErrNotHeld
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.p.state != held || s.dead {
		return s, nil
	}
	if old := r.p.attn; old != r.p.sess {
		delete(old.places, r.p)
	}
	r.p.attn, r.p.value = s, value
	s.places[r.p] = struct{}{}
	return s, nil
}

// elsewhere says what a hold is that this driver does not have.
func (d *Driver) elsewhere(ctx context.Context, h driver.Hold) error {
	if err := check(h); err != nil {
		return err
	}
	q, err := d.look(ctx, h.TTL, d.base(h.Name))
	if err != nil {
		return err
	}
	i := q.byID(h.ID)
	if i < 0 {
		return driver.ErrNotHeld
	}
	if _, holds := q.holders(); !holds[i] || h.Token != 0 && h.Token != q.line[i].token() {
		return driver.ErrNotHeld
	}
	return fmt.Errorf("etcd: the hold lives by the session of another client, and only that one can renew it: %w", errors.ErrUnsupported)
}
