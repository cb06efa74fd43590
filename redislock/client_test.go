package redislock_test

import (
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func TestClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	clienttest.Run(t, clienttest.Harness{
		Open:  func(t testing.TB) driver.Driver { return open(t, s.URL, nil) },
		Kinds: everyKind,
		Freeze: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
		Kill: func(testing.TB) func() {
			s.Kill()
			return sync.OnceFunc(s.Restart)
		},
	})
}
