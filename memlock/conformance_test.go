package memlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/memlock"
)

var everyKind = []driver.Kind{
	driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once,
}

func TestConformance(t *testing.T) {
	var stores sync.Map // by case: a store does not cross bubbles
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			store, had := stores.LoadOrStore(t, memlock.New())
			if !had {
				t.Cleanup(func() { stores.Delete(t) })
			}
			return store.(*memlock.Driver).Share()
		},
		Kinds:       everyKind,
		Bubble:      synctest.Test,
		WriterFirst: true,
		Lost:        true,
		Wanted:      true,
		Delete: func(t testing.TB, name string) {
			store, _ := stores.Load(t)
			store.(*memlock.Driver).Expire(name)
		},
	})
}

// One store for all cases at once, by the real clock.
func TestConformanceInRealTime(t *testing.T) {
	store := memlock.New()
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return store.Share() },
		Kinds:       everyKind,
		MinTTL:      300 * time.Millisecond,
		WriterFirst: true,
		Lost:        true,
		Wanted:      true,
		Delete:      func(t testing.TB, name string) { store.Expire(name) },
	})
}
