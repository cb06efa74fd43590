// Package client runs pawl's own conformance suite over etcd.
package client

import (
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

func TestClient(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	m := c.Members[0]
	clienttest.Run(t, clienttest.Harness{
		Open:   func(t testing.TB) driver.Driver { return suite.Open(t, c.URL, nil) },
		Kinds:  suite.Kinds,
		MinTTL: 2 * time.Second,
		Freeze: func(testing.TB) func() {
			m.Stop()
			return m.Cont
		},
		Kill: func(testing.TB) func() {
			m.Kill()
			return sync.OnceFunc(m.Restart)
		},
	})
}
