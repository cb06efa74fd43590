package cli

import (
	"context"
	"os"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/driver"
)

// open connects to the chosen store, and tells its kind.
func (g *globals) open(ctx context.Context) (driver.Driver, string, error) {
	url := g.backend
	if url == "" {
		url = os.Getenv("PAWL_BACKEND")
	}
	if url == "" {
		var err error
		if url, err = backend.Local(); err != nil {
			return nil, "", storeFailure("open", err)
		}
	}
	ctx, stop := context.WithTimeout(ctx, g.timeout)
	defer stop()
	d, err := backend.Open(ctx, url, g.prefix)
	if err != nil {
		return nil, "", storeFailure("open", err)
	}
	return d, backend.Kind(url), nil
}
