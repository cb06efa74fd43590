package row

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// poller tells the waiting places of a driver when their row is free. Nothing in such a table tells of a change, so it
// looks: one goroutine, with one statement for all names, soon after a change and ever less often while nothing happens. It
// lives while somebody waits.
type poller struct {
	d    *Driver
	kick chan struct{}

	mu      sync.Mutex
	places  map[*place]struct{}
	running bool
}

const (
	pollLeast = 2 * time.Millisecond
	pollMost  = 100 * time.Millisecond
	pollLong  = time.Second // while the database does not answer
)

func (p *poller) add(w *place) {
	w.hush(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = make(map[*place]struct{})
	}
	_, known := p.places[w]
	p.places[w] = struct{}{}
	if !p.running {
		p.running = p.d.start(p.work)
	}
	if !known {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

// remove ends all reports to a place: none is under way when it returns.
func (p *poller) remove(w *place) {
	p.mu.Lock()
	delete(p.places, w)
	p.mu.Unlock()
	w.hush(true)
}

// waiting are the places by the key of their row. Without any the goroutine ends.
func (p *poller) waiting() map[string][]*place {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string][]*place)
	for w := range p.places {
		key := p.d.stored(w.r.Name)
		out[key] = append(out[key], w)
	}
	p.running = len(out) > 0 && p.d.ctx.Err() == nil
	return out
}

func (p *poller) work() {
	changed := time.Now()
	saw := make(map[string]string)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.kick: // somebody has come: the names that are wanted are those that change
			changed = time.Now()
		case <-p.d.ctx.Done():
		}
		places := p.waiting()
		if len(places) == 0 || p.d.ctx.Err() != nil {
			return
		}
		pause := pollLong
		if any, err := p.look(places, saw); err == nil {
			now := time.Now()
			if any {
				changed = now
			}
			pause = min(max(now.Sub(changed)/8, pollLeast), pollMost)
		}
		timer.Reset(pause/2 + rand.N(pause))
	}
}

// look reads all rows that are waited for, and reports whether any has changed.
func (p *poller) look(places map[string][]*place, saw map[string]string) (changed bool, err error) {
	d := p.d
	ctx, done := d.bound(d.ctx, 5*time.Second)
	defer done()
	t, err := d.look(ctx)
	if err != nil {
		return false, err
	}
	keys := make([]string, 0, len(places))
	for key := range places {
		keys = append(keys, key)
	}
	for key := range saw {
		if places[key] == nil {
			delete(saw, key)
		}
	}
	for some := range slices.Chunk(keys, largestBatch) {
		seen, err := d.read(ctx, t, some...)
		if err != nil {
			return false, err
		}
		for _, key := range some {
			l, state := seen.rows[key], ""
			if l.heldAt(seen.now) {
				state = l.by
			}
			if was, ok := saw[key]; !ok || was != state {
				saw[key], changed = state, true
			}
			if state == "" && !l.heldAt(seen.now) {
				for _, w := range places[key] {
					w.tell()
				}
			}
		}
	}
	return changed, nil
}
