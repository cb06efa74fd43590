package redislock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// lanes sends the requests of a driver to the server. A request is sent at once as long as a lane is free. Whatever is pending
// when one gets free is sent as one pipeline (natural batching), without a timer: under load, pipelines grow by themselves.
//
// Over rueidis each lane has a connection of its own and is alone on it, so that it is served on the synchronous path. Several
// keep the server at work while one of them hands out answers; and where the network takes most of the time, a request does not
// wait for the answer to the one before it.
type lanes struct {
	redis   wire.Client
	modes   *modes
	cluster bool // no lanes: the client finds the node
	life    context.Context
	end     func()
	closing chan struct{}
	wg      sync.WaitGroup

	mu       sync.Mutex
	pending  []*call
	lanes    [5]*lane
	watching bool // watch comes
	closed   bool
}

const (
	minBatch = 64                     // requests that a pipeline may take in any case; of more, it leaves the other lanes their share
	look     = 100 * time.Millisecond // between looks for calls whose time is over
	minLimit = time.Second            // a connection whose answers nobody waits for any more is given up after this, at the earliest
	maxLimit = 5 * time.Second        // and at the latest
)

var (
	errSlow   = errors.New("no answer in time")
	errClosed = fmt.Errorf("redis: the driver was closed: %w: %w", driver.ErrNotDone, driver.ErrClosed)
	errCut    = fmt.Errorf("redis: the driver was closed while a request was under way: %w", driver.ErrClosed)
)

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newLanes(client wire.Client, m *modes) *lanes {
	l := &lanes{redis: client, modes: m, cluster: client.Cluster(), closing: make(chan struct{})}
	l.life, l.end = context.WithCancel(context.Background())
	for i := range l.lanes {
		l.lanes[i] = &lane{l: l}
	}
	return l
}

// answer is what a request was answered.
type answer struct {
	msg wire.Reply
	err error
}

// run sends a request and waits for its answer, for limit at most. An error that matches driver.ErrNotDone says that the
// server did not get the request, or refused it; any other one leaves that open.
func (l *lanes) run(ctx context.Context, limit time.Duration, r request) (wire.Reply, error) {
	if ctx.Err() != nil {
		return wire.Reply{}, notSent(context.Cause(ctx))
	}
	if r.script != nil {
		if why := l.modes.get().NoScripts; why != nil {
			return wire.Reply{}, errNoScripts(why)
		}
	}
	if l.cluster {
		return l.route(ctx, min(limit, maxLimit), r)
	}
	now := time.Now()
	until := now.Add(min(limit, maxLimit))
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if ln := l.alone(ctx); ln != nil {
		return ln.inline(ctx, until, r)
	}
	c := calls.Get().(*call)
	c.request, c.until, c.limit = r, until, now.Add(limit)
	if !l.put(c) {
		return wire.Reply{}, errClosed
	}
	var short <-chan time.Time
	if limit < 5*look { // watch is too coarse for it
		t := time.NewTimer(limit)
		defer t.Stop()
		short = t.C
	}
	var why error
	if gone := ctx.Done(); gone == nil && short == nil {
		<-c.done
	} else {
		select {
		case <-c.done:
		case <-gone:
			why = context.Cause(ctx)
		case <-short:
			why = errSlow
		}
	}
	if why != nil {
		if was := c.end(left); was < over {
			return wire.Reply{}, unanswered(was, why)
		}
		<-c.done
	}
	msg, err := c.msg, c.err
	if c.state.Load() == over { // else the lane still knows it
		*c = call{done: c.done}
		calls.Put(c)
	}
	return msg, err
}

func notSent(why error) error {
	return fmt.Errorf("redis: the request was not sent: %w: %w", driver.ErrNotDone, why)
}

// post sends a command and does not wait.
func (l *lanes) post(keys []string, args ...string) { l.postThen(nil, keys, args...) }

// postThen calls then, if not nil, when the answer is there.
func (l *lanes) postThen(then func(error), keys []string, args ...string) {
	r := request{keys: keys, args: args}
	if l.cluster {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed {
			l.wg.Go(func() {
				if _, err := l.route(l.life, minLimit, r); then != nil {
					then(err)
				}
			})
		}
		return
	}
	l.put(&call{request: r, until: time.Now().Add(minLimit), done: make(chan struct{}, 1), then: then})
}

func (l *lanes) put(cs ...*call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.pending = append(l.pending, cs...)
	l.more()
	if !l.watching {
		l.watching = true
		time.AfterFunc(look, l.watch)
	}
	return true
}

// more starts a lane for what is pending: one that is free, and if possible connected. It starts none if one that is about to look
// will take it all. l.mu is held.
func (l *lanes) more() {
	var free *lane
	few, connecting := len(l.pending) <= minBatch, false
	for _, ln := range l.lanes {
		switch up := ln.connected(); {
		case ln.coming && up && few:
			return
		case ln.coming:
			connecting = true
		case !ln.busy && (free == nil || up && !free.connected()):
			free = ln
		}
	}
	if free != nil && (free.connected() || !connecting || !few) {
		free.start()
	}
}

// watch looks now and then, as long as there is something to do, and lets those go whose time is over.
func (l *lanes) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) == 0 && !slices.ContainsFunc(l.lanes[:], func(ln *lane) bool { return ln.busy }) {
		l.watching = false
		return
	}
	now := time.Now()
	for _, c := range l.unanswered() {
		if !c.limit.IsZero() && now.After(c.limit) {
			c.expire(errSlow)
		}
	}
	time.AfterFunc(look, l.watch)
}

// unanswered are all calls that are queued or on their way. l.mu is held.
func (l *lanes) unanswered() []*call {
	all := slices.Clone(l.pending)
	for _, ln := range l.lanes {
		all = append(all, ln.flight...)
	}
	return all
}

// start wakes the lane's goroutine. l.mu is held and the lane was not busy.
func (ln *lane) start() {
	ln.busy, ln.coming = true, true
	if ln.kick == nil {
		ln.kick = make(chan struct{}, 1)
		ln.l.wg.Add(1)
		go ln.work()
	}
	ln.kick <- struct{}{}
}

// alone answers the first lane, now busy for its caller, if nothing else goes on, it is connected, and ctx can end what
// goes on there.
func (l *lanes) alone(ctx context.Context) *lane {
	ln := l.lanes[0]
	if ctx.Done() != nil && !l.redis.Cuts() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || ln.busy || len(l.pending) > 0 || !ln.connected() {
		return nil
	}
	ln.busy = true
	l.wg.Add(1)
	return ln
}

// free ends the work of a lane, or gives it to the lane's goroutine if there is more.
func (ln *lane) free() {
	l := ln.l
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.busy = false
	if len(l.pending) > 0 && !l.closed {
		ln.start()
	}
}

// work is the lane's goroutine.
func (ln *lane) work() {
	defer ln.l.wg.Done()
	for {
		select {
		case <-ln.kick:
		case <-ln.l.closing:
			ln.drop()
			return
		}
		for {
			runtime.Gosched() // let others that are about to ask come along, those too who just got an answer
			if !ln.wanted() {
				break
			}
			// Meanwhile a lane that is connected may get free, and take what is pending.
			conn, err := ln.connect()
			if err != nil && ln.leave() {
				break
			}
			if batch := ln.take(); len(batch) > 0 {
				ln.send(conn, err, batch)
			}
		}
	}
}

// wanted reports whether anything is pending; else the lane is free now.
func (ln *lane) wanted() bool {
	l := ln.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) == 0 {
		ln.busy, ln.coming = false, false
		return false
	}
	return true
}

// leave frees a lane that cannot connect, if there is one that is connected: what is pending is left to that.
func (ln *lane) leave() bool {
	l := ln.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.lanes {
		if other != ln && other.connected() {
			ln.busy, ln.coming = false, false
			if !other.busy {
				other.start()
			}
			return true
		}
	}
	return false
}

func (ln *lane) take() []*call {
	l := ln.l
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.coming = false
	batch := l.pending
	if most := max(minBatch, len(batch)/len(l.lanes)); len(batch) > most {
		batch, l.pending = batch[:most:most], batch[most:]
	} else {
		l.pending = nil
	}
	ln.flight = append(ln.flight[:0], batch...)
	return batch
}

// landed says that the answers of what the lane took are about to be handed out.
func (ln *lane) landed() {
	ln.l.mu.Lock()
	defer ln.l.mu.Unlock()
	clear(ln.flight)
	ln.flight = ln.flight[:0]
}

// suspect closes the connections that nobody uses: what has broken one may have broken them, and a request that is sent to find
// out has an unknown outcome.
func (l *lanes) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.lanes {
		if !ln.busy {
			ln.drop()
		}
	}
}

// close ends all calls and waits for the lanes.
func (l *lanes) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		for _, c := range l.unanswered() {
			c.expire(driver.ErrClosed)
		}
		l.pending = nil
		close(l.closing)
		l.end()
	}
	l.mu.Unlock()
	for _, ln := range l.lanes {
		ln.drop() // cuts a request under way
	}
	l.wg.Wait()
	for _, ln := range l.lanes {
		ln.drop() // one may just have been made
	}
	l.wg.Wait()
}

func (l *lanes) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
