package bench

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/driver"
)

// OpenStore opens a store that pawl knows, by its URL.
func OpenStore(ctx context.Context, url string) (driver.Driver, error) {
	return backend.Open(ctx, url, "")
}

// Pawl is the Opener of pawl itself, over the stores that open knows.
func Pawl(open func(ctx context.Context, url string) (driver.Driver, error)) Opener {
	return func(ctx context.Context, url string, c Case) (*Session, error) {
		kind := backend.Kind(url)
		if kind == "mem" && (c.Processes > 1 || c.Kind == Handover || c.Kind == Idle) {
			return nil, ErrNone // it is within one process
		}
		if c.Keys > 0 && c.Reads > 0 {
			return nil, errors.New("a case with many keys has no readers")
		}
		d, err := open(ctx, url)
		if err != nil {
			return nil, err
		}
		var calls func() int64
		if kind == "mem" || kind == "sqlite" { // no server counts
			n := &counting{Driver: d}
			d, calls = n, n.n.Load
		}
		locks := pawl.New(d).With(pawl.Options{TTL: c.ttl(), Linger: c.Linger, Span: c.Span, Slice: c.Slice})
		return &Session{
			Lock:  func(ctx context.Context, key string) (Unlocker, error) { return held(locks.Mutex(key).Lock(ctx)) },
			Read:  func(ctx context.Context, key string) (Unlocker, error) { return held(locks.RWMutex(key).RLock(ctx)) },
			Write: func(ctx context.Context, key string) (Unlocker, error) { return held(locks.RWMutex(key).Lock(ctx)) },
			Permit: func(ctx context.Context, key string, limit int) (Unlocker, error) {
				return held(locks.Semaphore(key, limit).Lock(ctx))
			},
			Calls: calls,
			Close: locks.Close,
		}, nil
	}
}

// held keeps a nil *pawl.Lease from becoming an Unlocker that is not nil.
func held(l *pawl.Lease, err error) (Unlocker, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// counting counts the requests to a store without a server.
type counting struct {
	driver.Driver
	n atomic.Int64
}

func (c *counting) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	p, err := c.Driver.Enter(ctx, r)
	if err != nil {
		return nil, err
	}
	return &countedPlace{p, c}, nil
}

func (c *counting) Renew(ctx context.Context, hs []driver.Hold) []error {
	c.n.Add(1)
	return c.Driver.Renew(ctx, hs)
}

func (c *counting) Release(ctx context.Context, h driver.Hold, e driver.End) error {
	c.n.Add(1)
	return c.Driver.Release(ctx, h, e)
}

type countedPlace struct {
	driver.Place
	c *counting
}

func (p *countedPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	p.c.n.Add(1)
	return p.Place.Try(ctx, span)
}

func (p *countedPlace) Leave(ctx context.Context) error {
	p.c.n.Add(1)
	return p.Place.Leave(ctx)
}
