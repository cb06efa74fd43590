package cli

import (
	"context"
	"os"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

// open connects to the chosen store.
func (g *globals) open(ctx context.Context) (*backend.Store, error) {
	url := g.backend
	if url == "" {
		url = os.Getenv("PAWL_BACKEND")
	}
	if url == "" {
		var err error
		if url, err = backend.Local(); err != nil {
			return nil, storeFailure("open", err)
		}
	}
	ctx, stop := context.WithTimeout(ctx, g.timeout)
	defer stop()
	s, err := backend.Open(ctx, url, g.prefix)
	if err != nil {
		return nil, storeFailure("open", err)
	}
	return s, nil
}
