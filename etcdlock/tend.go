package etcdlock

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// A session outlives its holds, so a hold that nobody renews must be ended by the driver: that is what tend does, at the
// end of each hold's own TTL. If the process dies or is cut off, nobody keeps the session alive either, and the store ends
// both.

const (
	tick = 200 * time.Millisecond
	// A hold that lives for longer than this gets a watch on its own key, so that the loss of it is told at once. Shorter
	// ones are spared the cost.
	watchAfter = 250 * time.Millisecond
)

// tend wakes the goroutine that ends what is over. The caller has d.mu.
func (d *Driver) tend() {
	if !d.tends && !d.closed {
		d.tends = true
		d.wg.Go(d.tending)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Driver) tending() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-d.life.Done():
			return
		case <-t.C:
		}
		if d.round() {
			continue
		}
		select { // nothing to do until something is held again
		case <-d.life.Done():
			return
		case <-d.wake:
		}
	}
}

// round does what is due. It answers whether there is anything to come back for.
func (d *Driver) round() bool {
	now := driver.Now()
	var over, long, left []*place
	var free []*keep
	d.mu.Lock()
	holds := 0
	for _, p := range d.places {
		if p.state == held || p.state == ending || p.state == leaving {
			holds++
		}
		switch {
		case p.state == leaving && !p.busy:
			p.busy = true
			left = append(left, p)
		case p.busy || p.renewing > 0 || p.state != held && p.state != ending:
		case now >= p.until:
			p.busy = true
			over = append(over, p)
		case p.own == nil && p.state == held && now.Sub(p.since) >= watchAfter:
			long = append(long, p)
		}
	}
	for k := range d.kept {
		if !k.busy && now >= k.until {
			k.busy = true
			free = append(free, k)
		}
	}
	more := holds > 0 || len(d.kept) > 0
	d.mu.Unlock()
	for _, p := range over {
		d.run(p.expire)
	}
	for _, p := range left {
		d.run(p.goOnLeaving)
	}
	for _, k := range free {
		d.run(func() { d.freed(k) })
	}
	for _, p := range long {
		p.watchOwn()
	}
	return more
}

// expire ends a hold that was not renewed for its TTL.
func (p *place) expire() {
	d := p.d
	ctx, stop := d.bound(context.Background(), minLimit)
	defer stop()
	d.mu.Lock()
	e := ended{key: p.seat, rev: p.rev, value: p.value, sess: p.sess, loose: p.loose}
	still := (p.state == held || p.state == ending) && driver.Now() >= p.until
	d.mu.Unlock()
	if !still {
		p.busyNoMore()
		return
	}
	if _, err := d.finish(ctx, p.r.Hold, driver.End{}, e); err != nil {
		p.busyNoMore() // the next round tries again
		return
	}
	p.lost()
}

// goOnLeaving repeats a Leave that failed.
func (p *place) goOnLeaving() {
	d := p.d
	ctx, stop := d.bound(context.Background(), minLimit)
	defer stop()
	if p.undo(ctx) != nil {
		p.busyNoMore()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.rise()
	p.state = gone
}

func (p *place) busyNoMore() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.busy = false
}

// lost tells the client that its hold is over.
func (p *place) lost() {
	d := p.d
	d.mu.Lock()
	was := p.state
	if was == held || was == ending {
		p.vanish()
	}
	d.mu.Unlock()
	if was == held {
		p.tell(driver.Lost)
	}
}

// vanish takes a hold out of the books that another's hand has ended. The caller has d.mu.
func (p *place) vanish() {
	d := p.d
	if p.loose && !d.closed { // a copy of its request would bring it back
		ghost := &place{d: d, r: p.r, base: p.base, value: p.value, sess: p.sess, attn: p.attn, seat: p.seat, loose: true}
		d.wg.Go(func() {
			for d.life.Err() == nil {
				ctx, stop := d.bound(context.Background(), minLimit)
				err := ghost.undo(ctx)
				stop()
				if err == nil {
					return
				}
				t := time.NewTimer(tick)
				select {
				case <-t.C:
				case <-d.life.Done():
					t.Stop()
				}
			}
		})
	}
	p.rise()
	p.state = gone
}

func (d *Driver) freed(k *keep) {
	ctx, stop := d.bound(context.Background(), minLimit)
	defer stop()
	err := d.free(ctx, k)
	if err == nil {
		d.revokeLease(k.lease)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k.busy = false
	if err == nil {
		delete(d.kept, k)
	}
}

// watchOwn watches the key of a hold.
func (p *place) watchOwn() {
	d := p.d
	d.mu.Lock()
	seat, rev := p.seat, p.rev
	if p.state != held || p.own != nil {
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	check := func() { d.run(func() { p.verify(seat, rev) }) }
	own := d.ear.watch(seat, "", false, check)
	d.mu.Lock()
	keep := p.state == held && p.own == nil
	if keep {
		p.own = own
	}
	d.mu.Unlock()
	if !keep {
		d.ear.drop(own)
		return
	}
	d.run(func() { // what happened before the watch was live
		ctx, stop := d.bound(context.Background(), minLimit)
		defer stop()
		if d.ear.wait(ctx, own) {
			p.verify(seat, rev)
		}
	})
}

// verify reads the key of a hold and tells its loss.
func (p *place) verify(seat string, rev int64) {
	d := p.d
	ctx, stop := d.bound(context.Background(), minLimit)
	defer stop()
	d.mu.Lock()
	mine := p.state == held && p.seat == seat && p.rev == rev
	s := p.attn
	d.mu.Unlock()
	if !mine {
		return
	}
	errs := []error{nil}
	r := renewal{p: p, s: s, seat: seat, rev: rev}
	d.confirm(ctx, minLimit, []renewal{r}, errs)
	d.mu.Lock()
	moved := p.attn != s
	d.mu.Unlock()
	if errs[0] == driver.ErrNotHeld && !moved {
		p.lost()
	}
}
