package memlock_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

func TestClient(t *testing.T) {
	var stores sync.Map // by case: a store does not cross bubbles
	clienttest.Run(t, clienttest.Harness{
		Open: func(t testing.TB) driver.Driver {
			store, had := stores.LoadOrStore(t, memlock.New())
			if !had {
				t.Cleanup(func() { stores.Delete(t) })
			}
			return store.(*memlock.Driver).Share()
		},
		Kinds:  everyKind,
		Bubble: synctest.Test,
	})
}
