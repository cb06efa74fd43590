package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/driver"
)

// join puts the place in line, or takes a free name at once. It answers the queue with the place's own key in it; nil if
// there is nobody else.
func (p *place) join(ctx context.Context) (*queue, error) {
	d := p.d
	s, gen, err := p.sit(ctx)
	if err != nil {
		return nil, err
	}
	unchanged := changed(s.mark, gen)
	own := put(p.seat, p.value, s.lease)

	// Nobody there: one transaction, which changes nothing if there is. Who may go away again at once, asks who is there.
	var otherwise []op
	if !p.r.Wait || p.r.Kind == driver.Once {
		otherwise = []op{glance(p.base)}
	}
	a := d.ask(ctx, p.r.TTL, []cond{vacant(p.base), unchanged}, []op{own}, otherwise)
	if err := p.asked(s, a); err != nil {
		return nil, err
	}
	if a.resp.succeeded {
		p.joined(a.resp.rev, a.resp.rev)
		return nil, nil
	}
	if otherwise != nil {
		q, err := d.see(ctx, p.r.TTL, p.base, a.resp.reads[0])
		if err != nil {
			return nil, err
		}
		if q.find(p.seat) < 0 {
			v := q.judge(&p.r, len(q.line), p.peer())
			if v.wrong != nil || v.done || !v.free && !p.r.Wait {
				p.stand()
				return q, nil
			}
		}
	}

	// In line, or free but for keys of other names.
	a = d.ask(ctx, p.r.TTL, []cond{created(p.seat, 0), unchanged}, []op{own, glance(p.base)}, []op{get(s.mark), glance(p.base)})
	if err := p.asked(s, a); err != nil {
		return nil, err
	}
	if !a.resp.succeeded {
		return p.refusedSeat(ctx, s, gen, a.resp)
	}
	p.joined(a.resp.rev, a.resp.rev)
	return d.see(ctx, p.r.TTL, p.base, a.resp.reads[1])
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
	if p.sess != nil {
		now := driver.Now()
		for _, s := range []*session{p.sess, p.attn} {
			delete(s.places, p)
			s.used = now
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

// refusedSeat takes in why the key could not be put: it is there, or the session's mark is another one.
func (p *place) refusedSeat(ctx context.Context, s *session, gen int64, r *reply) (*queue, error) {
	q, err := p.d.see(ctx, p.r.TTL, p.base, r.reads[1])
	if err != nil {
		return nil, err
	}
	if i := q.find(p.seat); i >= 0 && q.line[i].id == p.r.ID {
		p.joined(q.line[i].rev, q.line[i].mod)
		return q, nil
	} else if i >= 0 { // somebody used our lease: the other form of key is nobody else's
		p.d.mu.Lock()
		p.seat = plainKey(p.base, s.lease) + tail(p.r.Hold, p.r.Limit, p.peer())
		p.d.mu.Unlock()
		return nil, errAgain
	}
	now := r.modified(0)
	if now == gen {
		return nil, errAgain
	}
	switch err := s.conflict(ctx, now); {
	case errors.Is(err, errLeaseGone):
		p.stand()
	case err != nil:
		return nil, err
	}
	return nil, errAgain
}

func (p *place) joined(rev, mod int64) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.rev, p.mod = rev, mod
	if p.state == fresh {
		p.state = queued
	}
}
