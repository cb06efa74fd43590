package zklock_test

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

func TestClient(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, zktest.Config{})
	clienttest.Run(t, clienttest.Harness{
		Open: func(t testing.TB) driver.Driver {
			return open(t, "zookeeper://"+s.Addr+"/clients", &zklock.Options{SessionTimeout: session})
		},
		Kinds:  everyKind,
		MinTTL: time.Second,
		Freeze: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
	})
}
