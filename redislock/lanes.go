package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
)

// lanes sends the requests of a driver to the server. Whatever is pending when a lane gets free is sent as one pipeline
// (natural batching), without a timer: alone, a request is sent at once; under load, pipelines grow by themselves.
//
// Each lane has a connection of its own and is alone on it, so that rueidis serves it on its synchronous path. A second
// lane lets the server work while the first one hands out answers.
type lanes struct {
	dedicate func() dedicated
	client   rueidis.Client
	cluster  bool // no lane of its own: rueidis finds the node
	closing  chan struct{}
	wg       sync.WaitGroup

	mu       sync.Mutex
	pending  []*call
	lanes    [2]*lane
	watching bool // rescue comes
	closed   bool
}

const (
	maxBatch = 512
	crowd    = 16                    // pending requests that call for the second lane
	stuck    = 50 * time.Millisecond // after which the second lane does not wait for a crowd
	minLimit = time.Second           // a connection whose answers nobody waits for any more is given up after this, at the earliest
	maxLimit = 5 * time.Second       // and at the latest
)

type lane struct {
	l     *lanes
	kick  chan struct{} // capacity 1
	busy  bool          // under lanes.mu
	since time.Time     // under lanes.mu: when it began with what it does

	mu   sync.Mutex
	conn *dedicated // nil: not connected
}

// dedicated is a connection for one use.
type dedicated struct {
	rueidis.DedicatedClient
	raw net.Conn // nil: not known, since the client is somebody else's
}

// cut closes the connection, whatever the server does. Without raw, rueidis waits up to a second for a silent server.
func (d *dedicated) cut() {
	if d.raw != nil {
		d.raw.Close()
	}
	d.Close()
}

func dedicate(client rueidis.Client) func() dedicated {
	return func() dedicated {
		conn, _ := client.Dedicate()
		return dedicated{conn, nil}
	}
}

// request is what a call asks.
type request struct {
	script     *script // nil: args[0] is a command
	keys, args []string
	quick      *quick // asked instead at first, if there is one
}

// quick is the usual case of a request, which a script carries out for many at once. Its answer is "" if the case was
// another one (nothing was done), and 2 if it was begun only; then the whole request follows.
type quick struct {
	script     *script
	keys, args []string
	whole      func(begun bool) request
}

// call is one request on its way. Whoever made it waits for done, or leaves.
type call struct {
	request
	until time.Time // when its maker leaves at the latest
	done  chan struct{}
	timer *time.Timer
	state atomic.Int32

	msg rueidis.RedisMessage
	err error
}

const (
	queued int32 = iota
	sent
	left
)

var (
	errSlow   = errors.New("no answer in time")
	errClosed = fmt.Errorf("redis: the driver was closed: %w: %w", driver.ErrNotDone, driver.ErrClosed)
	errCut    = fmt.Errorf("redis: the driver was closed while a request was under way: %w", driver.ErrClosed)
)

var calls = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &call{done: make(chan struct{}, 1), timer: t}
}}

func newLanes(client rueidis.Client, dedicate func() dedicated) *lanes {
	l := &lanes{client: client, dedicate: dedicate, cluster: client.Mode() == rueidis.ClientModeCluster, closing: make(chan struct{})}
	for i := range l.lanes {
		l.lanes[i] = &lane{l: l}
	}
	return l
}

// run sends a request and waits for its answer, for limit at most. An error that matches driver.ErrNotDone says that the
// server did not get the request, or refused it; any other one leaves that open.
func (l *lanes) run(ctx context.Context, limit time.Duration, r request) (rueidis.RedisMessage, error) {
	if ctx.Err() != nil {
		return rueidis.RedisMessage{}, notSent(context.Cause(ctx))
	}
	until := time.Now().Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if ln := l.alone(); ln != nil {
		return ln.inline(ctx, until, r)
	}
	c := calls.Get().(*call)
	c.request, c.until = r, until
	c.timer.Reset(limit)
	if !l.put(c) {
		return rueidis.RedisMessage{}, errClosed
	}
	var why error
	select {
	case <-c.done:
		c.timer.Stop()
		msg, err := c.msg, c.err
		*c = call{done: c.done, timer: c.timer}
		calls.Put(c)
		return msg, err
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-c.timer.C:
		why = errSlow
	case <-l.closing:
		why = driver.ErrClosed
	}
	c.timer.Stop()
	switch before := c.state.Swap(left); {
	case before == queued && why == driver.ErrClosed:
		return rueidis.RedisMessage{}, errClosed
	case before == queued:
		return rueidis.RedisMessage{}, notSent(why)
	case why == driver.ErrClosed:
		return rueidis.RedisMessage{}, errCut
	}
	return rueidis.RedisMessage{}, fmt.Errorf("redis: %w", why)
}

func notSent(why error) error {
	return fmt.Errorf("redis: the request was not sent: %w: %w", driver.ErrNotDone, why)
}

// post sends a command and does not wait.
func (l *lanes) post(keys []string, args ...string) {
	l.put(&call{request: request{keys: keys, args: args}, until: time.Now().Add(minLimit), done: make(chan struct{}, 1)})
}

func (l *lanes) put(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.pending = append(l.pending, c)
	switch one, two := l.lanes[0], l.lanes[1]; {
	case !one.busy:
		one.start()
	case !two.busy && (len(l.pending) >= crowd || time.Since(one.since) > stuck):
		two.start()
	case !two.busy && !l.watching:
		l.watching = true
		time.AfterFunc(2*stuck, l.rescue)
	}
	return true
}

// rescue starts the second lane if the first one is stuck and something waits for it.
func (l *lanes) rescue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watching = false
	switch one, two := l.lanes[0], l.lanes[1]; {
	case l.closed || len(l.pending) == 0 || !one.busy || two.busy:
	case time.Since(one.since) > stuck:
		two.start()
	default:
		l.watching = true
		time.AfterFunc(2*stuck, l.rescue)
	}
}

// start wakes the lane's goroutine. l.mu is held and the lane was not busy.
func (ln *lane) start() {
	ln.busy, ln.since = true, time.Now()
	if ln.kick == nil {
		ln.kick = make(chan struct{}, 1)
		ln.l.wg.Add(1)
		go ln.work()
	}
	ln.kick <- struct{}{}
}

// alone answers the first lane, now busy for its caller, if nothing else goes on and it is connected.
func (l *lanes) alone() *lane {
	ln := l.lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cluster || l.closed || ln.busy || len(l.pending) > 0 || !ln.connected() {
		return nil
	}
	ln.busy, ln.since = true, time.Now()
	l.wg.Add(1)
	return ln
}

// inline sends one request in the goroutine of its caller, who would otherwise pay for two changes of goroutine. When ctx
// ends meanwhile, the connection is cut.
func (ln *lane) inline(ctx context.Context, until time.Time, r request) (rueidis.RedisMessage, error) {
	defer ln.l.wg.Done()
	defer ln.free()
	conn, err := ln.connect()
	if err != nil {
		return rueidis.RedisMessage{}, fmt.Errorf("redis: cannot connect: %w: %w", driver.ErrNotDone, err)
	}
	if ctx.Done() != nil {
		cut := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(cut)
			ln.drop()
		})
		defer func() {
			if !stop() {
				<-cut // or it would hit the next request
			}
		}()
	}
	c := &call{request: r}
	if !ln.single(until, conn, c) {
		c.done = make(chan struct{}, 1)
		ln.converse(until, conn, []*call{c})
	}
	if c.err != nil && ctx.Err() != nil && !isNotDone(c.err) {
		return rueidis.RedisMessage{}, fmt.Errorf("redis: %w", context.Cause(ctx))
	}
	return c.msg, c.err
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

// bound is a context with a deadline that costs no timer unless somebody waits for it. rueidis does so only when its
// connection is not on the synchronous path.
type bound struct {
	context.Context
	at time.Time
}

func (b bound) Deadline() (time.Time, bool) { return b.at, true }

func (b bound) Err() error {
	if time.Now().Before(b.at) {
		return nil
	}
	return context.DeadlineExceeded
}

func (b bound) Done() <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(time.Until(b.at), func() { close(done) })
	return done
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
		runtime.Gosched() // let others that are about to ask come along
		for {
			batch := ln.take()
			if len(batch) == 0 {
				break
			}
			ln.send(batch)
		}
	}
}

func (ln *lane) take() []*call {
	l := ln.l
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.since = time.Now()
	batch := l.pending
	if l.closed {
		batch = nil
	}
	switch {
	case len(batch) == 0:
		ln.busy = false
	case len(batch) > maxBatch:
		batch, l.pending = batch[:maxBatch:maxBatch], batch[maxBatch:]
	default:
		l.pending = nil
	}
	return batch
}

// send sends a batch as one pipeline and hands out the answers.
func (ln *lane) send(batch []*call) {
	conn, err := ln.connect()
	if err != nil {
		for _, c := range batch {
			c.finish(rueidis.RedisMessage{}, fmt.Errorf("redis: cannot connect: %w: %w", driver.ErrNotDone, err))
		}
		return
	}
	live := batch[:0]
	until := time.Now().Add(minLimit)
	for _, c := range batch {
		if c.state.CompareAndSwap(queued, sent) {
			live = append(live, c)
			if c.until.After(until) {
				until = c.until
			}
		}
	}
	if latest := time.Now().Add(maxLimit); until.After(latest) {
		until = latest
	}
	ln.converse(until, conn, live)
}

// single sends one call and answers it, or leaves the rest to converse.
func (ln *lane) single(until time.Time, conn rueidis.CoreClient, c *call) bool {
	t := batch{script: c.script, calls: []*call{c}}
	if c.quick != nil {
		t.script, t.quick = c.quick.script, true
	}
	c.msg, c.err = conn.Do(bound{context.Background(), until}, t.command(conn.B(), false)).ToMessage()
	if rueidis.IsRedisNil(c.err) {
		c.err = nil
	}
	refusal, refusing := rueidis.IsRedisErr(c.err)
	switch {
	case c.err == nil && t.quick:
		all, err := c.msg.ToArray()
		if err == nil && len(all) == 1 {
			c.msg, c.err = reading(all[0])
			return c.err != nil || !c.expand(c.msg)
		}
		c.err = fmt.Errorf("redis: an unknown answer: %w", err)
	case c.err == nil:
	case refusing && refusal.IsNoScript():
		return false
	case refusing:
		if code(refusal.Error()) == "READONLY" {
			ln.drop()
		}
		c.err = refused(refusal)
	default:
		ln.drop()
		c.err = fmt.Errorf("redis: %w", c.err)
	}
	return true
}

// converse sends calls until all are answered: those for which the quick script was not enough, or which the server does
// not know the script of, are sent again.
func (ln *lane) converse(until time.Time, conn rueidis.CoreClient, live []*call) {
	x := exchange{bound: bound{context.Background(), until}, missing: map[*script]bool{}}
	for len(live) > 0 {
		live = x.send(conn, live)
		if x.broken {
			ln.drop()
			for _, c := range live {
				c.finish(rueidis.RedisMessage{}, notSent(errors.New("the connection was lost")))
			}
			return
		}
	}
}

type exchange struct {
	bound   bound
	missing map[*script]bool // scripts that the server did not know
	broken  bool
	again   []*call
}

// batch is one command of a pipeline: one call, or many that share a quick script.
type batch struct {
	script *script
	calls  []*call
	quick  bool
}

// abreast is how many calls a quick script serves at once: enough to make the cost of a script small, few enough not to
// keep the server from others for long.
const abreast = 64

func (x *exchange) send(conn rueidis.CoreClient, live []*call) []*call {
	b := conn.B()
	var cmds []rueidis.Completed
	batches := batches(live)
	for _, t := range batches {
		cmds = append(cmds, t.command(b, x.missing[t.script]))
	}
	x.again = nil
	for i, r := range conn.DoMulti(x.bound, cmds...) {
		x.answer(batches[i], r)
	}
	return x.again
}

func batches(live []*call) []*batch {
	out := make([]*batch, 0, len(live))
	open := map[*script]*batch{}
	for _, c := range live {
		if c.quick == nil {
			out = append(out, &batch{script: c.script, calls: []*call{c}})
			continue
		}
		t := open[c.quick.script]
		if t == nil || len(t.calls) == abreast {
			t = &batch{script: c.quick.script, quick: true}
			open[c.quick.script] = t
			out = append(out, t)
		}
		t.calls = append(t.calls, c)
	}
	return out
}

// command makes the command, with the whole script if the server did not know it by its hash.
func (t *batch) command(b rueidis.Builder, whole bool) rueidis.Completed {
	c := t.calls[0]
	if t.script == nil {
		return b.Arbitrary(c.args[0]).Keys(c.keys...).Args(c.args[1:]...).Build()
	}
	name, script := "EVALSHA", t.script.sha
	if whole {
		name, script = "EVAL", t.script.body
	}
	cmd := b.Arbitrary(name, script)
	if !t.quick {
		return cmd.Args(strconv.Itoa(len(c.keys))).Keys(c.keys...).Args(c.args...).Build()
	}
	cmd = cmd.Args(strconv.Itoa(len(t.calls) * len(c.quick.keys)))
	for _, c := range t.calls {
		cmd = cmd.Keys(c.quick.keys...)
	}
	for _, c := range t.calls {
		cmd = cmd.Args(c.quick.args...)
	}
	return cmd.Build()
}

func (x *exchange) answer(t *batch, r rueidis.RedisResult) {
	msg, err := r.ToMessage()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	refusal, refusing := rueidis.IsRedisErr(err)
	switch {
	case err == nil && t.quick:
		x.quickly(t, msg)
	case err == nil:
		t.calls[0].finish(msg, nil)
	case refusing && refusal.IsNoScript():
		x.missing[t.script] = true
		for _, c := range t.calls {
			if c.state.Load() != left {
				x.again = append(x.again, c)
			}
		}
	case refusing:
		// After a fail-over a Sentinel's client knows the new primary, but this connection is still the old one's.
		x.broken = x.broken || code(refusal.Error()) == "READONLY"
		t.finish(refused(refusal))
	default:
		x.broken = true
		t.finish(fmt.Errorf("redis: %w", err))
	}
}

// quickly hands out the answers of a quick script.
func (x *exchange) quickly(t *batch, msg rueidis.RedisMessage) {
	all, err := msg.ToArray()
	if err != nil || len(all) != len(t.calls) {
		t.finish(fmt.Errorf("redis: %d answers to %d requests: %w", len(all), len(t.calls), err))
		return
	}
	for i, c := range t.calls {
		switch msg, err := reading(all[i]); {
		case err != nil:
			c.finish(msg, err)
		case !c.expand(msg):
			c.finish(msg, nil)
		case c.state.Load() != left || msg.IsInt64():
			x.again = append(x.again, c)
		}
	}
}

// reading separates the answers of a quick script from its errors.
func reading(msg rueidis.RedisMessage) (rueidis.RedisMessage, error) {
	if refusal, ok := rueidis.IsRedisErr(msg.Error()); ok {
		return rueidis.RedisMessage{}, refused(refusal)
	}
	return msg, nil
}

// expand turns a quick request into the whole one, if the answer asks for that.
func (c *call) expand(msg rueidis.RedisMessage) bool {
	if msg.IsInt64() {
		if n, _ := msg.ToInt64(); n != 2 {
			return false
		}
		c.request = c.quick.whole(true)
		return true
	}
	if s, err := msg.ToString(); err != nil || s != "" {
		return false
	}
	c.request = c.quick.whole(false)
	return true
}

func (t *batch) finish(err error) {
	for _, c := range t.calls {
		c.finish(rueidis.RedisMessage{}, err)
	}
}

func (c *call) finish(msg rueidis.RedisMessage, err error) {
	c.msg, c.err = msg, err
	c.done <- struct{}{}
}

// connect answers the lane's connection, made and tried if there is none.
func (ln *lane) connect() (rueidis.CoreClient, error) {
	if ln.l.cluster {
		return ln.l.client, nil
	}
	ln.mu.Lock()
	conn := ln.conn
	ln.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	d := ln.l.dedicate()
	if err := d.Do(bound{context.Background(), time.Now().Add(maxLimit)}, d.B().Ping().Build()).NonRedisError(); err != nil {
		d.cut()
		return nil, err
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.conn = &d
	return ln.conn, nil
}

func (ln *lane) connected() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.conn != nil
}

// drop closes the lane's connection.
func (ln *lane) drop() {
	ln.mu.Lock()
	conn := ln.conn
	ln.conn = nil
	ln.mu.Unlock()
	if conn != nil {
		conn.cut()
	}
}

// close ends all calls and waits for the lanes.
func (l *lanes) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.pending = nil
		close(l.closing)
	}
	l.mu.Unlock()
	for _, ln := range l.lanes {
		ln.drop() // cuts a request under way
	}
	l.wg.Wait()
}

func (l *lanes) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
