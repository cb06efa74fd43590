package clustertest

import (
	"testing"

	"github.com/pawl-lock/pawl/redislock/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
