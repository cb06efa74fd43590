package etcdlock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-lock/pawl/driver"
)

// heldBy shows a contender. What has no ID of pawl's (another client, a name that stays taken after its hold) gets one that
// Release understands, and no token.
func (d *Driver) heldBy(name string, q *queue, c *contender) driver.HeldBy {
	h := driver.HeldBy{Hold: driver.Hold{Kind: c.kind(), Name: name, ID: c.id, Token: c.token(), Permits: c.permits}}
	if c.id == "" || q.isKept(c) {
		h.ID, h.Token = strange(c), 0
	}
	if c.note != nil {
		h.Who = driver.Holder{Label: c.note.Label, Host: c.note.Host, Note: c.note.Note, PID: c.note.PID}
	}
	if c.form == formLeader || c.form == formTerm {
		h.Value = c.value
	}
	if c.attached == 0 && c.value != nil || c.attached == 0 && c.id == "" {
		h.Remaining = -1
	}
	return h
}

// doneError shows what a Once left.
func (d *Driver) doneError(ctx context.Context, c *contender) error {
	e := &driver.DoneError{Value: c.value, Remaining: time.Millisecond}
	if len(e.Value) == 0 {
		e.Value = nil
	}
	if left, _, err := d.left(ctx, c.attached); err == nil {
		e.Remaining = max(left, e.Remaining)
	}
	return e
}

// left is what a lease has left and was granted.
func (d *Driver) left(ctx context.Context, lease int64) (left, granted time.Duration, err error) {
	r, err := d.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease})
	if err == nil {
		err = d.sameCluster(r.GetHeader().GetClusterId())
	}
	if err != nil {
		return 0, 0, translate(ctx, err)
	}
	return max(time.Duration(r.TTL)*time.Second, 0), time.Duration(r.GrantedTTL) * time.Second, nil
}

// leaseTimes asks once for each lease.
type leaseTimes struct {
	d    *Driver
	seen map[int64][2]time.Duration
}

func (t *leaseTimes) fill(ctx context.Context, hs []driver.HeldBy, leases []int64) error {
	var ask []int64
	for _, l := range leases {
		if _, ok := t.seen[l]; !ok && l != 0 {
			t.seen[l] = [2]time.Duration{}
			ask = append(ask, l)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	seats := make(chan struct{}, 16)
	for _, l := range ask {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			left, granted, err := t.d.left(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			t.seen[l] = [2]time.Duration{left, granted}
			if err != nil && !leaseGone(err) {
				failed = err
			}
		})
	}
	wg.Wait()
	for i, l := range leases {
		switch {
		case l == 0:
			hs[i].Remaining = -1 // such a key ends by hand only
		default:
			hs[i].Remaining, hs[i].TTL = t.seen[l][0], t.seen[l][1]
		}
	}
	return failed
}

// record shows a queue.
func (d *Driver) record(ctx context.Context, name string, q *queue, t *leaseTimes) (driver.Record, error) {
	r := driver.Record{Name: name}
	n, holds := q.holders()
	r.Waiters = len(q.line) - n
	var leases []int64
	for i := range q.line {
		c := &q.line[i]
		if !holds[i] {
			continue
		}
		if r.Limit == 0 && c.form == formPermit {
			r.Limit = c.limit
		}
		r.Holds = append(r.Holds, d.heldBy(name, q, c))
		leases = append(leases, c.attached)
	}
	return r, t.fill(ctx, r.Holds, leases)
}

// Inspect says what the store knows of a name. Contenders of other clients are shown too, with an ID that Release
// understands. The remaining time is the lease's.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	r := driver.Record{Name: name}
	if err := d.usable(); err != nil {
		return r, err
	}
	ctx, stop := d.bound(ctx, inspectLimit)
	defer stop()
	q, err := d.look(ctx, minLimit, d.base(name))
	if err != nil {
		return r, err
	}
	return d.record(ctx, name, q, &leaseTimes{d, map[int64][2]time.Duration{}})
}

const (
	inspectLimit = 30 * time.Second
	page         = 1000
)

// List yields the names in use. It reads every key that begins with the prefix, locks or not, page by page, and is no
// snapshot. A key of another client counts only if it is named after its own lease, as a lock's is.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		fail := func(err error) { yield(driver.Record{}, err) }
		if err := d.usable(); err != nil {
			fail(err)
			return
		}
		all := map[string][]*mvccpb.KeyValue{}
		from, end := d.opts.Prefix+prefix, clientv3.GetPrefixRangeEnd(d.opts.Prefix+prefix)
		if from == "" {
			from, end = "\x00", "\x00"
		}
		for from != "" {
			next, err := d.page(ctx, from, end, all)
			if err != nil {
				fail(err)
				return
			}
			from = next
		}
		times := &leaseTimes{d, map[int64][2]time.Duration{}}
		for _, base := range slices.Sorted(maps.Keys(all)) {
			name, ok := strings.CutPrefix(base, d.opts.Prefix)
			if !ok || name == "" || !strings.HasPrefix(name, prefix) {
				continue
			}
			ctx, stop := d.bound(ctx, inspectLimit)
			r, err := d.record(ctx, name, newQueue(contenders(base, all[base])), times)
			stop()
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// page reads some keys, and answers where to go on.
func (d *Driver) page(ctx context.Context, from, end string, all map[string][]*mvccpb.KeyValue) (string, error) {
	ctx, stop := d.bound(ctx, inspectLimit)
	defer stop()
	a := d.ask(ctx, minLimit, nil, []op{read(&pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(end), Limit: page})}, nil)
	if a.err != nil {
		return "", a.err
	}
	r := a.resp.reads[0]
	for _, kv := range r.Kvs {
		base, ok := split(string(kv.Key))
		if !ok {
			continue
		}
		if c, ok := parse(base, kv); ok && (c.id != "" || plainKey(base, kv.Lease) == c.key) {
			all[base] = append(all[base], kv)
		}
	}
	if !r.More || len(r.Kvs) == 0 {
		return "", nil
	}
	return string(r.Kvs[len(r.Kvs)-1].Key) + "\x00", nil
}
