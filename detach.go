package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// ticket is the text form of a detached hold. Its layout is frozen: processes of different versions exchange it.
type ticket struct {
	V       int    `json:"v"`
	Kind    string `json:"kind"`
	Name    []byte `json:"name"`
	ID      string `json:"id"`
	First   int64  `json:"first"` // token of the hold
	Token   int64  `json:"token"` // token of the lease
	Permits int    `json:"permits"`
	Limit   int    `json:"limit,omitempty"` // of a semaphore
	TTL     int64  `json:"ttl_ms"`
}

// Detach ends the lease here without giving the lock back, and answers a ticket with which Client.Attach takes it over,
// in this process or another, before its TTL is over (nobody renews it meanwhile). The lease must be the only one of its
// grant: nothing re-entered, no reader beside it (else ErrHeld). A store whose holds live with a session answers
// errors.ErrUnsupported. The ticket is no secret key, but whoever has it can hold the lock.
func (l *Lease) Detach() (string, error) {
	if l == nil {
		return "", ErrNotHeld
	}
	g := l.g
	c := g.cl.core
	if _, ok := c.d.(driver.Attacher); !ok {
		return "", wrap("detach", g.hold.Name, errors.ErrUnsupported)
	}
	if err := l.Err(); err != nil {
		return "", wrap("detach", g.hold.Name, err)
	}
	var out after
	c.mu.Lock()
	switch {
	case l.cause != nil:
		err := l.cause
		c.mu.Unlock()
		return "", wrap("detach", g.hold.Name, err)
	case l.next != nil || l.prev != nil:
		c.mu.Unlock()
		return "", wrap("detach", g.hold.Name, fmt.Errorf("other leases live on the same hold: %w", ErrHeld))
	}
	renewing := g.renewing
	l.over = true
	l.finish(errUnlocked, &out)
	g.drop(l)
	l.tell(Released, driver.Now().Sub(l.got), nil)
	c.depart(g)
	c.mu.Unlock()
	out.run()
	if renewing != nil {
		<-renewing // bounded; the new holder alone renews from here on
	}
	h := g.hold
	b, err := json.Marshal(ticket{1, h.Kind.String(), []byte(h.Name), h.ID, h.Token, l.token, h.Permits, g.limit, h.TTL.Milliseconds()})
	return string(b), err
}

// Attach takes over the lease behind a ticket of Lease.Detach and keeps it alive from now on, with the TTL that it was
// taken with; ErrNotHeld if it is over. A ticket works once: whoever attaches second shares a hold, which pawl cannot
// see. ctx bounds the call.
func (c *Client) Attach(ctx context.Context, s string) (*Lease, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	a, ok := c.d.(driver.Attacher)
	if !ok {
		return nil, wrap("attach", "", errors.ErrUnsupported)
	}
	var k ticket
	if err := json.Unmarshal([]byte(s), &k); err != nil || k.V != 1 || k.ID == "" || k.TTL < 1 || k.TTL > int64(365*24*time.Hour/time.Millisecond) {
		return nil, invalid("attach: not a ticket of Lease.Detach")
	}
	h := driver.Hold{Name: string(k.Name), ID: k.ID, Token: k.First, Permits: k.Permits, TTL: time.Duration(k.TTL) * time.Millisecond}
	for kind := driver.Exclusive; kind <= driver.Once; kind++ {
		if kind.String() == k.Kind {
			h.Kind = kind
		}
	}
	t := &target{c: c, kind: h.Kind, name: h.Name, permits: h.Permits, limit: k.Limit}
	if err := t.check(); err != nil || h.Kind == 0 {
		return nil, errors.Join(invalid("attach: not a ticket of Lease.Detach"), err)
	}
	k1 := &link{c: c.core}
	r := driver.Request{Hold: h, Limit: k.Limit, Notify: k1.notify,
		Who: driver.Holder{Label: c.pol.holder, Host: c.host, Note: c.pol.note}}
	begin := driver.Now()
	d, err := a.Attach(ctx, r)
	if err != nil {
		return nil, wrap("attach", h.Name, err)
	}
	d.Token, d.Span = h.Token, 1
	g := newGrant(t, h, d)
	g.last = k.Token
	var out after
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, wrap("attach", h.Name, ErrClosed)
	}
	c.admit(g, c.line(lineOf(t)))
	now := driver.Now()
	l := g.lease(c, nil, k.Token, now)
	l.acquired(now.Sub(begin))
	k1.g = g
	if k1.out != 0 {
		c.signal(g, k1.out, &out)
	}
	c.mu.Unlock()
	out.run()
	return l, nil
}
