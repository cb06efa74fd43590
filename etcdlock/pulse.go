package etcdlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/pawl-lock/pawl/driver"
)

// pulse sends keepalives. It keeps one idle stream open: with authentication, opening one costs the cluster a login.
type pulse struct {
	d *Driver

	mu   sync.Mutex
	idle *beatStream
}

type beatStream struct {
	pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

// beat is an answered keepalive.
type beat struct {
	sent driver.Instant // before it was sent
	ttl  time.Duration
	err  error // errLeaseGone: the store has no such lease
}

// keepAlive sends one keepalive for a lease and waits for the answer. A member that is silent is passed over for the next.
func (p *pulse) keepAlive(ctx context.Context, lease int64, ttl time.Duration) beat {
	answers := make(chan beat, 6)
	send := func() {
		if !p.d.run(func() { answers <- p.once(ctx, lease) }) {
			answers <- beat{err: errClosed}
		}
	}
	send()
	sent, out := 1, 1
	wait := silence(ttl)
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case b := <-answers:
			if b.err == nil || leaseGone(b.err) {
				return b
			}
			if out--; out == 0 && (sent >= cap(answers) || ctx.Err() != nil) {
				return b
			} else if out == 0 {
				sent++
				out++
				send()
			}
		case <-t.C:
			if sent < cap(answers) {
				sent++
				out++
				send()
				wait *= 2
				t.Reset(wait)
			}
		case <-ctx.Done():
			return beat{err: translate(ctx, ctx.Err())}
		}
	}
}

// once sends a keepalive on the idle stream, or on a new one.
func (p *pulse) once(ctx context.Context, lease int64) beat {
	p.mu.Lock()
	s := p.idle
	p.idle = nil
	p.mu.Unlock()
	fresh := s == nil
	if fresh {
		life, cancel := context.WithCancel(p.d.life)
		stop := context.AfterFunc(ctx, cancel)
		stream, err := p.d.leases.LeaseKeepAlive(life)
		if !stop() || err != nil {
			cancel()
			if err == nil {
				err = ctx.Err()
			}
			return beat{err: translate(ctx, err)}
		}
		s = &beatStream{stream, cancel}
	}
	stop := context.AfterFunc(ctx, s.cancel)
	b := beat{sent: driver.Now()}
	err := s.Send(&pb.LeaseKeepAliveRequest{ID: lease})
	var resp *pb.LeaseKeepAliveResponse
	if err == nil || err.Error() == "EOF" { // EOF: Recv knows why
		resp, err = s.Recv()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = p.d.sameCluster(resp.GetHeader().GetClusterId())
	}
	if err == nil && resp.ID != lease {
		err = fmt.Errorf("a keepalive was answered for another lease")
	}
	switch {
	case err != nil:
		s.cancel()
		if leaseGone(err) {
			b.err = errLeaseGone
		} else {
			b.err = translate(ctx, err)
		}
		return b
	case resp.TTL <= 0:
		b.err = errLeaseGone
	default:
		b.ttl = time.Duration(resp.TTL) * time.Second
	}
	p.mu.Lock()
	old := p.idle
	p.idle = s
	p.mu.Unlock()
	if old != nil {
		old.cancel()
	}
	return b
}

func (p *pulse) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.cancel()
		p.idle = nil
	}
}
