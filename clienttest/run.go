package clienttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// run is one run of one case: a fresh name, and the clients made for it.
type run struct {
	h    Harness
	leaf leaf
	tb   testing.TB
	ctx  context.Context // ends long after any case should
	name string

	stretch int // of the short TTL
	cancel  context.CancelFunc

	mu    sync.Mutex
	nodes []*node
}

// node is one client with a driver of its own: another process.
type node struct {
	*pawl.Client
	*wire
	lost atomic.Int64 // leases that were lost
}

func newRun(t testing.TB, h Harness, l leaf) *run {
	c := &run{h: h, leaf: l, tb: t, name: freshName()}
	c.ctx, c.cancel = context.WithTimeout(context.Background(), time.Minute+40*h.MinTTL+4*h.Slack)
	return c
}

func freshName() string { return "clienttest-" + strings.ToLower(rand.Text()[:12]) }

// end closes the clients, also after a failure.
func (c *run) end() {
	c.cancel()
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() { n.Client.Close() })
	}
	wg.Wait()
}

// failf ends the case and prints the promise that was broken.
func (c *run) failf(format string, args ...any) {
	c.tb.Helper()
	c.tb.Fatalf("%s", c.say(format, args...))
}

// errorf is failf for goroutines of a case: it does not end the case.
func (c *run) errorf(format string, args ...any) {
	c.tb.Helper()
	c.tb.Errorf("%s", c.say(format, args...))
}

func (c *run) say(format string, args ...any) string {
	return fmt.Sprintf("%s\n\tcase %s: %s", fmt.Sprintf(format, args...), c.leaf, c.leaf.Sentence)
}

// node makes one more client. Unless o says otherwise its TTL is long.
func (c *run) node(o pawl.Options) *node {
	c.tb.Helper()
	n := &node{wire: newWire(c.h.Open(c.tb))}
	base := pawl.Options{TTL: c.long(), Logger: slog.New(slog.DiscardHandler), OnEvent: func(e pawl.Event) {
		if e.Op == pawl.Lost {
			n.lost.Add(1)
		}
	}}
	n.Client = pawl.New(n.wire.driver()).With(base).With(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	return n
}

// several makes n clients.
func (c *run) several(n int, o pawl.Options) []*node {
	c.tb.Helper()
	var ns []*node
	for range n {
		ns = append(ns, c.node(o))
	}
	return ns
}

// Close is the client's; the wire closes with it.
func (n *node) Close() error { return n.Client.Close() }

// lock is the case's name, or another one, in the case's flavour.
func (c *run) lock(n *node, name string) pawl.Locker { return c.leaf.lock(n.Client, name) }

// long is a TTL that no case outlives, short one that cases wait for.
func (c *run) long() time.Duration  { return max(30*time.Second, 10*c.h.MinTTL) }
func (c *run) short() time.Duration { return c.h.MinTTL << c.stretch }

// soon bounds what is due at once.
func (c *run) soon() time.Duration { return c.h.Slack }

// pause is long enough to show that something does not happen.
func (c *run) pause() { time.Sleep(100 * time.Millisecond) }

// inTime is for cases that must act before a short TTL is over. f answers false when the machine was too slow to say
// anything; it is then run again with twice the TTL and another name.
func (c *run) inTime(f func() bool) {
	c.tb.Helper()
	for c.stretch = 0; c.stretch < 6; c.stretch++ {
		if f() {
			return
		}
		c.name = freshName()
	}
	c.failf("leases end too early even with a TTL of %v: they are not kept alive, or the machine is very slow", c.short())
}

// within waits until what is true, which is due now or after the given time.
func (c *run) within(due time.Duration, what string, ok func() bool) {
	c.tb.Helper()
	for end := time.Now().Add(due + c.soon()); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.failf("not within %v: %s", due+c.soon(), what)
		}
	}
}

// take locks; it must get in when due, or soon after.
func (c *run) take(l pawl.Locker, due time.Duration) *pawl.Lease {
	c.tb.Helper()
	ctx, stop := context.WithTimeout(c.ctx, due+c.soon())
	defer stop()
	for {
		lease, err := l.Lock(ctx)
		switch {
		case err == nil:
			return lease
		case ctx.Err() != nil || !slow(err):
			c.failf("should have got in within %v: %v", due+c.soon(), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// slow reports whether err may come from a store that took longer than the TTL.
func slow(err error) bool {
	return errors.Is(err, pawl.ErrUnknown) || errors.Is(err, pawl.ErrLost) || errors.Is(err, driver.ErrNotDone)
}

// free gives back what is held. Whether a busy store has confirmed it in time is seen by who comes next.
func (c *run) free(l interface{ Unlock() error }) {
	c.tb.Helper()
	if err := l.Unlock(); err != nil && !errors.Is(err, pawl.ErrUnknown) {
		c.failf("Unlock: %v", err)
	}
}

// mustBeHeld tries and wants ErrHeld.
func (c *run) mustBeHeld(l pawl.Locker) {
	c.tb.Helper()
	if lease, err := l.TryLock(c.ctx); !errors.Is(err, pawl.ErrHeld) {
		lease.Unlock()
		c.failf("TryLock of what another holds: got %v, want ErrHeld", err)
	}
}

// mustBe wants an error that matches all of targets.
func (c *run) mustBe(what string, err error, targets ...error) {
	c.tb.Helper()
	for _, t := range targets {
		if !errors.Is(err, t) {
			c.failf("%s: got %v, want %v", what, err, t)
		}
	}
}

// mustEnd wants that a context or lease ends now.
func (c *run) mustEnd(what string, done <-chan struct{}, due time.Duration) {
	c.tb.Helper()
	t := time.NewTimer(due + c.soon())
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		c.failf("%s: not over within %v", what, due+c.soon())
	}
}

// region is what a lock guards, seen from outside.
type region struct {
	c     *run
	in    atomic.Int64
	count atomic.Int64 // written as by somebody who believes to be alone
	token atomic.Int64
}

// visit is one visit of a holder who has the region for himself.
func (r *region) visit(token int64) {
	if n := r.in.Add(1); n != 1 {
		r.c.errorf("%d holders at once", n)
	}
	if before := r.token.Swap(token); before >= token && token != 0 {
		r.c.errorf("the token %d of a holder is followed by %d", before, token)
	}
	n := r.count.Load()
	time.Sleep(time.Millisecond)
	r.count.Store(n + 1)
	r.in.Add(-1)
}

// done wants that n visits were made and none was lost.
func (r *region) done(n int) {
	r.c.tb.Helper()
	if got := r.count.Load(); got != int64(n) {
		r.c.failf("%d of %d visits are in the counter: others have overwritten some", got, n)
	}
}

// tokenOf is the fencing token that ctx's lease of a name carries.
func tokenOf(ctx context.Context, name string) int64 { return pawl.FromContext(ctx, name).Token() }

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}
