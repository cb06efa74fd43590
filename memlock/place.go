package memlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// place is one request.
type place struct {
	d    *Driver
	r    driver.Request
	ears *ears

	// Guarded by the store's mutex.
	inLine bool
	until  driver.Instant // when it is taken for dead, unless it tries again
	told   driver.Instant // when it was told to come; 0: not since it tried last
	left   bool
	passed int // by how many it was overtaken
}

// Enter makes a place. It reaches no store: it fails for a bad request or a closed driver only.
func (d *Driver) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	d.s.mu.Lock()
	d.calls["Enter"]++
	d.s.mu.Unlock()
	if d.closed.Load() {
		return nil, errClosed
	}
	if err := check(r); err != nil {
		return nil, err
	}
	r.Value = bytes.Clone(r.Value)
	return &place{d: d, r: r, ears: &ears{d: d, notify: r.Notify}}, nil
}

func check(r driver.Request) error {
	bad := ""
	switch {
	case r.Kind < driver.Exclusive || r.Kind > driver.Once:
		return fmt.Errorf("memlock: kind %d: %w", r.Kind, errors.ErrUnsupported)
	case len(r.Name) < 1 || len(r.Name) > 4096:
		bad = fmt.Sprintf("a name has 1 to 4096 bytes, not %d", len(r.Name))
	case r.ID == "":
		bad = "a hold needs an ID"
	case r.TTL < time.Millisecond:
		bad = fmt.Sprintf("a TTL is at least a millisecond, not %v", r.TTL)
	case r.Kind == driver.Permits && (r.Permits < 1 || r.Permits > r.Limit):
		bad = fmt.Sprintf("%d of %d permits can never be had", r.Permits, r.Limit)
	case r.Kind != driver.Permits && r.Permits != 1:
		bad = fmt.Sprintf("a hold of kind %s has 1 permit, not %d", r.Kind, r.Permits)
	case r.Notify == nil:
		bad = "a request needs a Notify"
	default:
		return nil
	}
	return fmt.Errorf("memlock: %w: %s", driver.ErrInvalid, bad)
}

func (p *place) Try(ctx context.Context, span int) (g driver.Grant, err error) {
	p.d.s.change(func(n *news) { g, err = p.try(ctx, span, n) })
	return g, err
}

func (p *place) try(ctx context.Context, span int, n *news) (driver.Grant, error) {
	if err := p.d.begin(ctx, "Try"); err != nil {
		return driver.Grant{}, err
	}
	return p.ask(span, n)
}

// TryAll gets the holds of all places or none, in one step under the store's mutex.
func (d *Driver) TryAll(ctx context.Context, ps []driver.Place) (gs []driver.Grant, err error) {
	d.s.change(func(n *news) {
		if err = d.begin(ctx, "TryAll"); err != nil {
			return
		}
		now := driver.Now()
		for _, x := range ps {
			p, ok := x.(*place)
			if !ok { // somebody wraps this driver, and does not unwrap its places
				err = fmt.Errorf("memlock: the place is another driver's (%T): %w", x, errors.ErrUnsupported)
				return
			}
			if r := d.s.find(p.r.Name, now, n); r != nil && r.family == driver.Exclusive && !p.left && !r.mayEnter(p, now) {
				held := r.refusal(p, now)
				held.By.Name = p.r.Name
				err = held
				return
			}
		}
		for i, x := range ps {
			g, e := x.(*place).ask(1, n)
			if e != nil {
				for _, x := range ps[:i] {
					x.(*place).undo(now, n)
				}
				gs, err = nil, e
				return
			}
			gs = append(gs, g)
		}
	})
	return gs, err
}

func (p *place) ask(span int, n *news) (driver.Grant, error) {
	switch {
	case p.left:
		return driver.Grant{}, fmt.Errorf("memlock: the place was left: %w", driver.ErrNotDone)
	case span < 1:
		return driver.Grant{}, fmt.Errorf("memlock: %w: a grant has at least one token, not %d", driver.ErrInvalid, span)
	}
	now := driver.Now()
	r := p.d.s.find(p.r.Name, now, n)
	if r == nil {
		r = p.d.s.create(p)
	}
	if r.family != p.r.Kind.Family() || p.r.Kind == driver.Permits && r.limit != p.r.Limit {
		e := &driver.MismatchError{Have: r.family, Want: p.r.Kind, HaveLimit: r.limit}
		if p.r.Kind == driver.Permits {
			e.WantLimit = p.r.Limit
		}
		return driver.Grant{}, e
	}
	if h := r.hold(driver.Hold{ID: p.r.ID}); h != nil { // this very request came twice
		r.extend(h, p.r.TTL, now)
		return driver.Grant{Sent: now, TTL: p.r.TTL, Token: h.Token, Span: min(h.span, span)}, nil
	}
	if r.done != nil {
		r.leaveLine(p)
		return driver.Grant{}, &driver.DoneError{Value: bytes.Clone(r.done.value), Remaining: r.done.until.Sub(now)}
	}
	if !r.mayEnter(p, now) {
		return driver.Grant{}, p.refused(r, now, n)
	}
	for _, q := range r.ahead(p) {
		q.passed++
	}
	r.leaveLine(p)
	h := &hold{d: p.d, ears: p.ears, span: span, until: now.Add(p.r.TTL)}
	h.HeldBy = driver.HeldBy{Hold: p.r.Hold, Who: p.r.Who, Since: time.Now(), Value: p.r.Value}
	h.Token = r.reserve(span)
	r.holds[h.ID] = h
	r.room.take(h.Kind, h.Permits)
	r.wakeAt(h.until)
	if len(r.line) > 0 && !r.room.fits(&r.line[0].r) {
		n.add(h.ears, driver.Wanted)
	}
	r.settle(now, n)
	return driver.Grant{Sent: now, TTL: p.r.TTL, Token: h.Token, Span: span}, nil
}

// refused keeps a place that waits in line.
func (p *place) refused(r *record, now driver.Instant, n *news) error {
	err := r.refusal(p, now)
	if !p.r.Wait {
		return err
	}
	p.until, p.told = now.Add(p.r.TTL), 0
	r.wakeAt(p.until)
	if !p.inLine {
		r.enterLine(p)
		r.want(n)
	}
	r.settle(now, n) // it may have been the one that was told to come
	return err
}

// Leave takes the place out of the line and ends what it may have got.
func (p *place) Leave(ctx context.Context) (err error) {
	p.d.s.change(func(n *news) {
		if err = p.d.begin(ctx, "Leave"); err != nil {
			return
		}
		p.left = true
		p.undo(driver.Now(), n)
	})
	if err == nil {
		p.ears.stop()
	}
	return err
}

// undo ends whatever the place has.
func (p *place) undo(now driver.Instant, n *news) {
	r := p.d.s.find(p.r.Name, now, n)
	if h := r.hold(driver.Hold{ID: p.r.ID}); h != nil {
		r.end(h, driver.End{}, now)
	} else if !p.inLine {
		return
	}
	r.leaveLine(p)
	r.settle(now, n)
}
