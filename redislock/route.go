package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// route sends a request to the node of a cluster that has its keys. The client makes pipelines
// of the requests to one node, so that a node that does not answer delays nobody at the others.
//
// The client follows MOVED and ASK. TRYAGAIN, the answer while the keys of a name are moving to another node one by one, is
// followed here for as long as the request may take.
func (l *lanes) route(ctx context.Context, limit time.Duration, r request) (wire.Reply, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return wire.Reply{}, errClosed
	}
	l.wg.Add(1)
	l.mu.Unlock()
	until := time.Now().Add(limit)
	sending, cancel := context.WithCancel(l.life)
	timer := time.AfterFunc(limit, cancel)
	done := make(chan answer, 1)
	go func() {
		defer l.wg.Done()
		defer timer.Stop()
		defer cancel()
		msg, err := l.insist(sending, until, r)
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
		return wire.Reply{}, fmt.Errorf("redis: %w", context.Cause(ctx))
	}
}

// insist repeats a request that the cluster wants to be repeated.
func (l *lanes) insist(ctx context.Context, until time.Time, r request) (wire.Reply, error) {
	whole := false
	for pause := 5 * time.Millisecond; ; {
		msg, err := l.redis.Do(ctx, until, r.command(whole, true))
		var refusal wire.Refusal
		switch {
		case err == nil:
			return msg, nil
		case noScript(err) && !whole:
			whole = true
			continue
		case !errors.As(err, &refusal) || code(string(refusal)) != "TRYAGAIN":
			return wire.Reply{}, answered(err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return wire.Reply{}, refused(refusal)
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// command makes the command, with the whole script if the node did not know it by its hash.
func (r request) command(whole, cluster bool) wire.Command {
	if r.script == nil {
		return wire.Command{Name: r.args[0], Keys: r.keys, Args: r.args[1:]}
	}
	s := r.script
	if cluster {
		s = s.clustered
	}
	return s.command(whole, r.keys, r.args)
}

// errSingle is the answer to a cluster URL that names a single server.
var errSingle = fmt.Errorf("this is a single server and no node of a Redis Cluster; write redis://host[:port][/db]: %w", driver.ErrInvalid)
