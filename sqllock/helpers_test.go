package sqllock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// soon is how long something may take on a busy machine that should take no time.
const soon = 20 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func newFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "locks.db")
}

func open(t testing.TB, file string) *sqllock.Driver {
	t.Helper()
	d, err := sqllock.Open(within(t, soon), "sqlite://"+file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// asker is a contender: its place, and what it heard.
type asker struct {
	driver.Request
	place driver.Place
	news  chan struct{}
	grant driver.Grant
}

func ask(ctx context.Context, d driver.Driver, name string, ttl time.Duration, wait bool) (*asker, error) {
	a := &asker{news: make(chan struct{}, 1)}
	a.Request = driver.Request{
		Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: rand.Text() + ":1", Permits: 1, TTL: ttl},
		Wait: wait,
		Who:  driver.Holder{Label: "test", Host: "host", PID: 1, Note: "note"},
		Notify: func(driver.Signal) {
			select {
			case a.news <- struct{}{}:
			default:
			}
		},
	}
	var err error
	a.place, err = d.Enter(ctx, a.Request)
	return a, err
}

// get takes the name, as a client does: it waits for news, or until the store says that it may be free.
func (a *asker) get(ctx context.Context) error {
	for {
		g, err := a.place.Try(ctx, 1)
		if err == nil {
			a.grant, a.Token = g, g.Token
			return nil
		}
		var held *driver.HeldError
		if !errors.As(err, &held) {
			return err
		}
		wait := held.Again
		if wait == 0 {
			wait = held.Remaining
		}
		t := time.NewTimer(wait)
		select {
		case <-a.news:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(a.place.Leave(context.WithoutCancel(ctx)), ctx.Err())
		}
		t.Stop()
	}
}

func mustAsk(t testing.TB, d driver.Driver, name string, ttl time.Duration) *asker {
	t.Helper()
	a, err := ask(within(t, soon), d, name, ttl, true)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustGet(t testing.TB, d driver.Driver, name string, ttl time.Duration) *asker {
	t.Helper()
	a := mustAsk(t, d, name, ttl)
	if err := a.get(within(t, ttl+soon)); err != nil {
		t.Fatalf("%q should have been granted, got: %v", name, err)
	}
	return a
}

func mustRelease(t testing.TB, d driver.Driver, a *asker) {
	t.Helper()
	if err := d.Release(within(t, soon), a.Hold, driver.End{}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func mustBeHeld(t testing.TB, d driver.Driver, name string) *driver.HeldError {
	t.Helper()
	a, err := ask(within(t, soon), d, name, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.place.Try(within(t, soon), 1)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("Try for %q, which is held, got: %v", name, err)
	}
	return held
}

// each runs f for n numbers at once.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func settle(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%s: not settled after %v\n%s", what, soon, buf[:runtime.Stack(buf, true)])
		}
	}
}
