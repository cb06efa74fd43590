package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

// together is how many nodes one transaction confirms.
const together = 256

// Renew confirms holds, many with one request: a transaction that changes nothing and only checks that the nodes exist.
// Unlike a read, which a member that lags behind may answer, it goes through the leader, which refuses it for a session
// that is over.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	fail := d.bad
	if fail == nil && d.life.Err() != nil {
		fail = errClosed
	}
	if fail != nil {
		for i := range errs {
			errs[i] = fail
		}
		return errs
	}
	var batch []int
	var holds []*hold
	size, bytes := 0, 0
	var wg sync.WaitGroup
	send := func() {
		batch, holds := batch, holds
		if len(batch) > 0 {
			wg.Go(func() { d.confirm(ctx, hs, errs, batch, holds) })
		}
	}
	for i, h := range hs {
		x := d.keep.renew(h)
		if x == nil {
			errs[i] = driver.ErrNotHeld
			continue
		}
		n := len(x.nodes)
		size, bytes = size+n, bytes+n*(len(x.dir)+128)
		if size > together || bytes > maxBytes {
			send()
			batch, holds = nil, nil
			size, bytes = n, n*(len(x.dir)+128)
		}
		batch, holds = append(batch, i), append(holds, x)
	}
	send()
	wg.Wait()
	return errs
}

// renew gives a hold its TTL from now on, so that it does not run out while the ensemble is asked. It answers nil if there
// is no such hold.
func (k *keeper) renew(h driver.Hold) *hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.holds[h.ID]
	if x == nil || x.ending || x.kept || x.Name != h.Name || x.Kind.Family() != h.Kind.Family() || h.Token != 0 && h.Token != x.Token {
		return nil
	}
	now := driver.Now()
	if x.deadline <= now {
		return nil
	}
	x.deadline = max(x.deadline, now.Add(h.TTL))
	return x
}

// confirm asks the ensemble for the holds of one batch.
func (d *Driver) confirm(ctx context.Context, hs []driver.Hold, errs []error, batch []int, holds []*hold) {
	limit := releaseLimit
	for _, i := range batch {
		limit = max(limit, hs[i].TTL)
	}
	ctx, cancel := d.bound(ctx, limit)
	defer cancel()
	for len(batch) > 0 {
		var ops []any
		var owner []int // of each op, by its place in batch
		for j, x := range holds {
			for _, n := range x.nodes {
				ops = append(ops, &zk.CheckVersionRequest{Path: x.path(n), Version: -1})
				owner = append(owner, j)
			}
		}
		answers, err := call(ctx, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
		live := d.conn.SessionID()
		gone := map[int]bool{}
		for k, a := range answers {
			if errors.Is(a.Error, zk.ErrNoNode) {
				gone[owner[k]] = true
			}
		}
		var nextBatch []int
		var nextHolds []*hold
		for j, i := range batch {
			x := holds[j]
			switch {
			case gone[j] || live != x.session:
				errs[i] = driver.ErrNotHeld
				d.keep.drop(x)
			case err != nil && len(gone) == 0:
				errs[i] = describe("confirm", x.dir, err)
			case err == nil && d.timeout() < x.timeout:
				errs[i] = fmt.Errorf("zookeeper: the session timeout fell from %v to %v", x.timeout, d.timeout())
			case err != nil: // the transaction failed because of others
				nextBatch, nextHolds = append(nextBatch, i), append(nextHolds, x)
			}
		}
		batch, holds = nextBatch, nextHolds
	}
}
