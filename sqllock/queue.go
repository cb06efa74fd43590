package sqllock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// queue runs requests. All that have come while the database was busy with the ones before run together, in order, and
// share a commit (group commit, after DeWitt et al. 1984). One goroutine does it; it lives only while there are requests. A
// request that finds nobody else there runs in its caller's own goroutine, if the database is a server: handing it over and
// back costs about a fifth of what a statement does.
//
// A request that is still queued when its caller gives up is taken out, so it surely was not done.
type queue struct {
	d  *Driver
	wg sync.WaitGroup // whoever runs requests

	mu      sync.Mutex
	pending []*op
	running bool
	closed  bool
	refused error // why requests had to wait last time; nil: they had not
}

// op is one request.
type op struct {
	name string                      // as stored; "": none
	run  func(*batch, *record) error // may be called again after a conflict
	done chan struct{}
	err  error // valid once done is closed
}

const largestBatch = 256

// do runs a request and waits for its answer until ctx ends, or for as long as an answer is worth anything.
func (d *Driver) do(ctx context.Context, what string, patience time.Duration, name string, run func(*batch, *record) error) error {
	_, err := d.start(ctx, what, patience, name, run)
	return err
}

// start is do, and answers the request itself if it may still be under way.
func (d *Driver) start(ctx context.Context, what string, patience time.Duration, name string, run func(*batch, *record) error) (*op, error) {
	o := &op{name: d.stored(name), run: run, done: make(chan struct{})}
	if patience <= 0 {
		patience = time.Minute
	}
	if err := d.open(ctx, what); err != nil {
		return nil, err
	}
	if d.store.alone(ctx, patience, &d.queue, o) {
		select {
		case <-o.done:
			if failed(o.err) && ctx.Err() != nil {
				return nil, d.wrap(what, fmt.Errorf("%w: %w", context.Cause(ctx), o.err))
			}
			return nil, d.answer(what, o.err)
		default: // others are in the way
		}
	} else if !d.queue.post(o) {
		return nil, errClosed()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	return d.await(ctx, what, o, timer.C, patience)
}

// open reports why a request is of no use.
func (d *Driver) open(ctx context.Context, what string) error {
	if d.bad != nil {
		return d.bad
	}
	if ctx.Err() != nil {
		return fmt.Errorf("sqllock: %s: %w: %w", what, driver.ErrNotDone, context.Cause(ctx))
	}
	return nil
}

// await waits for the answer, and answers the request itself if it may still be under way.
func (d *Driver) await(ctx context.Context, what string, o *op, timeout <-chan time.Time, patience time.Duration) (*op, error) {
	var cause error
	select {
	case <-o.done:
		return nil, d.answer(what, o.err)
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-timeout:
		cause = fmt.Errorf("no answer within %v", patience)
	case <-d.ctx.Done():
		cause = driver.ErrClosed
	}
	withdrawn, refused := d.queue.withdraw(o)
	if withdrawn {
		cause = fmt.Errorf("%w: %w", driver.ErrNotDone, cause)
	} else {
		select {
		case <-o.done:
			return nil, d.answer(what, o.err)
		default:
		}
	}
	if refused != nil {
		cause = fmt.Errorf("%w: %w", cause, refused)
	}
	if withdrawn {
		o = nil
	}
	return o, d.wrap(what, cause)
}

func (d *Driver) answer(what string, err error) error {
	if failed(err) {
		return d.wrap(what, err)
	}
	return err
}

// seize makes the caller the one who runs requests, if there is nobody.
func (q *queue) seize() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.running {
		return false
	}
	q.running = true
	q.wg.Add(1)
	return true
}

// pass leaves what is queued to a goroutine, after seize.
func (q *queue) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running = len(q.pending) > 0; q.running {
		q.wg.Go(q.work)
	}
	q.wg.Done()
}

// post queues requests, if the driver is open.
func (q *queue) post(os ...*op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.pending = append(q.pending, os...)
	if !q.running && len(os) > 0 {
		q.running = true
		q.wg.Go(q.work)
	}
	return true
}

// withdraw takes a request out, unless it is running or has run. refused is why requests have to wait.
func (q *queue) withdraw(o *op) (ok bool, refused error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, p := range q.pending {
		if p == o {
			q.pending = append(q.pending[:i], q.pending[i+1:]...)
			return true, q.refused
		}
	}
	return false, q.refused
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
	n := min(len(q.pending), largestBatch)
	ops := q.pending[:n:n]
	q.pending = q.pending[n:]
	return ops
}

func (q *queue) work() {
	for !q.idle() {
		q.d.store.turn(q)
	}
}

// answer ends requests. err is for all of them; without one, each has its own answer.
func (q *queue) answer(ops []*op, err error) {
	q.refuse(nil)
	for _, o := range ops {
		if err != nil {
			o.err = err
		}
		close(o.done)
	}
}

// again puts requests back, to the front. They can be withdrawn again; cause is why they had to wait.
func (q *queue) again(ops []*op, cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(ops, q.pending...)
	q.refused = cause
}
