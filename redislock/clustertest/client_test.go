package clustertest

import (
	"testing"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// What a user is promised, over three primaries.
func TestClient(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	clienttest.Run(t, clienttest.Harness{
		Open:  func(t testing.TB) driver.Driver { return open(t, c.URL, nil) },
		Kinds: everyKind,
	})
}
