package sqllock_test

import (
	"path/filepath"
	"testing"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// All cases share one file; each client has a pool of its own, as another process would have it.
func TestClient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	clienttest.Run(t, clienttest.Harness{
		Open: func(t testing.TB) driver.Driver {
			d, err := sqllock.Open(t.Context(), "sqlite://"+file, nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Kinds: everyKind,
	})
}
