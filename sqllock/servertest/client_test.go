package servertest

import (
	"testing"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
)

// The client's promises, with each client on a pool of its own, as another process would have it.
func TestClient(t *testing.T) { on(t, testClient) }

func testClient(t *testing.T, s product) {
	clienttest.Run(t, clienttest.Harness{
		Open:  func(t testing.TB) driver.Driver { return s.open(t) },
		Kinds: everyKind,
		Freeze: func(t testing.TB) func() {
			s.Stop()
			return s.Cont
		},
		Kill: func(t testing.TB) func() {
			s.Kill()
			return s.Restart
		},
	})
}
