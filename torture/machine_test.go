package torture_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
	"pgregory.net/rapid"
)

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
				t.Skip("nothing to do it with") // rapid's: another step is drawn instead
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
