package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// A server that refuses requests for a while says "not now": nothing was done, and no hold is lost. It is so over both
// libraries.
func TestNotNow(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(nobody.Addr().String())
	nobody.Close()
	for _, c := range []struct {
		code string
		args []string
		on   func(s *redistest.Server)
		off  func(s *redistest.Server)
	}{
		{"BUSY", []string{"--lua-time-limit", "50"}, func(s *redistest.Server) {
			go func() { // until it is killed
				c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: -1, MaxRetries: -1})
				defer c.Close()
				c.Eval(context.Background(), "while true do end", nil)
			}()
			eventually(t, "BUSY", func() bool {
				_, err := s.Command("GET", "x")
				return err != nil && strings.HasPrefix(err.Error(), "BUSY")
			})
		}, func(s *redistest.Server) { s.Do("SCRIPT", "KILL") }},
		{"READONLY", nil, func(s *redistest.Server) { s.Do("REPLICAOF", host, port) }, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{"MASTERDOWN", []string{"--replica-serve-stale-data", "no"}, func(s *redistest.Server) { s.Do("REPLICAOF", host, port) },
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{"NOREPLICAS", nil, func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }},
	} {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, c.args...)
			theirs, err := redislock.Open(t.Context(), s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { theirs.Close() })
			ds := map[string]*redislock.Driver{"rueidis": theirs, "go-redis": over(t, single(t, s, redis.Options{}), nil)}
			notNow(t, c.code, ds, func() { c.on(s) }, func() { c.off(s) })
		})
	}
}

// notNow wants requests to be refused with code after on, and to work again after off.
func notNow(t *testing.T, code string, ds map[string]*redislock.Driver, on, off func()) {
	t.Helper()
	held := map[string]driver.Hold{}
	for what, d := range ds {
		held[what] = grab(t, d, "{orders}"+what).Hold
	}
	on()
	for what, d := range ds {
		if err := try(d, t.Context(), "{orders}new"); !errors.Is(err, driver.ErrNotDone) || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: Try: %v; it should name %s and match ErrNotDone", what, err, code)
		}
		if err := d.Renew(t.Context(), []driver.Hold{held[what]})[0]; err == nil && code != "LOADING" || errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Renew: %v", what, err)
		}
		if err := d.Release(t.Context(), held[what], driver.End{}); err == nil || errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Release: %v", what, err)
		}
	}
	off()
	for what, d := range ds {
		eventually(t, what+": a renewal", func() bool {
			err := d.Renew(t.Context(), []driver.Hold{held[what]})[0]
			if errors.Is(err, driver.ErrNotHeld) {
				t.Fatalf("%s: the hold was lost", what)
			}
			return err == nil
		})
		if err := d.Release(t.Context(), held[what], driver.End{}); err != nil {
			t.Errorf("%s: Release: %v", what, err)
		}
	}
}

var ids atomic.Int64

func grab(t testing.TB, d *redislock.Driver, name string) driver.Request {
	t.Helper()
	r := request(name)
	r.ID, r.TTL = fmt.Sprintf("11111111-2222-4333-8444-555555555555:%d", 1000+ids.Add(1)), 5*time.Minute
	p, err := d.Enter(t.Context(), r)
	if err == nil {
		var g driver.Grant
		g, err = p.Try(t.Context(), 1)
		r.Token = g.Token
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A full server grants nothing, and renews and releases.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	d := over(t, single(t, s, redis.Options{}), nil)
	h := grab(t, d, "orders").Hold
	s.Do("CONFIG", "SET", "maxmemory", "1")
	if err := try(d, t.Context(), "invoices"); !errors.Is(err, driver.ErrNotDone) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Try: %v", err)
	}
	if err := d.Renew(t.Context(), []driver.Hold{h})[0]; err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Release(t.Context(), h, driver.End{}); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// A server that restarts with much to load.
func TestLoading(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
	theirs, err := redislock.Open(t.Context(), s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	ds := map[string]*redislock.Driver{"rueidis": theirs, "go-redis": over(t, single(t, s, redis.Options{}), nil)}
	raw := single(t, s, redis.Options{})
	for i := range 500 {
		raw.Set(t.Context(), fmt.Sprint("filler", i), fmt.Sprint(time.Now(), strings.Repeat(fmt.Sprint(i), 500)), 0)
	}
	loaded := make(chan struct{})
	notNow(t, "LOADING", ds, func() {
		s.Do("SAVE")
		s.Kill()
		go func() {
			defer close(loaded)
			s.Restart()
		}()
		eventually(t, "LOADING", func() bool {
			err := raw.Get(t.Context(), "x").Err()
			return err != nil && strings.HasPrefix(err.Error(), "LOADING")
		})
		for _, d := range ds { // connections that died are made again
			eventually(t, "an answer", func() bool { return strings.Contains(fmt.Sprint(try(d, t.Context(), "{orders}new")), "LOADING") })
		}
	}, func() { <-loaded })
}

// A cluster that serves a slot no more.
func TestClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	theirs, err := redislock.Open(t.Context(), c.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	ds := map[string]*redislock.Driver{"rueidis": theirs, "go-redis": over(t, nodes(t, c), nil)}
	slot, owner := c.Slot("orders")
	notNow(t, "CLUSTERDOWN", ds, func() { owner.Do("CLUSTER", "DELSLOTS", fmt.Sprint(slot)) }, func() { owner.Do("CLUSTER", "ADDSLOTS", fmt.Sprint(slot)) })
}
