// Package clienttest is the conformance suite of pawl over a store: what a user is promised, each promise a named case, run
// through package pawl by several clients that share nothing but the store, as processes would. Package drivertest asks
// whether a driver keeps the rules of the seam; this one asks whether that is enough.
//
//	func TestClient(t *testing.T) {
//		server := start(t)
//		clienttest.Run(t, clienttest.Harness{
//			Open:  func(t testing.TB) driver.Driver { return mylock.New(connect(t, server)) },
//			Kinds: []driver.Kind{driver.Exclusive, driver.Fair},
//		})
//	}
//
// go test -run 'TestClient/schedule' runs one part of it. No case fails because the machine is slow: what must happen has
// generous limits, what must not happen is told by order and not by the clock, and a case that was overtaken by a short TTL
// is run again with a longer one.
package clienttest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Harness tells the suite how to reach a store and what to expect of it.
type Harness struct {
	// Open makes a new driver over the store under test, as another process would have it. It is called several times in
	// one case, always with that case's t: drivers opened with the same t must share one store, and those of all cases may.
	// It may be called by several cases at once. The suite closes what it opened.
	Open func(t testing.TB) driver.Driver

	// Kinds are the kinds that the store carries. What needs another one must answer errors.ErrUnsupported.
	Kinds []driver.Kind

	// Bubble runs f in fake time: synctest.Test for a driver without sockets. Open is called inside. nil: real time.
	Bubble func(t *testing.T, f func(t *testing.T))

	// MinTTL is the shortest TTL that the store carries well. 0: a second.
	MinTTL time.Duration

	// Slack is how late, at most, an expiry or a wake-up may be noticed. 0: a second in fake time, ten in real time, where
	// the machine may be busy.
	Slack time.Duration

	// Together is how many cases run at once in real time, each with up to four drivers. 0: 8.
	Together int

	// Freeze, if not nil, makes the server take requests and answer none until resume is called, and Kill ends it, until
	// restart. Either is always called, perhaps twice: the second time it does nothing. Whether the server keeps its data
	// over a restart is its own affair. The cases that use them run alone, at the end.
	Freeze func(t testing.TB) (resume func())
	Kill   func(t testing.TB) (restart func())
}

func (h Harness) withDefaults() Harness {
	if h.MinTTL <= 0 {
		h.MinTTL = time.Second
	}
	switch {
	case h.Slack > 0:
	case h.Bubble != nil:
		h.Slack = time.Second
	default:
		h.Slack = 10 * time.Second
	}
	if h.Together <= 0 {
		h.Together = 8
	}
	return h
}

func (h Harness) carries(kinds ...driver.Kind) bool {
	for _, k := range kinds {
		if !slices.Contains(h.Kinds, k) {
			return false
		}
	}
	return true
}

// Run runs every case that applies to the store as a subtest. In real time they run several at once, since most of them
// only wait.
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	var can powers
	opens := t.Run("open", func(t *testing.T) {
		h.bubble(t, func(t *testing.T) {
			d := h.Open(t)
			can = powersOf(d)
			if err := d.Close(); err != nil {
				t.Fatalf("Close of a driver that did nothing: %v", err)
			}
		})
	})
	if !opens {
		return
	}
	var wg sync.WaitGroup
	seats := make(chan struct{}, h.Together)
	var last []leaf
	for _, cs := range Cases() {
		for _, l := range cs.leaves(h, can) {
			switch {
			case cs.needs&(freezes|kills) != 0:
				last = append(last, l)
			case h.Bubble != nil:
				l.run(t, h)
			default: // not t.Parallel: it runs no more tests at once than there are processors
				wg.Go(func() {
					seats <- struct{}{}
					defer func() { <-seats }()
					l.run(t, h)
				})
			}
		}
	}
	wg.Wait()
	for _, l := range last {
		l.run(t, h)
	}
}

func (h Harness) bubble(t *testing.T, f func(t *testing.T)) {
	if h.Bubble != nil {
		h.Bubble(t, f)
		return
	}
	f(t)
}

// powers are the optional interfaces of a driver and the abilities of a Harness.
type powers uint

const (
	inspects powers = 1 << iota
	attaches
	watches
	named
	freezes
	kills
)

func powersOf(d driver.Driver) (p powers) {
	if _, ok := d.(driver.Inspector); ok {
		p |= inspects
	}
	if _, ok := d.(driver.Attacher); ok {
		p |= attaches
	}
	if _, ok := d.(driver.Watcher); ok {
		p |= watches
	}
	if _, ok := d.(driver.Named); ok {
		p |= named
	}
	return p
}

func (h Harness) powers() (p powers) {
	if h.Freeze != nil {
		p |= freezes
	}
	if h.Kill != nil {
		p |= kills
	}
	return p
}
