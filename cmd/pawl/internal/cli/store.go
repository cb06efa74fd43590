package cli

import (
	"context"
	"os"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/driver"
)

// url is that of the chosen store.
func (g *globals) url() (string, error) {
	url := g.backend
	if url == "" {
		url = os.Getenv("PAWL_BACKEND")
	}
	if url == "" {
		var err error
		if url, err = backend.Local(); err != nil {
			return "", storeFailure("open", err)
		}
	}
	return url, nil
}

// open connects to a store.
func (g *globals) open(ctx context.Context, url string) (driver.Driver, error) {
	ctx, stop := context.WithTimeout(ctx, g.timeout)
	defer stop()
	d, err := backend.Open(ctx, url, g.prefix)
	if err != nil {
		return nil, storeFailure("open", err)
	}
	return d, nil
}

// warn says what makes a quorum weaker than it looks. It blocks until the members have answered, for some seconds at most.
func (g *globals) warn(d driver.Driver) {
	q, ok := d.(interface {
		Warnings(context.Context) []string
	})
	if !ok || g.say.quiet {
		return
	}
	for _, w := range q.Warnings(context.Background()) {
		g.say.note("%s", w)
	}
}

// client connects to the chosen store.
func (g *globals) client(ctx context.Context) (*pawl.Client, error) {
	url, err := g.url()
	if err != nil {
		return nil, err
	}
	store, err := g.open(ctx, url)
	if err != nil {
		return nil, err
	}
	g.warn(store)
	return pawl.New(store), nil
}
