// Package broken tests the tests: for every rule of package drivertest it holds drivers that break it the way real lock
// libraries do, and whose conformance run must fail. A rule that no driver can break proves nothing.
//
// The drivers are memlock with one thing changed, and run in fake time.
package broken

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/memlock"
)

// Mutant is a driver that breaks a rule.
type Mutant struct {
	Rule  string // as drivertest.Rule.String says it
	Fault string // what the driver does wrong

	polls bool
	hooks func() hooks // made anew for each store: hooks may have a state that all its drivers share
}

// Mutants lists all of them.
func Mutants() []Mutant {
	var all []Mutant
	for _, area := range [][]Mutant{
		exclusionMutants, tokenMutants, renewalMutants, releaseMutants, waitingMutants, cancellationMutants, unknownMutants,
		readWriteMutants, fairMutants, semaphoreMutants, nameMutants, inspectMutants, onceMutants, leaderMutants, attachMutants,
		raiseMutants, joinMutants, closeMutants, secretMutants,
	} {
		all = append(all, area...)
	}
	return all
}

// Harness opens the mutant. Drivers opened with the same t share a store.
func (m Mutant) Harness() drivertest.Harness {
	h := harness(m.hooks)
	h.Polls = m.polls
	return h
}

// Sound is the harness of the same driver with nothing broken: it passes every rule.
func Sound() drivertest.Harness { return harness(func() hooks { return hooks{} }) }

func harness(mk func() hooks) drivertest.Harness {
	var stores sync.Map // of *store, by case
	of := func(t testing.TB) *store {
		s, had := stores.LoadOrStore(t, &store{Driver: memlock.New(), hooks: mk()})
		if !had {
			t.Cleanup(func() { stores.Delete(t) })
		}
		return s.(*store)
	}
	return drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return of(t).open() },
		Kinds: []driver.Kind{
			driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once,
		},
		Bubble:      synctest.Test,
		WriterFirst: true,
		Lost:        true,
		Wanted:      true,
		Delete:      func(t testing.TB, name string) { of(t).Expire(name) },
		Secrets:     []string{password},
		Stall:       func(t testing.TB) func() { return of(t).stall() },
	}
}
