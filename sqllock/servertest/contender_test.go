package servertest

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// soon is how long something may take on a busy machine that should take no time.
const soon = 20 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// contender is one request.
type contender struct {
	driver.Request
	place driver.Place
	news  chan struct{}
}

func ask(ctx context.Context, d driver.Driver, name string, ttl time.Duration, wait bool) (*contender, error) {
	c := &contender{news: make(chan struct{}, 1)}
	c.Request = driver.Request{
		Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: rand.Text() + ":1", Permits: 1, TTL: ttl},
		Wait: wait,
		Who:  driver.Holder{Label: "tést", Host: "host", PID: 1},
		Notify: func(driver.Signal) {
			select {
			case c.news <- struct{}{}:
			default:
			}
		},
	}
	var err error
	c.place, err = d.Enter(ctx, c.Request)
	return c, err
}

// get takes the name, as a client does: it waits for news, or until the store says that it may be free.
func (c *contender) get(ctx context.Context) error {
	for {
		g, err := c.place.Try(ctx, 1)
		if err == nil {
			c.Token = g.Token
			return nil
		}
		var held *driver.HeldError
		if !errors.As(err, &held) {
			return err
		}
		t := time.NewTimer(max(held.Again, held.Remaining))
		select {
		case <-c.news:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(c.place.Leave(context.WithoutCancel(ctx)), ctx.Err())
		}
		t.Stop()
	}
}

func take(ctx context.Context, d driver.Driver, name string, ttl time.Duration) (*contender, error) {
	c, err := ask(ctx, d, name, ttl, true)
	if err == nil {
		err = c.get(ctx)
	}
	return c, err
}

func mustTake(t testing.TB, d driver.Driver, name string, ttl time.Duration) *contender {
	t.Helper()
	c, err := take(within(t, ttl+soon), d, name, ttl)
	if err != nil {
		t.Fatalf("%q should have been granted, got: %v", name, err)
	}
	return c
}

// mustWait asks for a name that is held and stays in line.
func mustWait(t testing.TB, d driver.Driver, name string, ttl time.Duration) *contender {
	t.Helper()
	c, err := ask(within(t, soon), d, name, ttl, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try for %q, which is held: %v", name, err)
	}
	return c
}

func mustRelease(t testing.TB, d driver.Driver, c *contender) {
	t.Helper()
	if err := d.Release(within(t, soon), c.Hold, driver.End{}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func renew(t testing.TB, d driver.Driver, c *contender) error {
	t.Helper()
	return d.Renew(within(t, soon), []driver.Hold{c.Hold})[0]
}

func try(t testing.TB, d driver.Driver, name string) error {
	t.Helper()
	c, err := ask(within(t, soon), d, name, time.Minute, false)
	if err == nil {
		_, err = c.place.Try(within(t, soon), 1)
	}
	return err
}

// settle waits until something is so.
func settle(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}
