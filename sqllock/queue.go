package sqllock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// queue runs requests. All that have come while the write lock was waited for run in one transaction, in order, and share
// its commit (group commit, after DeWitt et al. 1984). One goroutine does it; it lives only while there are requests.
//
// A request that is still queued when its caller gives up is taken out, so it surely was not done.
type queue struct {
	d  *Driver
	wg sync.WaitGroup // the goroutine

	mu      sync.Mutex
	pending []*op
	running bool
	closed  bool
	refused error // why the write lock could not be had last time; nil: it could
}

// op is one request.
type op struct {
	run  func(*batch) error // may be called again after a conflict
	done chan struct{}
	err  error // valid once done is closed
}

const largestBatch = 128

// do runs a request and waits for its answer until ctx ends, or for as long as an answer is worth anything.
func (d *Driver) do(ctx context.Context, what string, patience time.Duration, run func(*batch) error) error {
	_, err := d.start(ctx, what, patience, run)
	return err
}

// start is do, and answers the request itself if it may still be under way.
func (d *Driver) start(ctx context.Context, what string, patience time.Duration, run func(*batch) error) (*op, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("sqllock: %s: %w: %w", what, driver.ErrNotDone, context.Cause(ctx))
	}
	o := &op{run: run, done: make(chan struct{})}
	if !d.queue.post(o) {
		return nil, errClosed()
	}
	if patience <= 0 {
		patience = time.Minute
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var cause error
	select {
	case <-o.done:
		return nil, d.answer(what, o.err)
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-timer.C:
		cause = fmt.Errorf("no answer within %v", patience)
	case <-d.ctx.Done():
		cause = driver.ErrClosed
	}
	withdrawn, refused := d.queue.withdraw(o)
	if withdrawn {
		if refused != nil {
			return nil, d.wrap(what, fmt.Errorf("%w: %w: %w", driver.ErrNotDone, cause, refused))
		}
		return nil, d.wrap(what, fmt.Errorf("%w: %w", driver.ErrNotDone, cause))
	}
	select {
	case <-o.done:
		return nil, d.answer(what, o.err)
	default:
		return o, d.wrap(what, cause)
	}
}

func (d *Driver) answer(what string, err error) error {
	if failed(err) {
		return d.wrap(what, err)
	}
	return err
}

// post queues a request, if the driver is open.
func (q *queue) post(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.pending = append(q.pending, o)
	if !q.running {
		q.running = true
		q.wg.Go(q.work)
	}
	return true
}

// withdraw takes a request out, unless it is running or has run. refused is why it had to wait.
func (q *queue) withdraw(o *op) (ok bool, refused error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, p := range q.pending {
		if p == o {
			q.pending = append(q.pending[:i], q.pending[i+1:]...)
			return true, q.refused
		}
	}
	return false, nil
}

// close refuses new requests. Those who wait see the end of Driver.ctx.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// idle ends the goroutine if nothing is queued.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = len(q.pending) > 0
	return !q.running
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending) == 0
}

func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = err
}

func (q *queue) take() []*op {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = nil
	n := min(len(q.pending), largestBatch)
	ops := q.pending[:n:n]
	q.pending = q.pending[n:]
	return ops
}

func (q *queue) work() {
	for !q.idle() {
		b, err := q.begin()
		if b == nil && err == nil {
			continue
		}
		ops := q.take()
		if err == nil {
			err = q.run(b, ops)
		}
		for _, o := range ops {
			if err != nil {
				o.err = err
			}
			close(o.done)
		}
	}
}

// begin gets the write lock. It answers nothing at all if nobody waits for it any more.
func (q *queue) begin() (*batch, error) {
	var p pause
	for {
		b, err := q.d.begin()
		if err == nil {
			return b, nil
		}
		if !q.d.dialect.fault(err).again {
			return nil, failure{fmt.Errorf("%w: %w", driver.ErrNotDone, err)}
		}
		q.refuse(err)
		if p.wait(context.Background(), q.d.ctx) != nil {
			return nil, failure{fmt.Errorf("%w: %w", driver.ErrNotDone, driver.ErrClosed)}
		}
		if q.empty() {
			return nil, nil
		}
	}
}

// run runs requests in one transaction. An error counts for all of them.
func (q *queue) run(b *batch, ops []*op) error {
	var p pause
	for {
		err := b.all(ops)
		if err == nil || !q.d.dialect.fault(err).again {
			return err
		}
		for { // a conflict: the whole transaction again
			if p.wait(context.Background(), q.d.ctx) != nil {
				return err
			}
			var again error
			if b, again = q.d.begin(); again == nil {
				break
			}
			if !q.d.dialect.fault(again).again {
				return failure{fmt.Errorf("%w: %w", driver.ErrNotDone, again)}
			}
		}
	}
}
