// Package memlock is a store in memory: the reference for what a pawl driver does, and what programs that use pawl are
// tested with. It needs nothing but the standard library and runs in real and in fake time (testing/synctest).
//
// # Guarantees and limits
//
// It carries every [driver.Kind] and every optional interface of package driver. Holds end by their TTL on
// [driver.Now]'s clock, tokens rise for as long as the store lives, and nothing outlives the process: it locks within one
// process only.
//
// # Two processes in one
//
// One Driver under two clients contends like two processes, since clients choose different hold IDs. [Driver.Share]
// makes a second driver over the same store, for tests in which one "process" is closed, cut off, or robbed while the
// other goes on.
//
// # Testing with it
//
// [Driver.Expire] ends the holds of a name as if their TTL had run out, [Driver.Break] makes the store fail, [Driver.Wipe]
// makes it lose its data, and [Driver.Calls] counts what was asked of it. No goroutine runs in the background, and no timer
// is left once a name is free, so that a synctest bubble ends without Close.
//
// # Order
//
// Waiting places stand in one line a name. A place may get in when it fits beside the holds and beside all places ahead
// of it. So Fair, Leader, Read, Write and Permits are served in the order of the first Try: a waiting Write stops new
// Reads, and small requests for permits do not starve a large one. Only Exclusive and Once may pass others of their kind:
// when such a name gets free the head of the line is told, and if it does not come soon, the next. A place that did not
// Try for its TTL is taken for dead and leaves the line; HeldError.Again makes living ones come back in time.
package memlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pawl-lock/pawl/driver"
)

// Driver is a store in memory and one process's way to it. All methods may be called concurrently; none waits for
// another holder.
type Driver struct {
	s      *store
	closed atomic.Bool

	// Guarded by s.mu.
	broken error
	calls  map[string]int
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Inspector  = (*Driver)(nil)
	_ driver.Watcher    = (*Driver)(nil)
	_ driver.Attacher   = (*Driver)(nil)
	_ driver.Raiser     = (*Driver)(nil)
	_ driver.Joiner     = (*Driver)(nil)
	_ driver.Incarnated = (*Driver)(nil)
)

var errClosed = fmt.Errorf("memlock: the driver is %w: %w", driver.ErrClosed, driver.ErrNotDone)

// New makes an empty store and a driver for it.
func New() *Driver {
	return newDriver(&store{
		names: map[string]*record{}, watches: map[string]map[*watch]struct{}{}, ending: map[string]*ears{},
		life: life{id: rand.Text()},
	})
}

func newDriver(s *store) *Driver { return &Driver{s: s, calls: map[string]int{}} }

// Share makes another driver over d's store, as another process would have it: it is closed, broken and counted by
// itself, and its Release of a hold that d got is a steal, of which d reports Lost.
func (d *Driver) Share() *Driver { return newDriver(d.s) }

// Expire ends every hold of name as if its TTL had run out: holders are told that it is lost, and the next in line that
// it may come. Unlike the other methods it works on a broken or closed driver too.
func (d *Driver) Expire(name string) {
	d.s.change(func(n *news) {
		r := d.s.names[name]
		if r == nil {
			return
		}
		for _, h := range r.holds {
			r.drop(h)
			n.lost(h)
		}
		r.settle(driver.Now(), n)
	})
}

// Break makes every later call of d that would reach a store fail with err, until Break(nil). Nothing that fails has an
// effect, but the caller cannot know: unless err says otherwise (see package driver), such an error of Try is an unknown
// outcome. Enter, which reaches no store, still works. TTLs run on: a broken store looks like a cut cable.
func (d *Driver) Break(err error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.broken = err
}

// Calls says how often a method of d or of its places was called: "Enter", "Try", "TryAll", "Leave", "Renew", "Release", "Attach",
// "Raise", "Inspect", "List", "Watch", "Incarnation", "Close". Calls that failed count.
func (d *Driver) Calls(method string) int {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.calls[method]
}

// Close ends d, not the store: its holds run out by their TTL and its places in line too, its watches end, nothing is
// reported any more, and later calls answer an error that matches driver.ErrClosed and driver.ErrNotDone.
func (d *Driver) Close() error {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.calls["Close"]++
	d.closed.Store(true)
	for name, ws := range d.s.watches {
		for w := range ws {
			if w.d == d {
				d.s.endWatch(name, w)
			}
		}
	}
	return nil
}

// begin counts a call that would reach a store and says whether it does. The caller has s.mu.
func (d *Driver) begin(ctx context.Context, method string) error {
	d.calls[method]++
	switch {
	case d.closed.Load():
		return errClosed
	case ctx.Err() != nil:
		return fmt.Errorf("memlock: %w: %w", driver.ErrNotDone, context.Cause(ctx))
	}
	return d.broken
}

// ears pass on to one request what is reported to it.
type ears struct {
	d      *Driver
	notify func(driver.Signal)

	mu   sync.Mutex
	deaf bool
}

func (e *ears) tell(s driver.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.deaf && !e.d.closed.Load() {
		e.notify(s)
	}
}

// stop returns when nothing is being reported; nothing is reported after it.
func (e *ears) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
}

// news is what to report once the store's mutex is free: a Notify may take locks of its own.
type news struct {
	items []item
	ended []*hold
}

type item struct {
	to     *ears
	signal driver.Signal
}

func (n *news) add(to *ears, s driver.Signal) { n.items = append(n.items, item{to, s}) }

// lost reports the loss of a hold that somebody still believes in.
func (n *news) lost(h *hold) {
	if !h.kept {
		n.add(h.ears, driver.Lost)
		n.ended = append(n.ended, h)
	}
}

func (n *news) deliver() {
	for _, i := range n.items {
		i.to.tell(i.signal)
	}
}
