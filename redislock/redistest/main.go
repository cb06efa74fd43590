package redistest

import (
	"flag"
	"os"
	"testing"
)

// Main is the TestMain of packages whose tests wait more than they work: six run at once, however few processors there are, unless
// the flag -parallel says otherwise.
func Main(m *testing.M) {
	flag.Set("test.parallel", "6")
	os.Exit(m.Run())
}
