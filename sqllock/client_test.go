package sqllock_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/clienttest"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// Each case has a file of its own, and each of its clients a pool of its own, as another process would have it.
func TestClient(t *testing.T) {
	var mu sync.Mutex
	files := map[testing.TB]string{}
	fileOf := func(t testing.TB) string {
		mu.Lock()
		defer mu.Unlock()
		if files[t] == "" {
			files[t] = filepath.Join(t.TempDir(), "locks.db")
		}
		return files[t]
	}
	clienttest.Run(t, clienttest.Harness{
		Open: func(t testing.TB) driver.Driver {
			d, err := sqllock.Open(t.Context(), "sqlite://"+fileOf(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Kinds: everyKind,
	})
}
