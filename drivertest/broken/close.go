package broken

import (
	"context"
	"errors"
	"sync"

	"github.com/pawl-lock/pawl/driver"
)

// closeReleases releases in Close what the driver got.
func closeReleases() hooks {
	var mu sync.Mutex
	got := map[*proxy][]driver.Hold{}
	return hooks{
		try: grants(func(p *place, g *driver.Grant) {
			mu.Lock()
			defer mu.Unlock()
			got[p.d] = append(got[p.d], p.r.Hold)
		}),
		close: func(d *proxy) error {
			mu.Lock()
			defer mu.Unlock()
			for _, h := range got[d] {
				d.Driver.Release(context.Background(), h, driver.End{})
			}
			return d.Driver.Close()
		},
	}
}

var closeMutants = []Mutant{
	{
		Rule: "close/twice", Fault: "fails when it is closed again",
		hooks: func() hooks {
			var mu sync.Mutex
			closed := map[*proxy]bool{}
			return hooks{close: func(d *proxy) error {
				mu.Lock()
				defer mu.Unlock()
				if closed[d] {
					return errors.New("broken: already closed")
				}
				closed[d] = true
				return d.Driver.Close()
			}}
		},
	},
	{
		Rule: "close/later calls fail for certain", Fault: "goes on working",
		hooks: func() hooks { return hooks{close: func(d *proxy) error { return nil }} },
	},
	{
		Rule: "close/later calls fail for certain", Fault: "fails with an error that says nothing",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if errors.Is(err, driver.ErrClosed) {
					err = errors.New("broken: use of a closed connection")
				}
				return g, err
			}}
		},
	},
	{Rule: "close/releases no hold", Fault: "releases what it got", hooks: closeReleases},
	{
		Rule: "close/only its own driver", Fault: "closes what others use too",
		hooks: func() hooks {
			return hooks{close: func(d *proxy) error {
				d.s.mu.Lock()
				defer d.s.mu.Unlock()
				for _, other := range d.s.drivers {
					other.Driver.Close()
				}
				return nil
			}}
		},
	},
	{
		Rule: "close/calls under way end", Fault: "waits for the answer also when it is closed",
		hooks: func() hooks { return hooks{deafToClose: true} },
	},
}
