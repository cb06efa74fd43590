package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// lane is one connection, and a goroutine that serves it when there is more to do than one caller does by itself.
type lane struct {
	l      *lanes
	kick   chan struct{} // capacity 1
	busy   bool          // under lanes.mu
	coming bool          // under lanes.mu: it has not looked yet at what is pending

	flight []*call // under lanes.mu: what it took and has no answer to

	// Of whoever keeps it busy.
	cmds []wire.Command
	out  []wire.Result
	args []string // what the commands of several requests are made of

	mu   sync.Mutex
	conn wire.Conn // nil: not connected
}

// inline sends one request in the goroutine of its caller, who would otherwise pay for two changes of goroutine. When ctx
// ends meanwhile, the connection is cut.
func (ln *lane) inline(ctx context.Context, until time.Time, r request) (wire.Reply, error) {
	defer ln.l.wg.Done()
	defer ln.free()
	conn, err := ln.connect()
	if err != nil {
		return wire.Reply{}, fmt.Errorf("redis: cannot connect: %w: %w", driver.ErrNotDone, err)
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
	ln.converse(until, conn, []*call{c})
	switch {
	case c.err == nil || isNotDone(c.err):
	case ctx.Err() != nil:
		c.err = fmt.Errorf("redis: %w", context.Cause(ctx))
	case ln.l.isClosed():
		c.err = errCut
	}
	return c.msg, c.err
}

// send sends a batch as one pipeline and hands out the answers. err says why there is no connection.
func (ln *lane) send(conn wire.Conn, err error, batch []*call) {
	if err != nil {
		ln.landed()
		for _, c := range batch {
			c.finish(wire.Reply{}, fmt.Errorf("redis: cannot connect: %w: %w", driver.ErrNotDone, err))
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

// connect answers the lane's connection, made and tried if there is none.
func (ln *lane) connect() (wire.Conn, error) {
	ln.mu.Lock()
	conn := ln.conn
	ln.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	conn, err := ln.l.redis.Connect(time.Now().Add(maxLimit))
	if err != nil {
		return nil, err
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.conn = conn
	return conn, nil
}

func (ln *lane) connected() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.conn != nil
}

// drop closes the lane's connection. It does not wait for what rueidis does on that occasion: over RESP2, for instance, it
// makes one more connection first. It answers whether there was one.
func (ln *lane) drop() bool {
	ln.mu.Lock()
	conn := ln.conn
	ln.conn = nil
	ln.mu.Unlock()
	if conn != nil {
		ln.l.wg.Go(conn.Close)
	}
	return conn != nil
}
