package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// hub listens to the members: to each once for every name that somebody here waits for or watches, and not at all for
// other names.
type hub struct {
	d    *Driver
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	names map[string]*listener
}

// listener is all that is listened to for one name.
type listener struct {
	h    *hub
	name string
	ctx  context.Context
	stop context.CancelFunc
	up   chan struct{} // closed when a majority of watches is live, or all were tried

	// under hub.mu
	subs    map[*sub]struct{}
	live    int
	tried   int
	isUp    bool
	timer   *time.Timer
	armed   bool
	last    driver.Instant // when places were told
	strikes int            // times in a row with little time between
}

// sub is one place that waits, or one watch.
type sub struct {
	l     *listener
	c     *claim        // a place
	ticks chan struct{} // a watch
}

// join begins to listen, and returns when a majority of the members reports changes, limit is over, or ctx ends.
func (h *hub) join(ctx context.Context, name string, c *claim, limit time.Duration) *sub {
	s := &sub{c: c}
	h.add(name, s)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.l.up:
	case <-timer.C:
	case <-ctx.Done():
	}
	return s
}

func (h *hub) add(name string, s *sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.names[name]
	if l == nil {
		l = &listener{h: h, name: name, up: make(chan struct{}), subs: map[*sub]struct{}{}}
		l.ctx, l.stop = context.WithCancel(h.ctx)
		if h.names == nil {
			h.names = map[string]*listener{}
		}
		h.names[name] = l
		for _, m := range h.d.members {
			if m.watch == nil {
				l.tried++
				continue
			}
			h.d.tasks.run(func() { l.listen(m) })
		}
		l.check()
	}
	s.l = l
	l.subs[s] = struct{}{}
}

func (h *hub) leave(s *sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := s.l
	if _, ok := l.subs[s]; !ok {
		return
	}
	delete(l.subs, s)
	if s.ticks != nil {
		close(s.ticks)
	}
	if len(l.subs) == 0 {
		l.stop()
		if l.timer != nil {
			l.timer.Stop()
		}
		delete(h.names, l.name)
	}
}

// deaf reports whether changes may pass unheard: those of a hold that only the other members have.
func (s *sub) deaf() bool {
	s.l.h.mu.Lock()
	defer s.l.h.mu.Unlock()
	return s.l.live < s.l.h.d.majority
}

// check closes up when it is time. The caller has hub.mu.
func (l *listener) check() {
	if !l.isUp && (l.live >= l.h.d.majority || l.tried == len(l.h.d.members)) {
		l.isUp = true
		close(l.up)
	}
}

// listen keeps a watch at one member for as long as the listener lives.
func (l *listener) listen(m *member) {
	pause, first := 50*time.Millisecond, true
	for l.ctx.Err() == nil {
		ticks, err := m.watch.Watch(l.ctx, l.name)
		l.h.mu.Lock()
		if first {
			l.tried++
		}
		if err == nil {
			l.live++
		}
		l.check()
		l.h.mu.Unlock()
		if err == nil {
			if !first {
				l.tick() // who knows what happened meanwhile
			}
			pause = 50 * time.Millisecond
			for range ticks {
				l.tick()
			}
			l.h.mu.Lock()
			l.live--
			l.h.mu.Unlock()
		}
		first = false
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		pause = min(2*pause, 2*time.Second)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
		}
		timer.Stop()
	}
}

// tick passes a change on: to watches at once, to places a random moment later. The members report one release one after
// the other, and the waiting places of all processes must not try at the same instant, since they would divide the votes.
// Where votes are being divided every attempt is a change too, so that moment grows while changes follow one another.
func (l *listener) tick() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for s := range l.subs {
		if s.ticks != nil {
			select {
			case s.ticks <- struct{}{}:
			default:
			}
		} else if !l.armed {
			l.armed = true
			now := driver.Now()
			if now.Sub(l.last) > time.Second {
				l.strikes = 0
			}
			l.last = now
			d := time.Millisecond + rand.N(time.Millisecond<<min(l.strikes, 6))
			l.strikes++
			if l.timer == nil {
				l.timer = time.AfterFunc(d, l.fire)
			} else {
				l.timer.Reset(d)
			}
		}
	}
}

func (l *listener) fire() {
	l.h.mu.Lock()
	l.armed = false
	var told []*claim
	for s := range l.subs {
		if s.c != nil {
			told = append(told, s.c)
		}
	}
	l.h.mu.Unlock()
	for _, c := range told {
		if l.h.ctx.Err() == nil {
			c.ears.tell(driver.Changed)
		}
	}
}

// Watch ticks when a member reports a change of the name. It is live when a majority of the members reports. The channel
// is closed when ctx ends or the driver is closed. Without a member that can watch it is errors.ErrUnsupported.
func (d *Driver) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	able := 0
	for _, m := range d.members {
		if m.watch != nil {
			able++
		}
	}
	if able < d.majority {
		return nil, fmt.Errorf("redlock: only %d of %d members can watch: %w", able, len(d.members), errors.ErrUnsupported)
	}
	s := &sub{ticks: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(ctx)
	apart := context.AfterFunc(d.hub.ctx, stop)
	d.hub.add(name, s)
	context.AfterFunc(ctx, func() {
		apart()
		stop()
		d.hub.leave(s)
	})
	timer := time.NewTimer(d.nodeLimit(d.opts.MaxTTL))
	defer timer.Stop()
	select {
	case <-s.l.up:
	case <-ctx.Done():
		return nil, fmt.Errorf("redlock: %w", context.Cause(ctx))
	case <-timer.C:
	}
	if s.deaf() {
		stop()
		return nil, fmt.Errorf("redlock: too few members report changes of the name")
	}
	return s.ticks, nil
}
