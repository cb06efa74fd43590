package memlock

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Renew extends holds.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	d.s.change(func(n *news) {
		fail := d.begin(ctx, "Renew")
		now := driver.Now()
		for i, h := range hs {
			if errs[i] = fail; fail != nil {
				continue
			}
			r := d.s.find(h.Name, now, n)
			if x := r.hold(h); x != nil {
				r.extend(x, h.TTL, now)
			} else {
				errs[i] = driver.ErrNotHeld
			}
		}
	})
	return errs
}

// extend lets a hold live for ttl from now, or longer.
func (r *record) extend(h *hold, ttl time.Duration, now driver.Instant) {
	h.until = max(h.until, now.Add(ttl))
}

// Release ends a hold. If another driver of the store got it, that one reports Lost: this is a steal.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) (err error) {
	var own *ears
	d.s.change(func(n *news) {
		if err = d.begin(ctx, "Release"); err != nil {
			return
		}
		now := driver.Now()
		r := d.s.find(h.Name, now, n)
		x := r.hold(h)
		if x == nil {
			err = driver.ErrNotHeld
			own = d.s.ending[h.ID] // nothing is reported after Release has returned
			return
		}
		if x.d == d {
			own = x.ears
		} else {
			n.lost(x)
		}
		r.end(x, end, now)
		r.settle(now, n)
	})
	if own != nil {
		own.stop()
	}
	return err
}

// end ends a hold the way its holder said.
func (r *record) end(h *hold, end driver.End, now driver.Instant) {
	if top := h.Token + int64(h.span) - 1; r.last == top { // nothing was given out or raised since
		r.last = min(max(end.Last, h.Token), top)
	}
	if end.Keep > 0 && h.Kind != driver.Once {
		h.kept, h.until = true, now.Add(end.Keep)
		r.wakeAt(h.until)
		return
	}
	r.drop(h)
	if end.Keep > 0 {
		r.done = &result{value: bytes.Clone(end.Value), until: now.Add(end.Keep)}
		r.wakeAt(r.done.until)
	}
}

// Attach takes over a hold that was got through any driver of the store. From now on its signals go to r.Notify only.
func (d *Driver) Attach(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	if r.Notify == nil {
		return g, fmt.Errorf("memlock: %w: a request needs a Notify", driver.ErrInvalid)
	}
	var old *ears
	d.s.change(func(n *news) {
		if err = d.begin(ctx, "Attach"); err != nil {
			return
		}
		now := driver.Now()
		rec := d.s.find(r.Name, now, n)
		h := rec.hold(r.Hold)
		if h == nil {
			err = driver.ErrNotHeld
			return
		}
		old = h.ears
		h.d, h.ears = d, &ears{d: d, notify: r.Notify}
		rec.extend(h, r.TTL, now)
		// The rest of the span may have been used by whoever had the hold before.
		g = driver.Grant{Sent: now, TTL: r.TTL, Token: h.Token, Span: 1}
	})
	if old != nil {
		old.stop()
	}
	return g, err
}

// Raise lets later tokens begin above token.
func (d *Driver) Raise(ctx context.Context, h driver.Hold, token int64) (err error) {
	d.s.change(func(n *news) {
		if err = d.begin(ctx, "Raise"); err != nil {
			return
		}
		r := d.s.find(h.Name, driver.Now(), n)
		if r.hold(h) == nil {
			err = driver.ErrNotHeld
			return
		}
		r.last = max(r.last, token)
	})
	return err
}
