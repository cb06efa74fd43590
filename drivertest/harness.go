// Package drivertest is the conformance suite of pawl's drivers: every rule of the contract in package driver is a named
// test, and a failure prints the rule. A driver's own test calls [Run]; package drivertest/broken holds, for every rule, a
// driver that breaks it and must fail.
//
// The suite talks to [driver.Driver] and its optional interfaces only. It finds out by itself what a driver can do; the
// few things that no interface tells are fields of [Harness]. A driver's test looks like this:
//
//	func TestConformance(t *testing.T) {
//		server := start(t)
//		drivertest.Run(t, drivertest.Harness{
//			Open:  func(t testing.TB) driver.Driver { return mylock.New(connect(t, server)) },
//			Kinds: []driver.Kind{driver.Exclusive, driver.Fair},
//		})
//	}
//
// go test -run 'TestConformance/tokens' runs one area of it.
package drivertest

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

	// Kinds are the kinds that the store carries. Every other kind must be refused with errors.ErrUnsupported.
	Kinds []driver.Kind

	// Bubble runs f in fake time: synctest.Test for a driver without sockets. Open is called inside. nil: real time.
	Bubble func(t *testing.T, f func(t *testing.T))

	// MinTTL is the shortest TTL that the store carries well. 0: a second.
	MinTTL time.Duration

	// Slack is how late, at most, an expiry or a wake-up may be noticed. 0: not at all in fake time, ten seconds in real
	// time, where the machine may be busy.
	Slack time.Duration

	// Polls says that the store cannot notify: instead of Changed, HeldError.Again tells a waiting place when to look, at
	// most Slack later.
	Polls bool

	// WriterFirst says that a waiting Write stops new Reads.
	WriterFirst bool

	// Lost says that the driver reports Lost by itself when a hold expires or is ended by another process.
	Lost bool

	// Wanted says that the driver reports Wanted.
	Wanted bool

	// Together is how many of the cases that sleep run at once in real time, each with up to three drivers. 0: 32.
	Together int

	// Delete, if not nil, destroys all that the store knows of a name, as a stranger might (a key deleted by hand).
	Delete func(t testing.TB, name string)

	// Secrets are texts that no error may show: the store's password, its full URL.
	Secrets []string

	// Stall, if not nil, makes the store take requests and answer none until resume is called. The cases that use it run
	// alone, and resume is always called.
	Stall func(t testing.TB) (resume func())
}

func (h Harness) withDefaults() Harness {
	if h.MinTTL <= 0 {
		h.MinTTL = time.Second
	}
	if h.Slack <= 0 && h.Bubble == nil {
		h.Slack = 10 * time.Second
	}
	if h.Together <= 0 {
		h.Together = 32
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

// Run runs every rule that applies to the driver as a subtest. In real time the rules that sleep run at the same
// time, after the others, so the whole suite takes a few TTLs and not a hundred.
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
	var slow []leaf
	for _, r := range Rules() {
		for _, l := range r.leaves(h, can) {
			if r.slow && h.Bubble == nil && r.needs&stalls == 0 {
				slow = append(slow, l)
				continue
			}
			l.run(t, h)
		}
	}
	// Not t.Parallel: it runs no more tests at once than there are processors, and these only wait.
	var wg sync.WaitGroup
	seats := make(chan struct{}, h.Together)
	for _, l := range slow {
		wg.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			l.run(t, h)
		})
	}
	wg.Wait()
}

func (h Harness) bubble(t *testing.T, f func(t *testing.T)) {
	if h.Bubble != nil {
		h.Bubble(t, f)
		return
	}
	f(t)
}

// powers are the optional interfaces of a driver and the abilities that a Harness states.
type powers uint

const (
	inspects powers = 1 << iota
	watches
	attaches
	raises
	joins
	notifies
	polls
	writerFirst
	tellsLost
	tellsWanted
	deletes
	stalls
	hasSecrets
)

func powersOf(d driver.Driver) (p powers) {
	if _, ok := d.(driver.Inspector); ok {
		p |= inspects
	}
	if _, ok := d.(driver.Watcher); ok {
		p |= watches
	}
	if _, ok := d.(driver.Attacher); ok {
		p |= attaches
	}
	if _, ok := d.(driver.Raiser); ok {
		p |= raises
	}
	if _, ok := d.(driver.Joiner); ok {
		p |= joins
	}
	return p
}

func (h Harness) powers() (p powers) {
	p = notifies
	if h.Polls {
		p = polls
	}
	if h.WriterFirst {
		p |= writerFirst
	}
	if h.Lost {
		p |= tellsLost
	}
	if h.Wanted {
		p |= tellsWanted
	}
	if h.Delete != nil {
		p |= deletes
	}
	if h.Stall != nil {
		p |= stalls
	}
	if len(h.Secrets) > 0 {
		p |= hasSecrets
	}
	return p
}
