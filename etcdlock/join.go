package etcdlock

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-lock/pawl/driver"
)

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
