package etcdlock

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/pawl-lock/pawl/driver"
)

// minLimit bounds a request even if its TTL is shorter.
const minLimit = 2 * time.Second

// bound makes the context of a call: it ends with ctx, with the driver, and when limit is over.
func (d *Driver) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	limit = max(limit, minLimit)
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { end(noAnswer(limit)) })
	stop := context.AfterFunc(d.life, func() { end(fmt.Errorf("etcdlock: %w", driver.ErrClosed)) })
	return clientv3.WithRequireLeader(untimed{ctx}), func() { stop(); timer.Stop(); end(nil) }
}

// untimed keeps its deadline from the server, which would only set a timer of its own: that costs a few per cent of a
// request, and the end of a request is told to the server anyway.
type untimed struct{ context.Context }

func (untimed) Deadline() (time.Time, bool) { return time.Time{}, false }

type answer = answerOf[*clientv3.TxnResponse]

// answerOf is what became of a request.
type answerOf[T any] struct {
	resp T
	err  error // translated
	// loose says that a copy of the request may still be on its way, whatever the answer is.
	loose bool
}

// ask sends one transaction that may arrive twice without harm.
func (d *Driver) ask(ctx context.Context, ttl time.Duration, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) answer {
	return ask(ctx, d, ttl, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := d.kv.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
		if err == nil {
			err = d.sameCluster(resp.Header)
		}
		return resp, err
	})
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
	if s := d.client.ActiveConnection().GetState(); err != nil && ctx.Err() != nil && s != connectivity.Ready {
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
func (d *Driver) sameCluster(h *pb.ResponseHeader) error {
	id := h.GetClusterId()
	if id == 0 || d.cluster.CompareAndSwap(0, id) {
		return nil
	}
	if was := d.cluster.Load(); was != id {
		return fmt.Errorf("the endpoints belong to different clusters, or the cluster was made anew: this answer comes from %x, earlier ones from %x", id, was)
	}
	return nil
}

// lookOps read all contenders of a name. Few names have more than fit in the answer.
func lookOps(base string) clientv3.Op {
	return clientv3.OpGet(first(base), clientv3.WithRange(last(base)), clientv3.WithLimit(glance),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

const glance = 64

// see makes a queue of the answer to lookOps, and asks for the whole if it was cut.
func (d *Driver) see(ctx context.Context, ttl time.Duration, base string, r *pb.RangeResponse) (*queue, error) {
	if !r.GetMore() {
		return newQueue(contenders(base, r.GetKvs())), nil
	}
	a := d.ask(ctx, ttl, nil, []clientv3.Op{clientv3.OpGet(first(base), clientv3.WithRange(last(base)))}, nil)
	if a.err != nil {
		return nil, a.err
	}
	return newQueue(contenders(base, a.resp.Responses[0].GetResponseRange().GetKvs())), nil
}

// look reads the queue of a name.
func (d *Driver) look(ctx context.Context, ttl time.Duration, base string) (*queue, error) {
	a := d.ask(ctx, ttl, nil, []clientv3.Op{lookOps(base)}, nil)
	if a.err != nil {
		return nil, a.err
	}
	return d.see(ctx, ttl, base, a.resp.Responses[0].GetResponseRange())
}
