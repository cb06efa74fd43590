package memlock_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

func TestClient(t *testing.T) {
	var mu sync.Mutex
	opened := map[testing.TB][]*memlock.Driver{} // by case: a store does not cross bubbles
	clienttest.Run(t, clienttest.Harness{
		Open: func(t testing.TB) driver.Driver {
			mu.Lock()
			defer mu.Unlock()
			d := memlock.New()
			if all := opened[t]; len(all) > 0 {
				d = all[0].Share()
			}
			opened[t] = append(opened[t], d)
			return d
		},
		Kinds:  everyKind,
		Bubble: synctest.Test,
		Kill: func(t testing.TB) func() {
			mu.Lock()
			defer mu.Unlock()
			for _, d := range opened[t] {
				d.Break(errors.New("connection refused"))
			}
			return func() {
				mu.Lock()
				defer mu.Unlock()
				for _, d := range opened[t] {
					d.Break(nil)
				}
			}
		},
	})
}
