// Package three runs the conformance suite on a cluster of three members.
package three

import (
	"testing"

	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, suite.Harness(etcdtest.Start(t, etcdtest.Options{Members: 3}), nil))
}
