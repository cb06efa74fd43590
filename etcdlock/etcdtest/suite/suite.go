// Package suite is the harness of the conformance suite over a cluster of package etcdtest.
package suite

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
)

// Kinds are all kinds that etcdlock carries.
var Kinds = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader, driver.Once}

// Harness is that of the conformance suite over a cluster.
func Harness(c *etcdtest.Cluster, opts *etcdlock.Options) drivertest.Harness {
	raw := c.Client()
	return drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return Open(t, c.URL, opts) },
		Kinds:       Kinds,
		MinTTL:      2 * time.Second, // the least that etcd grants with its default election timeout
		WriterFirst: true,
		Lost:        true,
		Delete: func(t testing.TB, name string) {
			t.Helper()
			resp, err := raw.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, kv := range resp.Kvs {
				if strings.Contains(string(kv.Key), name) {
					n++
					if _, err := raw.Delete(t.Context(), string(kv.Key)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n == 0 {
				t.Fatalf("nothing to delete of %q", name)
			}
		},
		Stall: func(testing.TB) func() {
			for _, m := range c.Members {
				m.Stop()
			}
			return func() {
				for _, m := range c.Members {
					m.Cont()
				}
			}
		},
	}
}

// Open opens a driver that is closed with the test.
func Open(t testing.TB, url string, opts *etcdlock.Options) *etcdlock.Driver {
	t.Helper()
	d, err := etcdlock.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
