package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// place is one contender. It stands in no line: it asks, and if it waits, it listens.
type place struct {
	d    *Driver
	c    *claim
	sub  *sub // while it waits and was refused
	left bool

	splits int // refusals in a row by divided votes
}

// Enter makes a place without any I/O. Fair and Leader, which need one line across all members, are
// errors.ErrUnsupported, and so is, at the first Try, a kind that a member does not carry.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	if err := d.Check(); err != nil {
		return nil, err
	}
	if err := d.check(r); err != nil {
		return nil, err
	}
	return &place{d: d, c: newClaim(d, r, d.votes(r.Kind, r.Limit))}, nil
}

func (d *Driver) check(r driver.Request) error {
	bad := ""
	switch {
	case r.Kind == driver.Fair, r.Kind == driver.Leader:
		return fmt.Errorf("redlock: kind %s needs one line across all members, which independent members do not have: %w", r.Kind, errors.ErrUnsupported)
	case r.Kind < driver.Exclusive || r.Kind > driver.Once:
		return fmt.Errorf("redlock: kind %d: %w", r.Kind, errors.ErrUnsupported)
	case len(r.Name) < 1 || len(r.Name) > 4096:
		bad = fmt.Sprintf("a name has 1 to 4096 bytes, not %d", len(r.Name))
	case r.ID == "":
		bad = "a hold needs an ID"
	case r.TTL < minTTL:
		bad = fmt.Sprintf("a TTL of %v is shorter than %v, in which a quorum cannot be asked", r.TTL, minTTL)
	case r.TTL > d.opts.MaxTTL:
		bad = fmt.Sprintf("a TTL of %v is longer than Options.MaxTTL, %v: raise that for all users of the quorum", r.TTL, d.opts.MaxTTL)
	case r.Kind == driver.Permits && (r.Permits < 1 || r.Permits > r.Limit):
		bad = fmt.Sprintf("%d of %d permits can never be had", r.Permits, r.Limit)
	case r.Kind != driver.Permits && r.Permits != 1:
		bad = fmt.Sprintf("a hold of kind %s has 1 permit, not %d", r.Kind, r.Permits)
	case r.Notify == nil:
		bad = "a request needs a Notify"
	default:
		return nil
	}
	return fmt.Errorf("redlock: %w: %s", driver.ErrInvalid, bad)
}

// Try asks all members at once and returns when enough of them granted and know the token, or when that has become
// impossible. What comes later is seen to in the background.
func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
	switch err := p.d.ready(); {
	case err != nil:
		return driver.Grant{}, err
	case ctx.Err() != nil:
		return driver.Grant{}, fmt.Errorf("redlock: %w: %w", driver.ErrNotDone, context.Cause(ctx))
	case p.left:
		return driver.Grant{}, fmt.Errorf("redlock: the place was left: %w", driver.ErrNotDone)
	case span < 1:
		return driver.Grant{}, fmt.Errorf("redlock: %w: a grant has at least one token, not %d", driver.ErrInvalid, span)
	}
	if c := p.d.find(p.c.r.ID); c != nil {
		if g, err := c.again(ctx, p.c.r, span); !errors.Is(err, driver.ErrNotHeld) {
			return g, err
		}
	}
	g, err := p.attempt(ctx, span)
	if p.c.r.Wait && errors.Is(err, driver.ErrHeld) && p.sub == nil {
		// Listen first, then look again: no release falls between.
		p.sub = p.d.hub.join(ctx, p.c.r.Name, p.c, p.d.nodeLimit(p.c.r.TTL))
		if ctx.Err() == nil {
			g, err = p.attempt(ctx, span)
		}
	}
	if !errors.Is(err, driver.ErrHeld) {
		p.quiet()
	}
	return g, err
}

// quiet ends the listening.
func (p *place) quiet() {
	if p.sub != nil {
		p.d.hub.leave(p.sub)
		p.sub = nil
	}
}

func (p *place) attempt(ctx context.Context, span int) (driver.Grant, error) {
	c, d := p.c, p.d
	c.mu.Lock()
	over := c.over || c.won
	c.mu.Unlock()
	if over {
		return driver.Grant{}, fmt.Errorf("redlock: the hold of this request is over: %w", driver.ErrNotDone)
	}
	ttl := c.r.TTL - drift(c.r.TTL)
	b := c.start(min(span, maxSpan))
	timer := time.NewTimer(b.sent.Add(ttl).Until())
	defer timer.Stop()
	var why error
	select {
	case <-b.done:
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-timer.C:
		why = fmt.Errorf("nothing is left of the TTL of %v", c.r.TTL)
	case <-d.quit:
		why = driver.ErrClosed
	}
	if b.giveUp() {
		c.mu.Lock()
		robbed := c.mayHold() < c.majority()
		ttl = c.until.Sub(b.sent).Truncate(time.Millisecond)
		c.mu.Unlock()
		if left := b.sent.Add(ttl).Until(); left <= 0 || robbed {
			c.abandon()
			return driver.Grant{}, fmt.Errorf("redlock: a quorum granted, but the hold was over before that was known, with %v left of its TTL", max(left, 0))
		}
		d.keep(c)
		g := driver.Grant{Sent: b.sent, TTL: ttl, Token: b.token, Span: min(span, maxSpan)}
		if b.end == 0 {
			g.Span = 1
		}
		return g, nil
	}
	err := b.verdict(why)
	if errors.As(err, new(*QuorumError)) && why == nil {
		// Those who have not answered yet may make it certain that nothing was done.
		timer.Reset(max(driver.Now().Sub(b.sent), time.Millisecond))
		select {
		case <-b.quiet:
			err = b.verdict(nil)
		case <-timer.C:
		case <-ctx.Done():
		case <-d.quit:
		}
	}
	var held *driver.HeldError
	if errors.As(err, &held) && c.r.Wait {
		held.Again = p.again(b, held)
	}
	return driver.Grant{}, err
}

// again says when to look without being told. After divided votes the contenders come back at random instants, more and
// more apart, so that one of them meets nobody.
func (p *place) again(b *ballot, held *driver.HeldError) time.Duration {
	if b.divided(held) {
		most := min(max(splitPause, 2*driver.Now().Sub(b.sent))<<min(p.splits, 10), maxSplitPause)
		p.splits++
		return most/2 + rand.N(most/2)
	}
	p.splits = 0
	if p.sub == nil || p.sub.deaf() {
		return deafPause/2 + rand.N(deafPause/2)
	}
	return 0
}

const (
	splitPause    = 5 * time.Millisecond
	maxSplitPause = 500 * time.Millisecond
	deafPause     = 200 * time.Millisecond // between looks while too few members report changes
)

// again confirms the hold that this very request got before.
func (c *claim) again(ctx context.Context, r driver.Request, span int) (driver.Grant, error) {
	sent := driver.Now()
	c.mu.Lock()
	token, end := c.token, c.end
	c.mu.Unlock()
	if c.r.Name != r.Name {
		return driver.Grant{}, fmt.Errorf("redlock: %w: the ID is in use for another name", driver.ErrInvalid)
	}
	h := r.Hold
	h.Token = token
	if err := c.d.Renew(ctx, []driver.Hold{h})[0]; err != nil {
		return driver.Grant{}, err
	}
	g := driver.Grant{Sent: sent, TTL: r.TTL - drift(r.TTL), Token: token, Span: 1}
	if end != 0 {
		g.Span = min(span, int(end-token+1))
	}
	return g, nil
}

// Leave undoes whatever the place has or may yet get, at every member. It returns nil when all members have answered, or
// nothing can be left any more.
func (p *place) Leave(ctx context.Context) error {
	p.left = true
	p.quiet()
	if err := p.d.ready(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redlock: %w", context.Cause(ctx))
	}
	c := p.c
	if o := p.d.find(c.r.ID); o != nil {
		c = o // this very request was sent twice
	}
	c.mu.Lock()
	won := c.won
	c.over = true
	c.mu.Unlock()
	if won {
		c.release(driver.End{})
	}
	for _, x := range []*claim{c, p.c} {
		select {
		case <-x.jobs.done():
		case <-ctx.Done():
			return fmt.Errorf("redlock: some members have not answered an undo yet: %w", context.Cause(ctx))
		case <-p.d.quit:
			return errEnded
		}
	}
	p.d.forget(c)
	c.ears.stop()
	p.c.ears.stop()
	return nil
}
