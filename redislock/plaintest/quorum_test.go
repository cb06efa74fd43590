package plaintest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/redlock"
)

// mutexes refuses other kinds at Enter, as the suite wants it. A quorum hears of what its members do not carry at the first Try.
type mutexes struct{ *redlock.Driver }

func (d mutexes) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	if r.Kind != driver.Exclusive {
		return nil, errors.ErrUnsupported
	}
	return d.Driver.Enter(ctx, r)
}

// A quorum over servers with plain strings keeps the rules of any other, and is told of releases by its members.
func TestConformanceOfQuorum(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	for range 3 {
		servers = append(servers, redistest.Start(t))
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			var members []driver.Driver
			for _, s := range servers {
				p, err := redislock.OpenPlain(t.Context(), s.URL, &redislock.PlainOptions{Fenced: true})
				if err != nil {
					t.Fatal(err)
				}
				members = append(members, p)
			}
			q := redlock.New(members, &redlock.Options{Durable: true})
			t.Cleanup(func() { q.Close() })
			return mutexes{q}
		},
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: 2 * time.Second,
	})
}
