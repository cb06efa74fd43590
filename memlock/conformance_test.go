package memlock_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/memlock"
)

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
		Kinds: []driver.Kind{
			driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once,
		},
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
