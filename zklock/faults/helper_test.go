// Package faults tests zklock on connections that break, stall and come back, and on sessions that end.
package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// server is shared by all tests of this package.
var server *zktest.Server

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "12") // the tests hardly compute; they wait
	flag.Parse()
	os.Exit(func() int {
		var err error
		if server, err = zktest.New(zktest.Config{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		return m.Run()
	}())
}

// session is the session timeout of tests that wait for its end: as short as a busy machine allows.
const session = 4 * time.Second

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader}

// connect makes a connection that knows nothing of pawl.
func connect(t testing.TB, addr string, session time.Duration) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, session, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func open(t testing.TB, url string, opts *zklock.Options) *zklock.Driver {
	t.Helper()
	d, err := zklock.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

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
