package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
)

// route sends a request to the node of a cluster that has its keys. Requests share rueidis' connection to that node, which
// makes pipelines of them, so that a node that does not answer delays nobody at the others.
//
// rueidis follows MOVED and ASK. TRYAGAIN, the answer while the keys of a name are moving to another node one by one, is
// followed here for as long as the request may take.
func (l *lanes) route(ctx context.Context, limit time.Duration, r request) (rueidis.RedisMessage, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return rueidis.RedisMessage{}, errClosed
	}
	l.wg.Add(1)
	l.mu.Unlock()
	// rueidis gives a request up when a context is cancelled, but closes the connection when its deadline passes.
	sending, cancel := context.WithCancel(l.life)
	timer := time.AfterFunc(limit, cancel)
	type answer struct {
		msg rueidis.RedisMessage
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer l.wg.Done()
		defer timer.Stop()
		defer cancel()
		msg, err := l.insist(sending, r)
		done <- answer{msg, err}
	}()
	select {
	case a := <-done:
		switch {
		case a.err == nil || isNotDone(a.err):
		case l.isClosed():
			a.err = errCut
		case sending.Err() != nil:
			a.err = fmt.Errorf("redis: %w", errSlow)
		}
		return a.msg, a.err
	case <-ctx.Done(): // the request goes on: others may wait for the connection that is dialed for it
		return rueidis.RedisMessage{}, fmt.Errorf("redis: %w", context.Cause(ctx))
	}
}

// insist repeats a request that the cluster wants to be repeated.
func (l *lanes) insist(ctx context.Context, r request) (rueidis.RedisMessage, error) {
	whole := false
	for pause := 5 * time.Millisecond; ; {
		msg, err := l.client.Do(ctx, r.command(l.client.B(), whole, true)).ToMessage()
		if err == nil || rueidis.IsRedisNil(err) {
			return msg, nil
		}
		refusal, refusing := rueidis.IsRedisErr(err)
		switch {
		case refusing && refusal.IsNoScript() && !whole:
			whole = true
			continue
		case refusing && code(refusal.Error()) != "TRYAGAIN":
			return rueidis.RedisMessage{}, refused(refusal)
		case refusing:
		case unsent(err):
			return rueidis.RedisMessage{}, notSent(err)
		default:
			return rueidis.RedisMessage{}, fmt.Errorf("redis: %w", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return rueidis.RedisMessage{}, refused(refusal)
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// command makes the command, with the whole script if the node did not know it by its hash.
func (r request) command(b rueidis.Builder, whole, cluster bool) rueidis.Completed {
	if r.script == nil {
		return b.Arbitrary(r.args[0]).Keys(r.keys...).Args(r.args[1:]...).Build()
	}
	s := r.script
	if cluster {
		s = s.clustered
	}
	name, script := "EVALSHA", s.sha
	if whole {
		name, script = "EVAL", s.body
	}
	return b.Arbitrary(name, script, fmt.Sprint(len(r.keys))).Keys(r.keys...).Args(r.args...).Build()
}

// unsent reports whether an error says that there was no connection.
func unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, rueidis.ErrNoSlot) || errors.As(err, &op) && op.Op == "dial"
}

// errSingle is the answer to a cluster URL that names a single server.
var errSingle = fmt.Errorf("this is a single server and no node of a Redis Cluster; write redis://host[:port][/db]: %w", driver.ErrInvalid)
