package zklock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// patience is how long something may take that is due at once.
const patience = 20 * time.Second

var ids atomic.Int64

func newID() string {
	return fmt.Sprintf("0f1e2d3c-4b5a-4678-9abc-%012x:%d", time.Now().UnixNano()&0xffffffffffff, ids.Add(1))
}

// fresh is a name that no other test has.
func fresh() string { return "t-" + rand.Text()[:12] }

func url(addr string) string { return "zookeeper://" + addr + "/locks" }

func request(kind driver.Kind, name string, ttl time.Duration) driver.Request {
	r := driver.Request{Hold: driver.Hold{Kind: kind, Name: name, ID: newID(), Permits: 1, TTL: ttl}, Notify: func(driver.Signal) {}}
	if kind == driver.Permits {
		r.Limit = 1
	}
	return r
}

// take gets a hold or fails.
func take(t testing.TB, d *zklock.Driver, r driver.Request) (driver.Hold, driver.Grant) {
	t.Helper()
	g, err := try(t, d, r)
	if err != nil {
		t.Fatalf("Try for %q: %v", r.Name, err)
	}
	r.Hold.Token = g.Token
	return r.Hold, g
}

func try(t testing.TB, d *zklock.Driver, r driver.Request) (driver.Grant, error) {
	t.Helper()
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		return driver.Grant{}, err
	}
	return p.Try(t.Context(), 1)
}

// within waits until ok says yes.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// kids are the children of a lock's directory.
func kids(t testing.TB, conn *zk.Conn, path string) []string {
	t.Helper()
	children, _, err := conn.Children(path)
	if err != nil && err != zk.ErrNoNode {
		t.Fatalf("children of %s: %v", path, err)
	}
	return children
}

// client opens a client of its own.
func client(t testing.TB, addr string, session time.Duration) *pawl.Client {
	t.Helper()
	d, err := zklock.Open(t.Context(), url(addr), &zklock.Options{SessionTimeout: session})
	if err != nil {
		t.Fatal(err)
	}
	c := pawl.New(d)
	t.Cleanup(func() { c.Close() })
	return c
}

func ctxFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func wantIs(t testing.TB, what string, err error, targets ...error) {
	t.Helper()
	for _, x := range targets {
		if !errors.Is(err, x) {
			t.Errorf("%s: got %v, want it to match %v", what, err, x)
		}
	}
}

func proxied(t testing.TB) *zktest.Proxy { return zktest.StartProxy(t, server.Addr) }
