package sqllock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// place is a contender's place: nothing at first, a row of the line once a Try that waits was refused.
type place struct {
	d    *Driver
	r    driver.Request
	turn time.Duration

	// Calls on one place never overlap, so these need no lock.
	left    bool // Leave was called: nothing is asked for any more
	stored  bool // the database may have something of this place
	running *op  // a Try that nobody waits for any more
	unsure  bool // a Try had no answer

	mu    sync.Mutex
	gone  bool  // nothing is reported any more
	heard int64 // the call that was reported last
}

// Try makes one attempt in one transaction.
func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
	g := driver.Grant{Sent: driver.Now(), TTL: wholeMillis(p.r.TTL)}
	if p.left || p.running != nil {
		return g, fmt.Errorf("sqllock: this place was given up, or its last attempt had no answer: enter anew: %w: %w", driver.ErrNotDone, driver.ErrInvalid)
	}
	if int64(span) > widestSpan {
		return g, fmt.Errorf("sqllock: %d tokens at once are too many: at most %d are allowed: %w", span, int64(widestSpan), driver.ErrInvalid)
	}
	var h hold
	running, err := p.d.start(ctx, "try", p.r.TTL, p.r.Name, func(b *batch, r *record) (err error) {
		h, err = b.try(r, p, span)
		return err
	})
	if err == nil {
		p.stored = true
		p.d.waker.remove(p)
		g.Token, g.Span = h.Token, min(h.span(), max(span, 1))
		return g, nil
	}
	p.running = running
	switch {
	case running != nil, isUnknown(err):
		p.stored, p.unsure = true, true
	case p.r.Wait && isHeld(err):
		p.stored = true
		p.d.waker.add(p)
	}
	return driver.Grant{}, err
}

// Leave takes the place out of the line and gives back what an unanswered Try has won. An attempt that is still under way
// is waited for.
func (p *place) Leave(ctx context.Context) error {
	p.left = true
	p.d.waker.remove(p)
	if p.running != nil {
		select {
		case <-p.running.done:
			p.running = nil
		case <-ctx.Done():
			return p.d.wrap("leave", context.Cause(ctx))
		case <-p.d.ctx.Done():
			return errClosed()
		}
	}
	if !p.stored {
		return nil
	}
	err := p.d.do(ctx, "leave", p.r.TTL, p.r.Name, func(b *batch, r *record) error {
		b.leave(r, p)
		return nil
	})
	if err == nil {
		p.stored = false
	}
	return err
}

// tell reports a change, unless the place is gone.
func (p *place) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.r.Notify(driver.Changed)
	}
}

// call reports a call, once.
func (p *place) call(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.heard == at {
		return
	}
	p.heard = at
	p.r.Notify(driver.Changed)
}

// silence ends all reports: none is under way when it returns.
func (p *place) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
}
