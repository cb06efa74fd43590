package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redlock"
)

var kinds = []driver.Kind{driver.Exclusive, driver.Read, driver.Write, driver.Permits, driver.Once}

// harness is a quorum of n stores in memory for each case.
func harness(n int, opts *redlock.Options) drivertest.Harness {
	var mu sync.Mutex
	stores := map[testing.TB][]*memlock.Driver{}
	of := func(t testing.TB) []*memlock.Driver {
		mu.Lock()
		defer mu.Unlock()
		if stores[t] == nil {
			for range n {
				stores[t] = append(stores[t], memlock.New())
			}
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				delete(stores, t)
			})
		}
		return stores[t]
	}
	return drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			var members []driver.Driver
			for _, s := range of(t) {
				members = append(members, s.Share())
			}
			return redlock.New(members, opts)
		},
		Kinds:  kinds,
		Bubble: synctest.Test,
		Slack:  500 * time.Millisecond, // the drift is taken off the TTL, and contenders come back at random instants
		Lost:   true,
		Delete: func(t testing.TB, name string) {
			for _, s := range of(t) {
				s.Expire(name)
			}
		},
	}
}

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { drivertest.Run(t, harness(n, nil)) })
	}
}

func TestConformanceWithoutToken(t *testing.T) {
	drivertest.Run(t, harness(3, &redlock.Options{WithoutToken: true}))
}
