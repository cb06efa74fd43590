package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Attach takes over a hold that was got elsewhere, when a majority of the members confirms it. Every member must be able
// to, else it is errors.ErrUnsupported.
func (d *Driver) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.ready(); err != nil {
		return driver.Grant{}, err
	}
	if err := d.check(limitless(r)); err != nil {
		return driver.Grant{}, err
	}
	for _, m := range d.members {
		if _, ok := m.d.(driver.Attacher); !ok {
			return driver.Grant{}, m.wrap(fmt.Errorf("it cannot attach holds: %w", errors.ErrUnsupported))
		}
	}
	if ctx.Err() != nil {
		return driver.Grant{}, fmt.Errorf("redlock: %w", context.Cause(ctx))
	}
	c := d.find(r.ID)
	if c == nil {
		c = newClaim(d, r, d.votes(r.Kind, 0))
		c.token = r.Token
		if d.tokens && c.token != 0 {
			c.end = c.token + maxSpan - 1 // at least: how much of it was reserved is not known here
		}
	} else if !c.is(r.Hold) {
		return driver.Grant{}, driver.ErrNotHeld
	} else {
		c.ears.set(r.Notify)
	}
	sent := driver.Now()
	until := sent.Add(r.TTL)
	e := &QuorumError{Op: "attach", Need: d.majority, Members: make([]error, len(d.members))}
	gone := 0
	var mu sync.Mutex
	largest := r.Token
	err := each(ctx, d, d.nodeLimit(r.TTL), func(ctx context.Context, m *member) error {
		q := c.request(m)
		q.TTL = r.TTL
		g, err := m.d.(driver.Attacher).Attach(ctx, q)
		if err == nil {
			c.mu.Lock()
			s := &c.seats[m.no]
			s.held, s.since, s.token = true, driver.Now(), g.Token
			c.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, g.Token)
			until = min(until, min(g.Sent, driver.Now()).Add(g.TTL))
		}
		return err
	}, func(m *member, err error) bool {
		switch {
		case err == nil:
			e.OK++
		case errors.Is(err, driver.ErrNotHeld):
			gone++
		}
		e.Members[m.no] = err
		return e.OK >= d.majority || gone >= d.majority
	})
	switch {
	case e.OK >= d.majority:
	case gone >= d.majority:
		return driver.Grant{}, driver.ErrNotHeld
	case err != nil:
		return driver.Grant{}, fmt.Errorf("%w (%s)", err, e)
	default:
		return driver.Grant{}, e
	}
	mu.Lock()
	ttl := (until.Sub(sent) - drift(r.TTL)).Truncate(time.Millisecond)
	other := largest
	mu.Unlock()
	c.mu.Lock()
	c.won = true
	c.until = max(c.until, sent.Add(ttl))
	token := c.token
	c.mu.Unlock()
	if token == 0 && d.tokens {
		token = other
	}
	if sent.Add(ttl).Until() <= 0 {
		return driver.Grant{}, fmt.Errorf("redlock: nothing is left of the TTL of %v when a quorum had confirmed the hold", r.TTL)
	}
	d.keep(c)
	return driver.Grant{Sent: sent, TTL: ttl, Token: token, Span: 1}, nil
}

// limitless is a request as check accepts it without a capacity, which who attaches need not know.
func limitless(r driver.Request) driver.Request {
	r.Limit = max(r.Limit, r.Permits)
	return r
}
