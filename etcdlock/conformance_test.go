package etcdlock_test

import (
	"testing"

	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

// The suite on three members and on etcd 3.4 is in the folder tests.
func TestConformance(t *testing.T) {
	drivertest.Run(t, suite.Harness(etcdtest.Start(t, etcdtest.Options{}), nil))
}
