package etcdlock

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/connectivity"
)

// minLimit bounds a request even if its TTL is shorter.
const minLimit = 2 * time.Second

// bound makes the context of a call: it ends with ctx, with the driver, and when limit is over.
func (d *Driver) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	limit = max(limit, minLimit)
	life, end := context.WithCancelCause(d.life)
	var timer *time.Timer
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > limit {
		timer = time.AfterFunc(limit, func() { end(noAnswer(limit)) })
	}
	var stop func() bool
	switch {
	case ctx.Err() != nil:
		end(context.Cause(ctx))
	case ctx.Done() != nil:
		stop = context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	}
	return &call{life, ctx}, func() {
		if timer != nil {
			timer.Stop()
		}
		if stop != nil {
			stop()
		}
		end(nil)
	}
}

// call is the context of one call: of the driver's life, with the values of the caller's context.
//
// It keeps its deadline from the server, which would only set a timer of its own: that costs a few per cent of a request,
// and the end of a request is told to the server anyway.
type call struct {
	context.Context
	caller context.Context
}

func (*call) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *call) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.caller.Value(key)
}

// answerOf is what became of a request.
type answerOf[T any] struct {
	resp T
	err  error // translated
	// loose says that a copy of the request may still be on its way, whatever the answer is.
	loose bool
}

// ask sends a request that may arrive twice without harm. Where the cluster has several members and one is silent, breaks
// off or has no leader, a copy goes to the next one: it is one request still, to the cluster.
func ask[T any](ctx context.Context, d *Driver, ttl time.Duration, send func(context.Context) (T, error)) answerOf[T] {
	if ctx.Err() != nil {
		return answerOf[T]{err: undone(translate(ctx, ctx.Err()))}
	}
	members := len(d.client.Endpoints())
	if members < 2 {
		resp, err := send(ctx)
		err = d.translate(ctx, err)
		return answerOf[T]{resp, err, err != nil && !certain(err)}
	}
	copies := 2 * min(members, 5) // the connection's balancer may come to a bad member twice
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type one struct {
		resp  T
		err   error
		again bool
	}
	answers := make(chan one, copies)
	sent, out := 0, 0
	copyTo := func() {
		sent++
		out++
		if !d.run(func() {
			resp, err := send(ctx)
			again := elsewhere(err)
			answers <- one{resp, translate(ctx, err), again}
		}) {
			answers <- one{err: errClosed}
		}
	}
	copyTo()
	wait := silence(ttl)
	patience := time.NewTimer(wait)
	defer patience.Stop()
	var worst error
	loose := false
	for {
		select {
		case a := <-answers:
			out--
			if a.err == nil {
				return answerOf[T]{a.resp, nil, loose || out > 0}
			}
			if !certain(a.err) {
				loose = true
			}
			if worst == nil || certain(worst) {
				worst = a.err
			}
			switch {
			case a.again && sent < copies:
				if out == 0 && sent >= members { // all were asked
					patience.Reset(min(wait, 200*time.Millisecond))
				} else {
					copyTo()
				}
			case out == 0:
				return answerOf[T]{err: worst, loose: loose}
			}
		case <-patience.C:
			if sent < copies {
				copyTo()
				wait *= 2 // an election takes its time
				patience.Reset(wait)
			}
		case <-ctx.Done():
			if worst == nil || certain(worst) && out > 0 {
				worst = d.translate(ctx, ctx.Err())
			}
			return answerOf[T]{err: worst, loose: loose || out > 0}
		}
	}
}

// translate is translate for a driver, which knows whether there was a connection.
func (d *Driver) translate(ctx context.Context, err error) error {
	if s := d.conn.GetState(); err != nil && ctx.Err() != nil && s != connectivity.Ready {
		return fmt.Errorf("etcd: no member can be reached: %w", context.Cause(ctx))
	}
	return translate(ctx, err)
}

// silence is how long a member may take before another one is asked.
func silence(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 200*time.Millisecond), 500*time.Millisecond)
}

// sameCluster refuses an answer of a cluster other than the first that answered: its revisions, and so its locks, have
// nothing to do with those.
func (d *Driver) sameCluster(id uint64) error {
	if id == 0 || d.cluster.CompareAndSwap(0, id) {
		return nil
	}
	if was := d.cluster.Load(); was != id {
		return fmt.Errorf("the endpoints belong to different clusters, or the cluster was made anew: this answer comes from %x, earlier ones from %x", id, was)
	}
	return nil
}
