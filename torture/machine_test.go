package torture_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
	"pgregory.net/rapid"
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

	mu      sync.Mutex
	held    int // by the events
	broken  bool
	ends    bool
	closed  chan struct{}
	unended bool // Close named leases that were not unlocked
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
	p := &proc{name: name, wire: newWire(name, store.Share(), l), ctx: ctx, closed: make(chan struct{})}
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

// machine is what rapid drives.
type machine struct {
	store   *memlock.Driver
	ledger  *ledger
	procs   []*proc // also closed ones
	n       int
	tickets []*slip
	running sync.WaitGroup // everything in the background
}

// slip is a detached lease.
type slip struct {
	ticket string
	x      *lease
}

func (m *machine) spawn() *proc {
	m.n++
	p := newProc(context.Background(), fmt.Sprintf("p%d", m.n), m.store, m.ledger)
	m.procs = append(m.procs, p)
	return p
}

// open is a process that was not closed.
func (m *machine) open(t *rapid.T) *proc {
	var ps []*proc
	for _, p := range m.procs {
		if !p.closing() {
			ps = append(ps, p)
		}
	}
	p, _ := some(t, "proc", ps)
	return p
}

func (m *machine) live() (xs []*lease) {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	for _, x := range m.ledger.leases {
		if !x.ending {
			xs = append(xs, x)
		}
	}
	return xs
}

// some draws one of xs; false: there is none.
func some[T any](t *rapid.T, what string, xs []T) (x T, ok bool) {
	if len(xs) == 0 {
		return x, false
	}
	return xs[rapid.IntRange(0, len(xs)-1).Draw(t, what)], true
}

func pick[T any](t *rapid.T, what string, xs []T) T {
	x, _ := some(t, what, xs)
	return x
}

// ask draws a call, without a lease that it re-enters.
func (m *machine) ask(t *rapid.T) *ask {
	a := &ask{p: m.open(t), pol: pick(t, "policy", policies), name: rapid.SampledFrom(names).Draw(t, "name"), weight: 1}
	a.kind = rapid.SampledFrom(kinds[a.name]).Draw(t, "kind")
	if a.kind == driver.Permits {
		a.weight = rapid.SampledFrom([]int{1, 1, 2, permits}).Draw(t, "weight")
	}
	m.wait(t, a, a.p.ctx)
	return a
}

// wait draws how the wait of a ends by itself.
func (m *machine) wait(t *rapid.T, a *ask, ctx context.Context) {
	a.try = a.kind != driver.Leader && rapid.IntRange(0, 3).Draw(t, "try") == 0
	if d := rapid.SampledFrom([]time.Duration{0, 0, 0, 2 * time.Millisecond, 300 * time.Millisecond, 4 * time.Second}).Draw(t, "timeout"); d > 0 {
		a.ctx, a.cancel = context.WithTimeout(ctx, d)
	} else {
		a.ctx, a.cancel = context.WithCancel(ctx)
	}
}

func (m *machine) lock(t *rapid.T) func() {
	a := m.ask(t)
	return func() { a.do(m.ledger) }
}

func (m *machine) reenter(t *rapid.T) func() {
	var xs []*lease
	for _, x := range m.live() {
		if x.a.kind != driver.Permits && x.a.kind != driver.Leader && !x.a.p.closing() {
			xs = append(xs, x)
		}
	}
	x, ok := some(t, "outer", xs)
	if !ok {
		return nil
	}
	a := &ask{p: x.a.p, pol: x.a.pol, name: x.a.name, weight: 1, in: x}
	a.kind = rapid.SampledFrom(kinds[a.name]).Draw(t, "kind")
	m.wait(t, a, x.ctx)
	return func() { a.do(m.ledger) }
}

func (m *machine) unlock(t *rapid.T) func() {
	x, ok := some(t, "lease", m.live())
	if !ok {
		return nil
	}
	return func() { m.ledger.unlock(x) }
}

func (m *machine) unlockAgain(t *rapid.T) func() {
	m.ledger.mu.Lock()
	over := m.ledger.over
	m.ledger.mu.Unlock()
	x, ok := some(t, "unlocked lease", over)
	if !ok {
		return nil
	}
	return func() { m.ledger.unlock(x) }
}

func (m *machine) cancel(t *rapid.T) func() {
	m.ledger.mu.Lock()
	var as []*ask
	for a := range m.ledger.asks {
		as = append(as, a)
	}
	m.ledger.mu.Unlock()
	sortBy(as, func(a *ask) int { return a.n })
	a, ok := some(t, "wait", as)
	if !ok {
		return nil
	}
	return func() { a.cancel() }
}

// traffic is a goroutine that locks, works and unlocks a few times.
func (m *machine) traffic(t *rapid.T) func() {
	a := m.ask(t)
	rounds := rapid.IntRange(1, 6).Draw(t, "rounds")
	work := rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Microsecond, time.Millisecond, 30 * time.Millisecond}).Draw(t, "work")
	return m.worker(a, rounds, work)
}

func (m *machine) worker(a *ask, rounds int, work time.Duration) func() {
	return func() {
		for range rounds {
			b := *a
			x := b.do(m.ledger)
			if x == nil {
				return
			}
			if work > 0 {
				time.Sleep(work)
			}
			m.ledger.mu.Lock()
			ending := x.ending
			m.ledger.mu.Unlock()
			if ending { // somebody else was faster
				return
			}
			m.ledger.unlock(x)
		}
	}
}

// all takes several locks, all or none.
func (m *machine) all(t *rapid.T) func() {
	first := m.ask(t)
	as, locks := []*ask{}, []pawl.Locker{}
	for _, name := range names {
		if name == "e" || rapid.IntRange(0, 2).Draw(t, "with "+name) == 0 {
			continue
		}
		a := &ask{p: first.p, pol: first.pol, name: name, kind: pick(t, "kind", kinds[name]), weight: 1, try: first.try,
			ctx: first.ctx, cancel: first.cancel, multi: true}
		as, locks = append(as, a), append(locks, a.locker())
	}
	return func() {
		if len(as) == 0 {
			return
		}
		for _, a := range as {
			m.ledger.asking(a)
		}
		var ls pawl.Leases
		var err error
		if first.try {
			ls, err = pawl.All(locks...).TryLock(first.ctx)
		} else {
			ls, err = pawl.All(locks...).Lock(first.ctx)
		}
		for i, a := range as {
			if err == nil {
				m.ledger.got(a, ls[i], nil)
			} else {
				m.ledger.got(a, nil, err)
			}
		}
	}
}

// crowd is several goroutines of one process that want the same.
func (m *machine) crowd(t *rapid.T) func() {
	var fs []func()
	a := m.ask(t)
	work := rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Microsecond}).Draw(t, "work")
	rounds := rapid.IntRange(1, 4).Draw(t, "rounds")
	for range rapid.IntRange(2, 6).Draw(t, "crowd") {
		fs = append(fs, m.worker(a, rounds, work))
	}
	return func() {
		for _, f := range fs {
			m.run(f)
		}
	}
}

func (m *machine) expire(t *rapid.T) func() {
	name := rapid.SampledFrom(names).Draw(t, "name")
	return func() { m.ledger.rob(name, "", func() { m.store.Expire(name) }) }
}

func (m *machine) steal(t *rapid.T) func() {
	p, name := m.open(t), rapid.SampledFrom(names).Draw(t, "name")
	return func() {
		info, err := p.client.Inspect(context.Background(), name)
		if err != nil || len(info.Holders) == 0 {
			return
		}
		h := info.Holders[0]
		m.ledger.logf("%s steals %s", p.name, h.ID)
		p.client.Steal(context.WithValue(p.ctx, stealing{}, true), name, h)
	}
}

func (m *machine) detach(t *rapid.T) func() {
	x, ok := some(t, "lease", m.live())
	if !ok {
		return nil
	}
	return func() {
		m.ledger.mu.Lock()
		if x.ending {
			m.ledger.mu.Unlock()
			return
		}
		x.ending = true
		m.ledger.mu.Unlock()
		ticket, err := x.l.Detach()
		m.ledger.mu.Lock()
		defer m.ledger.mu.Unlock()
		m.ledger.log("detach %d: %v", x.n, err)
		if err != nil {
			x.ending = false
			if !isAny(err, pawl.ErrHeld, pawl.ErrLost, pawl.ErrNotHeld) {
				m.ledger.complain("detach %d: %v", x.n, err)
			}
			return
		}
		x.unlocked, x.hold.detached = true, true
		m.ledger.drop(x)
		m.tickets = append(m.tickets, &slip{ticket, x})
	}
}

func (m *machine) attach(t *rapid.T) func() {
	m.ledger.mu.Lock()
	slips := m.tickets
	m.ledger.mu.Unlock()
	s, ok := some(t, "ticket", slips)
	if !ok {
		return nil
	}
	p, pol := m.open(t), pick(t, "policy", policies)
	m.tickets = nil // whoever attaches second shares the hold
	for _, o := range slips {
		if o != s {
			m.tickets = append(m.tickets, o)
		}
	}
	return func() {
		a := &ask{p: p, pol: pol, kind: s.x.a.kind, name: s.x.a.name, weight: s.x.a.weight}
		a.ctx, a.cancel = context.WithCancel(p.ctx)
		m.ledger.mu.Lock()
		m.ledger.n++
		a.n = m.ledger.n
		s.x.hold.attached = true
		m.ledger.log("%v attaches what was lease %d", a, s.x.n)
		m.ledger.mu.Unlock()
		pl, err := p.with[pol].Attach(a.ctx, s.ticket)
		m.ledger.mu.Lock()
		defer m.ledger.mu.Unlock()
		m.ledger.log("attach %d: %v", a.n, err)
		if err != nil {
			return
		}
		if pl.Token() != s.x.token {
			m.ledger.complain("attach: token %d, was %d", pl.Token(), s.x.token)
		}
		x := &lease{n: a.n, a: a, l: pl, token: pl.Token(), at: time.Now(), hold: s.x.hold, ctx: pl.Context(p.ctx)}
		m.ledger.leases = append(m.ledger.leases, x)
		m.ledger.alone(x)
	}
}

// edge sleeps until shortly before or after a lease must be over, with its process cut off or not.
func (m *machine) edge(t *rapid.T) {
	x, ok := some(t, "lease", m.live())
	if !ok {
		t.Skip("nothing is held")
	}
	m.lapse(t, x, rapid.Bool().Draw(t, "cut"))
}

func (m *machine) lapse(t *rapid.T, x *lease, cut bool) {
	off := rapid.SampledFrom([]time.Duration{-time.Millisecond, 0, time.Millisecond}).Draw(t, "off")
	if cut && !x.a.p.setBroken(true) {
		x.a.p.wire.cut(errBroken)
		m.ledger.logf("%s is cut off, to see lease %d end", x.a.p.name, x.n)
	}
	if d := time.Until(x.l.Deadline()) + off; x.l.Err() == nil && d > 0 {
		time.Sleep(d)
	}
}

// lateLapse lets a process that hears everything late take a lock and perhaps renew it, and then cuts it off.
func (m *machine) lateLapse(t *rapid.T) {
	a := m.ask(t)
	m.slowdown(t, a.p)()
	renewed := rapid.Bool().Draw(t, "renewed")
	m.run(func() { a.do(m.ledger) })
	time.Sleep(1300 * time.Millisecond)
	for _, x := range m.live() {
		if x.a == a {
			if renewed {
				time.Sleep(x.hold.TTL/3 + time.Second)
			}
			m.lapse(t, x, true)
			return
		}
	}
}

func (m *machine) breakStore(t *rapid.T) func() {
	p := m.open(t)
	err := rapid.SampledFrom([]error{errBroken, errCertain}).Draw(t, "error")
	return func() {
		p.setBroken(true)
		p.wire.cut(err)
		m.ledger.logf("%s is cut off: %v", p.name, err)
	}
}

// slow makes the answers to a process late, by more than the margin of its trust and less than a renewal waits.
func (m *machine) slow(t *rapid.T) func() {
	return m.slowdown(t, m.open(t))
}

func (m *machine) slowdown(t *rapid.T, p *proc) func() {
	d := rapid.SampledFrom([]time.Duration{250 * time.Millisecond, 700 * time.Millisecond, 1200 * time.Millisecond}).Draw(t, "delay")
	return func() {
		m.ledger.logf("%s hears everything %v late", p.name, d)
		p.wire.all("Try", fault{After: d})
		p.wire.all("Renew", fault{After: d})
	}
}

func (m *machine) mend(t *rapid.T) func() {
	var ps []*proc
	for _, p := range m.procs {
		if p.cut() || p.wire.slow() {
			ps = append(ps, p)
		}
	}
	p, ok := some(t, "broken process", ps)
	if !ok {
		return nil
	}
	return func() {
		m.repair(p)
		p.wire.heal()
	}
}

func (m *machine) repair(p *proc) {
	if p.setBroken(false) {
		p.wire.mend()
		m.ledger.logf("%s is mended", p.name)
	}
}

func (m *machine) fault(t *rapid.T) func() {
	p := m.open(t)
	method := rapid.SampledFrom([]string{"Try", "Try", "Leave", "Renew", "Release", "Attach"}).Draw(t, "method")
	delay := rapid.SampledFrom([]time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 400 * time.Millisecond, 1400 * time.Millisecond, 2500 * time.Millisecond})
	var f fault
	switch rapid.IntRange(0, 5).Draw(t, "fault") {
	case 0:
		f.Lost = true
	case 1:
		f.Lost, f.Hang = true, true
	case 2:
		f.Never = true
	case 3:
		f.Never, f.Err = true, errCertain
	case 4:
		f.Before = delay.Draw(t, "before")
	case 5:
		f.After = delay.Draw(t, "after")
	}
	return func() {
		m.ledger.logf("%s next %s %+v", p.name, method, f)
		p.wire.next(method, f)
	}
}

func (m *machine) mute(t *rapid.T) func() {
	p := m.open(t)
	s := rapid.SampledFrom([]driver.Signal{driver.Changed, driver.Lost, driver.Wanted}).Draw(t, "signal")
	return func() {
		m.ledger.logf("%s loses the next signal %d", p.name, s)
		p.wire.drop(s, 1)
	}
}

// close ends a process and starts another in its stead.
func (m *machine) close(t *rapid.T) func() {
	p := m.open(t)
	m.spawn()
	return func() { m.end(p) }
}

func (m *machine) end(p *proc) {
	p.mu.Lock()
	if p.ends {
		p.mu.Unlock()
		return
	}
	p.ends = true
	p.mu.Unlock()
	begin := time.Now()
	m.ledger.logf("close %s", p.name)
	err := p.client.Close()
	m.ledger.logf("close %s: %v", p.name, err)
	if d := time.Since(begin); d > pawl.DefaultTTL+5*time.Second {
		m.ledger.badf("close %s took %v", p.name, d)
	}
	if err := p.client.Close(); err != nil {
		m.ledger.badf("close %s again: %v", p.name, err)
	}
	close(p.closed)
}

func (m *machine) run(f func()) { m.running.Go(f) }

// finish gives everything back and checks that nothing is left.
func (m *machine) finish() {
	for _, p := range m.procs {
		m.repair(p)
		p.wire.heal()
	}
	m.ledger.mu.Lock()
	for a := range m.ledger.asks {
		a.cancel()
	}
	m.ledger.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		m.running.Wait()
		close(idle)
	}()
	for ended := false; !ended; { // traffic goes on for a while
		for _, x := range m.live() {
			go m.ledger.unlock(x)
		}
		select {
		case <-idle:
			ended = len(m.live()) == 0
		case <-time.After(time.Second):
		}
	}
	for _, p := range m.procs {
		p.wire.settle()
	}
	time.Sleep(2*pawl.DefaultTTL + wakeBound)
	synctest.Wait()
	for _, n := range names {
		r, err := m.ledger.god.Inspect(context.Background(), n)
		if err != nil || len(r.Holds) > 0 || r.Waiters != 0 {
			m.ledger.badf("%q has holds %v and %d waiters left, %v", n, r.Holds, r.Waiters, err)
		}
	}
	m.ledger.mu.Lock()
	if n := len(m.ledger.leases) + len(m.ledger.asks) + len(m.ledger.inLine); n > 0 {
		m.ledger.complain("%d leases, %d calls and %d places are left", len(m.ledger.leases), len(m.ledger.asks), len(m.ledger.inLine))
	}
	m.ledger.mu.Unlock()
	for _, p := range m.procs {
		m.ledger.checkEmpty(p)
		m.end(p)
	}
}

// play lets rapid drive a machine of n processes inside a bubble.
func play(t *rapid.T, n int) {
	store := memlock.New()
	m := &machine{store: store, ledger: newLedger(store)}
	for range n {
		m.spawn()
	}
	t.Cleanup(func() {
		m.finish()
		if s := m.ledger.report(400); s != "" {
			t.Errorf("%s", s)
		}
	})
	one := func(draw func(*rapid.T) func()) func(*rapid.T) {
		return func(t *rapid.T) {
			f := draw(t)
			if f == nil {
				t.Skip("nothing to do it with")
			}
			m.run(f)
			synctest.Wait()
		}
	}
	calls := []func(*rapid.T) func(){m.lock, m.lock, m.lock, m.lock, m.unlock, m.unlock, m.cancel, m.traffic, m.reenter, m.expire, m.all, m.crowd}
	t.Repeat(map[string]func(*rapid.T){
		"":        func(*rapid.T) { synctest.Wait(); m.ledger.check(names, m.procs); m.stop(t) },
		"lock":    one(m.lock),
		"lock2":   one(m.lock),
		"lock3":   one(m.lock),
		"reenter": one(m.reenter),
		"unlock":  one(m.unlock),
		"unlock2": one(m.unlock),
		"again":   one(m.unlockAgain),
		"cancel":  one(m.cancel),
		"expire":  one(m.expire),
		"steal":   one(m.steal),
		"detach":  one(m.detach),
		"attach":  one(m.attach),
		"break":   one(m.breakStore),
		"mend":    one(m.mend),
		"mend2":   one(m.mend),
		"fault":   one(m.fault),
		"fault2":  one(m.fault),
		"mute":    one(m.mute),
		"slow":    one(m.slow),
		"close":   one(m.close),
		"traffic": one(m.traffic),
		"all":     one(m.all),
		"crowd":   one(m.crowd),
		"edge":    m.edge,
		"lapse":   m.lateLapse,
		"burst": func(t *rapid.T) { // many things in one instant
			var fs []func()
			for range rapid.IntRange(2, 8).Draw(t, "width") {
				if f := calls[rapid.IntRange(0, len(calls)-1).Draw(t, "call")](t); f != nil {
					fs = append(fs, f)
				}
			}
			for _, f := range fs {
				m.run(f)
			}
			synctest.Wait()
		},
		"pause": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{100 * time.Microsecond, time.Millisecond, 6 * time.Millisecond,
				25 * time.Millisecond, 150 * time.Millisecond}).Draw(t, "pause"))
		},
		"sleep": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{600 * time.Millisecond, 1100 * time.Millisecond, 2100 * time.Millisecond,
				5 * time.Second, 11 * time.Second, 31 * time.Second}).Draw(t, "sleep"))
		},
	})
}

// stop ends the run at the first contradiction.
func (m *machine) stop(t *rapid.T) {
	if s := m.ledger.report(400); s != "" {
		m.ledger.mu.Lock()
		m.ledger.bad = nil // told here, not again by the cleanup
		m.ledger.mu.Unlock()
		t.Fatalf("%s", s)
	}
}

func TestMachine(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(n, " processes"), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rapid.SyncTest(t, func(t *rapid.T) { play(t, n) })
			})
		})
	}
}
