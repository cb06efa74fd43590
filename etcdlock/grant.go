package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/driver"
)

// granted makes the grant of a place that is at the head.
func (p *place) granted(ctx context.Context, span int) (driver.Grant, error) {
	d := p.d
	d.mu.Lock()
	s, rev := p.attn, p.rev
	now := driver.Now()
	old := s == nil || now.Sub(s.sent) > s.ttl/2
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
		now = driver.Now()
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
	a := p.d.ask(ctx, p.r.TTL, []cond{created(p.seat, rev)}, []op{put(p.seat, p.value, s.lease)}, nil)
	switch {
	case a.err != nil:
		return 0, p.refused(a.err)
	case !a.resp.succeeded:
		return 0, errAgain
	}
	return a.resp.rev, nil
}
