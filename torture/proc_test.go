package torture_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

var (
	uuid       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	errBroken  = errors.New("connection refused")
	errCertain = fmt.Errorf("%w: never sent", driver.ErrNotDone)
	errGaveUp  = errors.New("gave up")
)

// policy is one way in which a process uses its client.
type policy struct {
	name string
	pawl.Options
}

var (
	plain    = &policy{"plain", pawl.Options{}}
	short    = &policy{"short", pawl.Options{TTL: 1500 * time.Millisecond}}
	linger   = &policy{"linger", pawl.Options{TTL: 3 * time.Second, Linger: 200 * time.Millisecond}}
	fixed    = &policy{"fixed", pawl.Options{TTL: 2 * time.Second, NoKeepalive: true}}
	maxHold  = &policy{"max", pawl.Options{TTL: 3 * time.Second, MaxHold: 4 * time.Second}}
	minHold  = &policy{"min", pawl.Options{TTL: 3 * time.Second, MinHold: time.Second}}
	patience = &policy{"wait", pawl.Options{Wait: 700 * time.Millisecond}}

	policies = []*policy{plain, plain, plain, short, linger, fixed, maxHold, minHold, patience}
)

const permits = 3

// names are what all contend for, and the kinds that each is used as.
var (
	names = []string{"m", "f", "rw", "s", "e"}
	kinds = map[string][]driver.Kind{
		"m":  {driver.Exclusive},
		"f":  {driver.Fair, driver.Fair, driver.Exclusive},
		"rw": {driver.Read, driver.Read, driver.Write},
		"s":  {driver.Permits},
		"e":  {driver.Leader},
	}
)

// proc is one process.
type proc struct {
	name   string
	wire   *wire
	client *pawl.Client
	with   map[*policy]*pawl.Client
	ctx    context.Context

	mu     sync.Mutex
	held   int // by the events
	broken bool
	ends   bool
}

func (p *proc) closing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

// cut says whether the process is cut off from the store.
func (p *proc) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// setBroken answers what it was.
func (p *proc) setBroken(b bool) (was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, p.broken = p.broken, b
	return was
}

// event counts the leases that are held.
func (p *proc) event(e pawl.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Op {
	case pawl.Acquired:
		p.held++
	case pawl.Released, pawl.Lost:
		p.held--
	}
}

func newProc(ctx context.Context, name string, store *memlock.Driver, l *ledger) *proc {
	p := &proc{name: name, wire: newWire(name, store.Share(), l), ctx: ctx}
	p.client = pawl.New(p.wire).With(pawl.Options{Holder: name, Logger: slog.New(slog.DiscardHandler), OnEvent: p.event})
	p.with = map[*policy]*pawl.Client{}
	for _, pol := range policies {
		p.with[pol] = p.client.With(pol.Options)
	}
	return p
}

// locker is what a asks for; nil for an election.
func (a *ask) locker() pawl.Locker {
	c := a.p.with[a.pol]
	switch a.kind {
	case driver.Fair:
		return c.FairMutex(a.name)
	case driver.Write:
		return c.RWMutex(a.name)
	case driver.Read:
		return c.RWMutex(a.name).RLocker()
	case driver.Permits:
		return c.Semaphore(a.name, permits).Weight(a.weight)
	case driver.Leader:
		return nil
	}
	return c.Mutex(a.name)
}

// do runs the call, in the caller's goroutine.
func (a *ask) do(l *ledger) *lease {
	l.asking(a)
	k := a.locker()
	var pl *pawl.Lease
	var err error
	switch {
	case k == nil:
		pl, err = a.p.with[a.pol].Election(a.name).Campaign(a.ctx, a.p.name)
	case a.try:
		pl, err = k.TryLock(a.ctx)
	default:
		pl, err = k.Lock(a.ctx)
	}
	return l.got(a, pl, err)
}
