// Package debian runs the conformance suite on etcd 3.4, from Debian's package etcd-server.
package debian

import (
	"flag"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

// Most of the tests only wait.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "32")
	m.Run()
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, suite.Harness(etcdtest.Start(t, etcdtest.Options{Debian: true}), nil))
}

// With PeerToken, the areas that have to do with tokens.
func TestPeerToken(t *testing.T) {
	h := suite.Harness(etcdtest.Start(t, etcdtest.Options{Debian: true}), &etcdlock.Options{PeerToken: true, Prefix: "peers/"})
	h.Stall = nil
	d := h.Open(t)
	for _, r := range drivertest.Rules() {
		if !slices.Contains([]string{"tokens", "release", "inspect", "unknown outcome"}, r.Area) || !r.Applies(h, d) {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			r.Check(t, h)
		})
	}
}
