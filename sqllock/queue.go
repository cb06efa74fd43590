package sqllock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// queue runs requests. All that have come while the database was busy with the ones before run together, in order, and
// share a commit (group commit, after DeWitt et al. 1984). Goroutines that live only while there are requests do it, as many at
// once as the store has lanes, each with other names than the others. A request that finds a lane free and nobody waiting runs in
// its caller's own goroutine, if the database is a server: handing it over and back costs about a fifth of what a statement does.
//
// A request that is still queued when its caller gives up is taken out, so it surely was not done.
type queue struct {
	d  *Driver
	wg sync.WaitGroup // whoever runs requests

	mu      sync.Mutex
	pending []*op
	running int             // lanes in use
	taken   map[string]bool // the names of what runs
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

// seize lets the caller run a request, if nobody waits, a lane is free, and nothing else runs on that name.
func (q *queue) seize(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.pending) > 0 || q.running >= q.d.store.lanes() || q.taken[o.name] {
		return false
	}
	q.running++
	q.mark(o)
	q.wg.Add(1)
	return true
}

// pass leaves what is queued to a goroutine, after seize.
func (q *queue) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.more(q.pending)
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
	q.more(os)
	return true
}

// more uses another lane for some that are queued, if there is one and something else than what runs for it. q.mu is held.
func (q *queue) more(os []*op) {
	if q.running < q.d.store.lanes() && q.able(os) {
		q.running++
		q.wg.Go(q.work)
	}
}

// able reports whether any of os may run beside what runs. q.mu is held.
func (q *queue) able(os []*op) bool {
	return slices.ContainsFunc(os, func(o *op) bool { return !q.taken[o.name] })
}

// mark keeps others from running on the names of ops until they are answered, or queued again. q.mu is held.
func (q *queue) mark(ops ...*op) {
	if q.taken == nil {
		q.taken = make(map[string]bool)
	}
	for _, o := range ops {
		if o.name != "" {
			q.taken[o.name] = true
		}
	}
}

// unmark undoes mark. q.mu is held.
func (q *queue) unmark(ops []*op) {
	for _, o := range ops {
		delete(q.taken, o.name)
	}
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

// idle frees the lane if nothing is queued that it could run.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.able(q.pending) {
		return false
	}
	q.running--
	return true
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

// take takes what is queued on names that nobody else runs on, in order. Whoever takes it answers it, or queues it again.
func (q *queue) take() []*op {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ops, rest []*op
	for _, o := range q.pending {
		if len(ops) < largestBatch && !q.taken[o.name] {
			ops = append(ops, o)
		} else {
			rest = append(rest, o)
		}
	}
	q.pending = rest
	q.mark(ops...)
	return ops
}

func (q *queue) work() {
	for !q.idle() {
		q.d.store.turn(q)
	}
}

// answer ends requests. err is for all of them; without one, each has its own answer.
func (q *queue) answer(ops []*op, err error) {
	q.mu.Lock()
	q.refused = nil
	q.unmark(ops)
	q.mu.Unlock()
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
	q.unmark(ops)
	q.pending = append(ops, q.pending...)
	q.refused = cause
}
