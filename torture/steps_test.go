package torture_test

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"pgregory.net/rapid"
)

// The steps of the machine. Each draws what it needs and answers what to do; nil: there is nothing to do it with.

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
		t.Skip("nothing is held") // rapid's: another step is drawn instead
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
}
