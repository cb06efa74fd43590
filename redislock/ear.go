package redislock

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// ear is the one pub/sub connection of a driver. It exists as soon as something waits, and is made again when it is lost:
// then all who wait are told to look.
type ear struct {
	redis wire.Client
	modes *modes
	life  context.Context // of sharded subscriptions
	end   func()
	kick  chan struct{} // capacity 1: something changed in subs
	done  chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex
	started bool
	closed  bool
	conn    wire.Subscription
	subs    map[string]*sub
	places  map[string]*place // those that wait, by their name in line
	holders map[string]*place // those that hold, and may keep it for others of their process, by ID
	prune   int               // how many holders there may be before those whose hold ran out are removed
	bar     chan struct{}     // closed while the server does not let us subscribe
}

// sub is one subscription, wanted or there.
type sub struct {
	channel string
	users   map[listener]struct{}
	on      chan struct{} // closed when the server has confirmed it
	sent    bool          // asked for on the present connection
	idle    time.Time     // since when there are no users

	sharded chan struct{} // nil: needs none; closed when the server has confirmed the sharded one too, or has none
	end     func()
}

// foreign reports whether clients of another make publish on channel.
func foreign(channel string) bool { return strings.HasPrefix(channel, "redisson_") }

// isOn reports whether s is live. e.mu is held.
func (s *sub) isOn() bool {
	for _, on := range []chan struct{}{s.on, s.sharded} {
		select {
		case <-on:
		default:
			if on != nil {
				return false
			}
		}
	}
	return true
}

type listener interface{ heard() }

const (
	linger      = 2 * time.Second        // an unused subscription is kept this long, for the next to wait for the same name
	subscribing = 500 * time.Millisecond // how long a place waits for its subscription before it looks now and then instead
	listenLimit = 5 * time.Second
	barred      = 10 * time.Second // before a server that refused to let us subscribe is asked again
)

func newEar(client wire.Client, m *modes) *ear {
	e := &ear{redis: client, modes: m, kick: make(chan struct{}, 1), done: make(chan struct{}), subs: map[string]*sub{},
		places: map[string]*place{}, holders: map[string]*place{}, bar: make(chan struct{})}
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// enter lets p be called by its name in line.
func (e *ear) enter(p *place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.places[p.member] = p
}

// listens reports whether the server has confirmed all of these channels.
func (e *ear) listens(channels ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range channels {
		if s := e.subs[c]; s == nil || !s.isOn() {
			return false
		}
	}
	return true
}

// use wants a channel for l.
func (e *ear) use(channel string, l listener) *sub {
	s := e.subs[channel]
	if s == nil {
		s = &sub{channel: channel, users: map[listener]struct{}{}, on: make(chan struct{})}
		e.subs[channel] = s
		e.shard(s)
		if !e.closed {
			if !e.started {
				e.started = true
				e.wg.Add(1)
				go e.listen()
			}
			e.poke()
		}
	}
	if !strings.HasPrefix(channel, wakePrefix) {
		s.users[l], s.idle = struct{}{}, time.Time{}
	}
	return s
}

func (e *ear) poke() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// wait waits until all channels are listened to for l. It answers false if that takes too long or is not allowed.
func (e *ear) wait(ctx context.Context, l listener, channels ...string) bool {
	if e.modes.get().NoMessages == errOption {
		return false
	}
	timer := time.NewTimer(subscribing)
	defer timer.Stop()
	for _, c := range channels {
		e.mu.Lock()
		s, bar := e.use(c, l), e.bar
		ons := []chan struct{}{s.on, s.sharded}
		e.mu.Unlock()
		for _, on := range ons {
			if on == nil {
				continue
			}
			select {
			case <-on:
			case <-bar:
				return false
			case <-ctx.Done():
				return false
			case <-timer.C:
				return false
			case <-e.done:
				return false
			}
		}
	}
	return true
}

// forget ends all that was done for a listener.
func (e *ear) forget(l listener, channels []string) {
	p, _ := l.(*place)
	e.mu.Lock()
	defer e.mu.Unlock()
	if p != nil && e.places[p.member] == p {
		delete(e.places, p.member)
	}
	for _, c := range channels {
		s := e.subs[c]
		if s == nil {
			continue
		}
		delete(s.users, l)
		if len(s.users) == 0 {
			s.idle = time.Now()
			e.poke()
		}
	}
}

// listen is the ear's goroutine.
func (e *ear) listen() {
	defer e.wg.Done()
	pause := 20 * time.Millisecond
	for again := false; ; again = true {
		if e.connection(again) {
			pause = 20 * time.Millisecond
		}
		wait := pause/2 + rand.N(pause)
		pause = min(2*pause, 2*time.Second)
		e.mu.Lock()
		select {
		case <-e.bar:
			wait = barred
		default:
		}
		e.mu.Unlock()
		select {
		case <-e.done:
			return
		case <-time.After(wait):
		}
	}
}

// connection makes one connection and serves it until it is lost. It answers whether it was of any use.
func (e *ear) connection(again bool) (useful bool) {
	conn := e.redis.Listen(wire.Listener{On: e.confirm, Message: e.message})
	defer conn.Close()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return false
	}
	e.conn = conn
	select {
	case <-e.bar:
		e.bar = make(chan struct{})
	default:
	}
	for _, s := range e.subs {
		s.sent = false
		select {
		case <-s.on:
			s.on = make(chan struct{})
		default:
		}
	}
	e.mu.Unlock()
	sweep := time.NewTimer(time.Hour)
	defer sweep.Stop()
	for {
		idle, ok := e.settle(conn)
		if !ok {
			return useful
		}
		useful = true
		if again {
			again = false
			e.all()
		}
		if idle > 0 {
			sweep.Reset(idle)
		}
		select {
		case <-e.kick:
		case <-sweep.C:
		case <-conn.Lost():
			return useful
		case <-e.done:
			return useful
		}
	}
}

// settle subscribes to what is wanted and not there, and ends what was idle for long. It answers when to look for idle ones
// again (0: there are none), and false when the connection is of no use.
func (e *ear) settle(conn wire.Subscription) (idle time.Duration, ok bool) {
	var add, drop []string
	next := time.Duration(0)
	now := time.Now()
	e.mu.Lock()
	for c, s := range e.subs {
		switch {
		case len(s.users) == 0 && !s.idle.IsZero():
			if left := linger - now.Sub(s.idle); left > 0 {
				if next == 0 || left < next {
					next = left
				}
				continue
			}
			delete(e.subs, c)
			if s.end != nil {
				s.end()
			}
			if s.sent {
				drop = append(drop, c)
			}
		case !s.sent:
			s.sent = true
			add = append(add, c)
		}
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), listenLimit)
	defer cancel()
	if len(drop) > 0 {
		if conn.Unsubscribe(ctx, drop...) != nil {
			return 0, false
		}
	}
	if len(add) > 0 {
		defer func() {
			if ok {
				e.modes.hears(nil)
			}
		}()
	}
	for len(add) > 0 {
		some := add[:min(len(add), 256)]
		add = add[len(some):]
		if err := conn.Subscribe(ctx, some...); err != nil {
			var refusal wire.Refusal
			if errors.As(err, &refusal) {
				if denied(string(refusal)) {
					e.modes.hears(refusal)
				}
				e.mu.Lock()
				select {
				case <-e.bar:
				default:
					close(e.bar)
				}
				e.mu.Unlock()
			}
			return 0, false
		}
	}
	return next, true
}

// confirm runs in the goroutine that reads the connection.
func (e *ear) confirm(channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.subs[channel]
	if s == nil || !s.sent || e.closed {
		return
	}
	select {
	case <-s.on:
		return
	default:
		close(s.on)
	}
	if strings.HasPrefix(channel, wakePrefix) && len(e.holders) > 0 {
		ps := slices.Collect(maps.Values(e.holders))
		e.wg.Go(func() { missed(e.life, ps) })
	}
}

// missed tells holders whose names others wait for already: who came before the server let us listen told nobody.
func missed(ctx context.Context, ps []*place) {
	questions := make([]request, len(ps))
	for i, p := range ps {
		questions[i] = request{keys: []string{p.k.line()}, args: []string{"ZCARD"}}
	}
	for i, a := range ps[0].d.lanes.many(ctx, minLimit, questions) {
		if n, err := a.msg.AsInt64(); a.err == nil && err == nil && n > 0 {
			ps[i].wanted()
		}
	}
}

// hold lets p be told that others want what it is about to hold. It does not wait until that works.
func (e *ear) hold(p *place) {
	if !e.modes.messages() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.holders) >= max(e.prune, 64) {
		for id, p := range e.holders {
			if p.runOut() {
				delete(e.holders, id)
			}
		}
		e.prune = 2 * len(e.holders)
	}
	e.holders[p.r.ID] = p
	e.use(wakePrefix+client(p.r.ID), p)
}

// release ends hold, and what was told by it.
func (e *ear) release(id string) {
	e.mu.Lock()
	p := e.holders[id]
	delete(e.holders, id)
	e.mu.Unlock()
	if p != nil {
		p.holds(0)
	}
}

// renewed says that the hold of that ID goes on for ttl.
func (e *ear) renewed(id string, ttl time.Duration) {
	e.mu.Lock()
	p := e.holders[id]
	e.mu.Unlock()
	if p != nil {
		p.holds(ttl)
	}
}

// message runs in the goroutine that reads the connection.
func (e *ear) message(channel, payload string) {
	if strings.HasPrefix(channel, wakePrefix) {
		member, later, delayed := strings.Cut(payload, " ")
		if id, wanted := strings.CutPrefix(payload, "!"); wanted {
			e.mu.Lock()
			p := e.holders[id]
			e.mu.Unlock()
			if p != nil {
				p.wanted()
			}
			return
		}
		e.mu.Lock()
		p := e.places[member]
		e.mu.Unlock()
		if p == nil {
			return
		}
		if ms, err := strconv.Atoi(later); delayed && err == nil && ms > 0 {
			p.after(time.Duration(ms) * time.Millisecond)
			return
		}
		p.heard()
		return
	}
	e.mu.Lock()
	var ls []listener
	if s := e.subs[channel]; s != nil {
		ls = make([]listener, 0, len(s.users))
		for l := range s.users {
			ls = append(ls, l)
		}
	}
	e.mu.Unlock()
	for _, l := range ls {
		l.heard()
	}
}

// all tells everybody that waits to look, spread over a tenth of a second: messages may have been lost.
func (e *ear) all() {
	e.mu.Lock()
	ps := make([]*place, 0, len(e.places))
	for _, p := range e.places {
		ps = append(ps, p)
	}
	var ws []listener
	for _, s := range e.subs {
		for l := range s.users {
			if _, ok := l.(*place); !ok {
				ws = append(ws, l)
			}
		}
	}
	e.mu.Unlock()
	for _, p := range ps {
		p.after(rand.N(100 * time.Millisecond))
	}
	for _, w := range ws {
		w.heard()
	}
}

func (e *ear) close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	close(e.done)
	e.end()
	conn := e.conn
	clear(e.places)
	clear(e.holders)
	e.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	e.wg.Wait()
}
