package pawl_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// table is a driver that somebody writes over an odd store in an afternoon: one kind, one map, no optional power.
type table struct {
	mu   sync.Mutex
	rows map[string]driver.Hold
	tok  int64
	mute bool // answers of Try are lost
}

type seat struct {
	d *table
	r driver.Request
}

func (d *table) Enter(_ context.Context, r driver.Request) (driver.Place, error) {
	if r.Kind != driver.Exclusive {
		return nil, errors.ErrUnsupported
	}
	return &seat{d, r}, nil
}

func (p *seat) Try(context.Context, int) (driver.Grant, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	sent := driver.Now()
	if h, ok := p.d.rows[p.r.Name]; ok && h.ID != p.r.ID {
		return driver.Grant{}, &driver.HeldError{By: driver.HeldBy{Hold: h}, Ahead: -1, Again: 10e6} // it polls
	}
	p.d.tok++
	p.r.Hold.Token = p.d.tok
	p.d.rows[p.r.Name] = p.r.Hold
	if p.d.mute {
		return driver.Grant{}, io.ErrUnexpectedEOF
	}
	return driver.Grant{Sent: sent, TTL: p.r.TTL, Token: p.d.tok, Span: 1}, nil
}

func (p *seat) Leave(ctx context.Context) error {
	if err := p.d.Release(ctx, p.r.Hold, driver.End{}); !errors.Is(err, driver.ErrNotHeld) {
		return err
	}
	return nil
}

func (d *table) Renew(_ context.Context, hs []driver.Hold) []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := make([]error, len(hs))
	for i, h := range hs {
		if d.rows[h.Name].ID != h.ID {
			errs[i] = driver.ErrNotHeld
		}
	}
	return errs
}

func (d *table) Release(_ context.Context, h driver.Hold, _ driver.End) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows[h.Name].ID != h.ID {
		return driver.ErrNotHeld
	}
	delete(d.rows, h.Name)
	return nil
}

func (d *table) Close() error { return nil }

// 25. A custom driver: what it lacks is ErrUnsupported, and an answer that got lost leaves nothing behind.
func Test25CustomDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &table{rows: map[string]driver.Hold{}}
		locks := pawl.New(d)
		n := 0
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := locks.Mutex("x").Do(t.Context(), func(context.Context) error { n++; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want(t, "n", n, 20)
		_, err := locks.RWMutex("x").Lock(t.Context())
		wantIs(t, err, errors.ErrUnsupported)
		_, err = locks.Inspect(t.Context(), "x")
		wantIs(t, err, errors.ErrUnsupported)
		d.mute = true
		_, err = locks.Mutex("x").TryLock(t.Context())
		wantIs(t, err, io.ErrUnexpectedEOF, pawl.ErrUnknown)
		synctest.Wait()
		want(t, "rows left by an unanswered acquire", len(d.rows), 0)
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
}
