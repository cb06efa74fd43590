package redislock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
)

// commands counts what was sent to the server, the answers to INFO itself left out.
func commands(t testing.TB, info string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, line := range strings.Split(info, "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = n
	}
	delete(out, "info")
	return out
}

func TestTwoCommandsACycle(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	for _, kind := range everyKind {
		name := kind.String()
		ask(t, d, kind, name).get().release() // the first one of a client also says who it is
		before := commands(t, text(t, raw, "INFO", "commandstats"))
		const cycles = 50
		for range cycles {
			ask(t, d, kind, name).get().release()
		}
		after := commands(t, text(t, raw, "INFO", "commandstats"))
		if n := after["evalsha"] - before["evalsha"]; n != 2*cycles {
			t.Errorf("%s: %d scripts for %d cycles", kind, n, cycles)
		}
		for _, c := range []string{"eval", "get|set", "ping", "subscribe"} {
			if c == "ping" && after[c] == before[c]+1 {
				continue // of the second connection, which a slow moment calls for
			}
			if after[c] != before[c] {
				t.Errorf("%s: %d × %s for %d cycles", kind, after[c]-before[c], c, cycles)
			}
		}
		if n := after["publish"] - before["publish"]; n > cycles {
			t.Errorf("%s: %d messages for %d releases", kind, n, cycles)
		}
	}
}

func TestThousandWaiters(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d, holder := open(t, s.URL, nil), open(t, s.URL, nil)
	for _, names := range []int{1, 1000} {
		holds := make([]*asker, names)
		for i := range holds {
			holds[i] = ask(t, holder, driver.Exclusive, fmt.Sprintf("n%d-%d", names, i)).get()
		}
		waiters := make([]*asker, 1000)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				w := ask(t, d, driver.Exclusive, holds[i%names].r.Name)
				if _, err := w.p.Try(context.Background(), 1); err == nil {
					t.Error("a waiter got in")
				}
				waiters[i] = w
			})
		}
		wg.Wait()
		clients := text(t, raw, "CLIENT", "LIST", "TYPE", "pubsub")
		if n := strings.Count(clients, "\n"); n != 1 {
			t.Errorf("%d names: %d connections listen, 1 should do:\n%s", names, n, clients)
		}
		before := commands(t, text(t, raw, "INFO", "commandstats"))
		time.Sleep(500 * time.Millisecond)
		after := commands(t, text(t, raw, "INFO", "commandstats"))
		for c, n := range after {
			if n != before[c] {
				t.Errorf("%d names: while all wait, %d × %s were sent", names, n-before[c], c)
			}
		}
		for _, h := range holds {
			h.release()
		}
		if names > 1 {
			for _, w := range waiters {
				w.rung()
			}
		}
		for _, w := range waiters {
			w.leave()
		}
		for _, h := range holds {
			ask(t, holder, driver.Exclusive, h.r.Name).get().release()
		}
	}
}

func TestRenewalsAreBatched(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	const n = 1000
	holds := make([]driver.Hold, n)
	var wg sync.WaitGroup
	for i := range holds {
		wg.Go(func() {
			kind := everyKind[i%len(everyKind)]
			holds[i] = ask(t, d, kind, fmt.Sprintf("held %d", i)).get().r.Hold
		})
	}
	wg.Wait()
	if err := d.Renew(t.Context(), holds[:1])[0]; err != nil { // so that the server knows the script
		t.Fatal(err)
	}
	do(t, raw, "DEL", "held 0", "held 500", "pawl_lock:{held 999}")
	before := commands(t, text(t, raw, "INFO", "commandstats"))
	errs := d.Renew(t.Context(), holds)
	after := commands(t, text(t, raw, "INFO", "commandstats"))
	for i, err := range errs {
		gone := i == 0 || i == 500 || i == 999 && holds[i].Kind >= driver.Leader
		if gone != (err == driver.ErrNotHeld) || !gone && err != nil {
			t.Errorf("hold %d (%s): %v", i, holds[i].Kind, err)
		}
	}
	if calls := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; calls > n/100 {
		t.Errorf("%d scripts for %d holds", calls, n)
	}
}

// Many contenders of several processes on one key: exclusion, and tokens that rise in the order of the holds.
func TestHotKey(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	for _, kind := range []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Leader} {
		var ds []*redislock.Driver
		for range 4 {
			ds = append(ds, open(t, s.URL, nil))
		}
		var mu sync.Mutex
		var last int64
		var wg sync.WaitGroup
		const each, rounds = 4, 10
		for i := range each * len(ds) {
			wg.Go(func() {
				for range rounds {
					a := ask(t, ds[i%len(ds)], kind, "hot "+kind.String()).getSoon()
					if !mu.TryLock() {
						t.Error("two holders at once")
						return
					}
					if a.grant.Token <= last {
						t.Errorf("token %d follows %d", a.grant.Token, last)
					}
					last = a.grant.Token
					mu.Unlock()
					a.release()
				}
			})
		}
		wg.Wait()
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	d1, d2 := open(t, s.URL, nil), open(t, s.URL, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := d2.Watch(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, d1, driver.Leader, "orders").get().release()
	select {
	case _, ok := <-ch:
		if !ok {
			t.Error("the watch ended")
		}
	case <-time.After(10 * time.Second):
		t.Error("a change was not told")
	}
	cancel()
	for end := time.After(10 * time.Second); ; {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-end:
			t.Fatal("the watch goes on after its context")
		}
	}
}
