package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// lookouts see to it that whoever waits for a key of a Plain is told when it may have gone. Nobody in this layout says so,
// but the server does: a key that was read on a connection with CLIENT TRACKING is told on that connection once it changes,
// goes or expires, and has to be read again to be told again. Where that cannot be had, the keys are read again and again,
// all that are due with one command.
//
// There is one lookout, or in a cluster one for each node that has keys somebody waits for. It has a goroutine and at most
// one connection, and neither when nobody has waited for a moment.
type lookouts struct {
	d    *Driver
	can  tracking // nil: the library cannot
	life context.Context
	end  func()
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	why    error // the server does not tell of changes; nil: not known
	seen   map[string]*seen
	byNode map[string]*lookout
}

// tracking is a client that can have changes of keys told.
type tracking interface {
	// nodes are the addresses of a cluster's nodes, without a cluster just "".
	nodes() []string

	// track makes a connection to a node, and has told called, in the goroutine that reads it, for keys that were read on it
	// and have changed since: all of them if it names none. errNoTracking if the server does not do that.
	track(ctx context.Context, node string, told func(keys []string)) (tracked, error)
}

// tracked is such a connection.
type tracked interface {
	get(ctx context.Context, keys []string) []wire.Result
	lost() <-chan error // closed, or gets an error, when the connection is lost
	cut()               // may be called at any time, and twice
}

// errNoTracking says that changes are not told.
var errNoTracking = errors.New("no CLIENT TRACKING")

// lookout looks at the keys of one node. All that changes is under lookouts.mu, unless said otherwise.
type lookout struct {
	s     *lookouts
	node  string        // of a cluster, or ""
	kick  chan struct{} // capacity 1
	names int
	idle  time.Time // since when there are no names
	queue []*seen   // to be looked at now
	poll  map[*seen]struct{}
	conn  tracked // nil: none; only the goroutine changes it

	// Only the goroutine touches these.
	retry   time.Time // no connection before this
	pause   time.Duration
	refused bool
}

// seen is a key that somebody waits for.
type seen struct {
	key    string
	at     *lookout
	users  map[listener]struct{}
	first  chan struct{} // closed once it was looked at
	armed  bool          // the server tells the next change
	queued bool
	gone   bool // nobody waits any more

	known, missing bool
	value          string

	next  time.Time     // when to look, unless it is armed
	pause time.Duration // between looks
}

const (
	pollFirst = 10 * time.Millisecond
	pollMost  = 250 * time.Millisecond
	pollEarly = 5 * time.Millisecond // what is due this soon is looked at with the others
	pollBatch = 512
)

func newLookouts(d *Driver) *lookouts {
	s := &lookouts{d: d, seen: map[string]*seen{}, byNode: map[string]*lookout{}}
	s.life, s.end = context.WithCancel(context.Background())
	s.can, _ = d.redis.(tracking)
	return s
}

// add lets l be told of a key. What has changed since the caller read it is told too: the first look sees it.
func (s *lookouts) add(key string, l listener) *seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.seen[key]
	if w == nil {
		w = &seen{key: key, users: map[listener]struct{}{}, first: make(chan struct{}), pause: pollFirst}
		s.seen[key] = w
		s.put(w, s.anyNode(""))
	}
	if _, there := w.users[l]; !there {
		w.users[l] = struct{}{}
		w.look()
	}
	return w
}

// forget ends what was done for l.
func (s *lookouts) forget(key string, l listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.seen[key]
	if w == nil {
		return
	}
	delete(w.users, l)
	if len(w.users) > 0 {
		return
	}
	delete(s.seen, key)
	w.gone = true
	w.leave()
}

// anyNode is a node of the cluster, another one than that if there is one; "" without a cluster.
func (s *lookouts) anyNode(but string) string {
	if s.can == nil {
		return ""
	}
	found := but
	for _, node := range s.can.nodes() {
		if node != but {
			if found = node; s.byNode[node] != nil {
				break
			}
		}
	}
	return found
}

// put gives a key to the lookout of a node. s.mu is held.
func (s *lookouts) put(w *seen, node string) {
	if s.closed {
		return
	}
	o := s.byNode[node]
	if o == nil {
		o = &lookout{s: s, node: node, kick: make(chan struct{}, 1), poll: map[*seen]struct{}{}}
		s.byNode[node] = o
		s.wg.Go(o.run)
	}
	o.names++
	w.at, w.queued = o, false
	o.poll[w] = struct{}{}
}

// leave takes a key from its lookout. s.mu is held.
func (w *seen) leave() {
	o := w.at
	if o == nil {
		return
	}
	w.at, w.armed = nil, false
	delete(o.poll, w)
	if o.names--; o.names == 0 {
		o.idle = time.Now()
		o.poke()
	}
}

// look lets a key be looked at soon. s.mu is held.
func (w *seen) look() {
	if o := w.at; o != nil && !w.queued {
		w.queued = true
		o.queue = append(o.queue, w)
		o.poke()
	}
}

func (o *lookout) poke() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

// Mode is how p works at present, as far as it has found out. NoMessages says why the server does not tell those who wait that
// a name got free (CLIENT TRACKING), so that they look at it every 10 to 250 ms; nil: it does, or nobody has waited yet.
func (p *Plain) Mode() Mode {
	m := p.d.Mode()
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	m.NoMessages = p.out.why
	return m
}

// run is the lookout's goroutine.
func (o *lookout) run() {
	defer o.drop()
	life, end := context.WithCancel(o.s.life)
	defer end()
	o.s.start(func() { o.s.d.redis.Follow(life, o.turn) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait, ok := o.due()
		if !ok {
			return
		}
		if len(due) > 0 {
			o.look(due)
			continue
		}
		timer.Reset(wait)
		var lost <-chan error
		if o.conn != nil {
			lost = o.conn.lost()
		}
		select {
		case <-o.kick:
		case <-timer.C:
		case <-lost:
			o.drop()
		case <-o.s.life.Done():
			return
		}
	}
}

// due answers what is to be looked at now, or else when to ask again; false when there is nothing to do any more.
func (o *lookout) due() (due []*seen, wait time.Duration, ok bool) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	now := time.Now()
	switch {
	case o.s.closed:
		return nil, 0, false
	case o.names == 0 && now.Sub(o.idle) >= linger:
		delete(o.s.byNode, o.node)
		return nil, 0, false
	case o.names == 0:
		o.queue = nil
		return nil, linger - now.Sub(o.idle), true
	}
	for _, w := range o.queue {
		if w.queued = false; w.at == o {
			due = append(due, w)
			w.next = now.Add(time.Hour) // not once more below
		}
	}
	o.queue = nil
	wait = time.Hour
	for w := range o.poll {
		switch left := w.next.Sub(now); {
		case left <= pollEarly:
			due = append(due, w)
		case left < wait:
			wait = left
		}
	}
	for _, w := range due {
		w.next = now.Add(jitter(w.pause))
	}
	return due, wait, true
}

// jitter is d, give or take a quarter.
func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }

// look reads keys, on the connection that is told of their changes if there is one.
func (o *lookout) look(due []*seen) {
	if o.connect() {
		due = o.arm(due)
	}
	o.ask(due)
	if o.conn != nil || o.node == "" || o.refused {
		return
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	for _, w := range due { // perhaps this node is down for good
		if w.at == o {
			w.leave()
			o.s.put(w, o.s.anyNode(o.node))
		}
	}
}

// connect reports whether there is a connection that is told of changes, made now if it is time.
func (o *lookout) connect() bool {
	now := time.Now()
	if o.conn != nil || now.Before(o.retry) {
		return o.conn != nil
	}
	conn, err := o.track()
	o.refused = errors.Is(err, errNoTracking)
	if o.pause = min(max(2*o.pause, 20*time.Millisecond), 2*time.Second); o.refused {
		o.pause = barred
	}
	o.retry = now.Add(jitter(o.pause))
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if err != nil {
		if o.refused {
			o.s.why = err
		}
		return false
	}
	o.conn, o.pause, o.s.why = conn, 0, nil
	return true
}

func (o *lookout) track() (tracked, error) {
	if o.s.can == nil {
		return nil, fmt.Errorf("%w over this library", errNoTracking)
	}
	ctx, cancel := context.WithTimeout(o.s.life, listenLimit)
	defer cancel()
	return o.s.can.track(ctx, o.node, o.told)
}

// drop ends the connection. What it would have told is looked at.
func (o *lookout) drop() {
	if o.conn == nil {
		return
	}
	o.conn.cut()
	o.retry = time.Now().Add(jitter(20 * time.Millisecond)) // or one that is always lost would keep us busy
	o.s.mu.Lock()
	o.conn = nil
	o.s.mu.Unlock()
	o.told(nil)
}

// told runs in the goroutine that reads the connection: keys have changed, all of them if there are none.
func (o *lookout) told(keys []string) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	changed := func(w *seen) {
		if w != nil && w.at == o && w.armed {
			w.armed = false
			o.poll[w] = struct{}{}
			w.look()
		}
	}
	if len(keys) == 0 {
		for _, w := range o.s.seen {
			changed(w)
		}
	}
	for _, key := range keys {
		changed(o.s.seen[key])
	}
}

// arm reads keys on the connection, and answers those that must be looked at in another way.
func (o *lookout) arm(due []*seen) (others []*seen) {
	ctx, cancel := context.WithTimeout(o.s.life, listenLimit)
	defer cancel()
	broken := false
	for len(due) > 0 && !broken {
		some := due[:min(len(due), pollBatch)]
		due = due[len(some):]
		keys := make([]string, len(some))
		o.s.mu.Lock()
		for i, w := range some {
			keys[i] = w.key
			if w.at == o { // what is told from now on may be about this very read
				w.armed = true
				delete(o.poll, w)
			}
		}
		o.s.mu.Unlock()
		var tell []listener
		answers := o.conn.get(ctx, keys)
		o.s.mu.Lock()
		for i, r := range answers {
			w := some[i]
			var refusal wire.Refusal
			refused := errors.As(r.Err, &refusal)
			broken = broken || r.Err != nil && !refused
			switch node := moved(refusal); {
			case w.at != o:
			case r.Err == nil || code(string(refusal)) == "WRONGTYPE":
				tell = append(tell, w.saw(r.Reply)...)
			case node != "" && node != o.node && slices.Contains(o.s.can.nodes(), node):
				w.leave()
				o.s.put(w, node)
				w.look()
			default:
				if w.armed {
					w.armed = false
					o.poll[w] = struct{}{}
				}
				others = append(others, w)
			}
		}
		o.s.mu.Unlock()
		for _, l := range tell {
			l.heard()
		}
	}
	if broken {
		o.drop()
	}
	return append(others, due...)
}

// moved is the node that a refusal sends to.
func moved(r wire.Refusal) string {
	if f := strings.Fields(string(r)); len(f) == 3 && f[0] == "MOVED" {
		return f[2]
	}
	return ""
}

// ask reads keys as any other request is sent.
func (o *lookout) ask(due []*seen) {
	l := o.s.d.lanes
	if !l.cluster {
		for len(due) > 0 {
			some := due[:min(len(due), pollBatch)]
			due = due[len(some):]
			keys := make([]string, len(some))
			for i, w := range some {
				keys[i] = w.key
			}
			msg, err := l.run(o.s.life, minLimit, request{keys: keys, args: []string{"MGET"}})
			var answers []wire.Reply
			if err == nil {
				answers, err = msg.ToArray()
			}
			if err != nil || len(answers) != len(some) {
				answers = nil
			}
			o.polled(some, answers)
		}
		return
	}
	var wg sync.WaitGroup
	for _, w := range due {
		wg.Go(func() {
			var answers []wire.Reply
			if msg, err := l.run(o.s.life, minLimit, request{keys: []string{w.key}, args: []string{"GET"}}); err == nil {
				answers = append(answers, msg)
			}
			o.polled([]*seen{w}, answers)
		})
	}
	wg.Wait()
}

// polled notes answers. Without answers, whoever waits had better ask by himself.
func (o *lookout) polled(ws []*seen, answers []wire.Reply) {
	var tell []listener
	o.s.mu.Lock()
	for i, w := range ws {
		if w.gone {
			continue
		}
		if answers == nil {
			for l := range w.users {
				tell = append(tell, l)
			}
		} else {
			tell = append(tell, w.saw(answers[i])...)
		}
		w.next = time.Now().Add(jitter(w.pause))
		w.pause = min(w.pause*3/2, pollMost)
	}
	o.s.mu.Unlock()
	for _, l := range tell {
		l.heard()
	}
}

// saw notes what a key holds, and answers who is to be told: places of a key that is not there, watches of a change. s.mu is
// held.
func (w *seen) saw(msg wire.Reply) (tell []listener) {
	value, err := msg.ToString()
	missing := err != nil // or of another type, and the place will say so
	first := !w.known
	changed := !first && (missing != w.missing || value != w.value)
	w.known, w.missing, w.value = true, missing, value
	if first {
		close(w.first)
	}
	if changed { // a busy name: do not sleep for long
		w.pause = pollFirst
	}
	for l := range w.users {
		if _, watching := l.(*watch); watching && changed || !watching && missing {
			tell = append(tell, l)
		}
	}
	return tell
}

// turn drops the connection: another server is the primary now.
func (o *lookout) turn() {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.conn != nil && !o.s.closed {
		o.s.wg.Go(o.conn.cut)
	}
}

// start runs f in a goroutine, unless all is closed.
func (s *lookouts) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Go(f)
	}
	return !s.closed
}

// close ends all of it and waits for that.
func (s *lookouts) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.wg.Wait()
}

// Watch ticks when a name was taken or got free, and about once a second in any case. The channel is closed when ctx ends or
// the driver is closed.
func (p *Plain) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := p.check(driver.Hold{Kind: driver.Exclusive, Name: name, ID: "watch"}); err != nil {
		return nil, err
	}
	if p.d.lanes.isClosed() {
		return nil, errClosed
	}
	key := p.d.opts.Prefix + name
	w := &watch{news: make(chan struct{}, 1)}
	first := time.NewTimer(subscribing)
	defer first.Stop()
	select {
	case <-p.out.add(key, w).first:
	case <-first.C:
	case <-ctx.Done():
	}
	out := make(chan struct{}, 1)
	if !p.out.start(func() {
		defer close(out)
		defer p.out.forget(key, w)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.news:
			case <-tick.C:
			case <-ctx.Done():
				return
			case <-p.out.life.Done():
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}) {
		return nil, errClosed
	}
	return out, nil
}
