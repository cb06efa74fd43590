package redlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redlock"
)

// What a user is promised, over a quorum of three, with and without tokens. One promise is not kept: that others have their turn. There is no
// line across members, and over members that answer in no time a client with many local waiters is always the quicker one.
func TestClient(t *testing.T) {
	for name, opts := range map[string]*redlock.Options{"with tokens": {MaxTTL: time.Hour}, "without": {MaxTTL: time.Hour, WithoutToken: true}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			stores := map[testing.TB][]*memlock.Driver{} // by case: a store does not cross bubbles
			h := clienttest.Harness{
				Open: func(t testing.TB) driver.Driver {
					mu.Lock()
					defer mu.Unlock()
					for len(stores[t]) < 3 {
						stores[t] = append(stores[t], memlock.New())
					}
					var members []driver.Driver
					for _, s := range stores[t] {
						members = append(members, s.Share())
					}
					return redlock.New(members, opts)
				},
				Kinds: kinds,
				Slack: 2 * time.Second, // contenders come back at random instants
			}
			ran := 0
			for _, cs := range clienttest.Cases() {
				d := h.Open(t)
				applies := cs.Applies(h, d)
				d.Close()
				if !applies || cs.Name == "others have their turn" {
					continue
				}
				ran++
				t.Run(cs.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { cs.Check(t, h) })
				})
			}
			if ran < 20 {
				t.Errorf("only %d cases were run", ran)
			}
		})
	}
}
