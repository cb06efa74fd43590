package redislock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// limited starts a server with a user who may do all but that, and answers its URL for that user.
func limited(t testing.TB, rules ...string) (*redistest.Server, string) {
	t.Helper()
	s := redistest.Start(t)
	s.Do(append([]string{"ACL", "SETUSER", "worker", "on", ">s3same", "~*", "&*", "+@all"}, rules...)...)
	return s, "redis://worker:s3same@" + s.Addr
}

// A user who may run no scripts has mutexes, by transactions.
func TestConformanceWithoutScripts(t *testing.T) {
	t.Parallel()
	s, url := limited(t, "-@scripting")
	raw := connect(t, s)
	drivertest.Run(t, drivertest.Harness{
		Open:   func(t testing.TB) driver.Driver { return mutexes(open(t, url, quiet(nil))) },
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: time.Second,
		Delete: func(t testing.TB, name string) { do(t, raw, "DEL", name) },
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
	})
}

// Nor may this one publish or subscribe, which is what some proxies come to.
func TestConformanceWithPlainCommands(t *testing.T) {
	t.Parallel()
	_, url := limited(t, "-@scripting", "-@pubsub", "resetchannels")
	drivertest.Run(t, drivertest.Harness{
		Open:   func(t testing.TB) driver.Driver { return mutexes(open(t, url, quiet(nil))) },
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: time.Second,
	})
}

// A user who may neither publish nor subscribe has everything; waiters look now and then.
func TestConformanceWithoutMessages(t *testing.T) {
	t.Parallel()
	_, url := limited(t, "-@pubsub", "resetchannels")
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return open(t, url, quiet(nil)) },
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
	})
}

// mutexes hides what needs scripts: raising tokens, and several names in one step.
func mutexes(d *redislock.Driver) driver.Driver {
	return struct {
		driver.Driver
		driver.Attacher
		driver.Inspector
		driver.Watcher
	}{d, d, d, d}
}

func quiet(o *redislock.Options) *redislock.Options {
	if o == nil {
		o = &redislock.Options{}
	}
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

// The driver says how it works, and logs it once.
func TestMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules                 []string
		opts                  redislock.Options
		noScripts, noMessages string // in the reason; "": usual
	}{
		{},
		{rules: []string{"-@scripting"}, noScripts: "evalsha"},
		{rules: []string{"-eval"}, noScripts: "eval"},
		{rules: []string{"-subscribe"}, noMessages: "subscribe"},
		{rules: []string{"-publish"}, noMessages: "publish"},
		{rules: []string{"resetchannels"}, noMessages: "channel"},
		{rules: []string{"-@scripting", "-@pubsub"}, noScripts: "evalsha", noMessages: "NOPERM"},
		{opts: redislock.Options{NoScripts: true, NoMessages: true}, noScripts: "Options", noMessages: "Options"},
	} {
		t.Run(strings.Join(append(c.rules, c.noScripts), " "), func(t *testing.T) {
			t.Parallel()
			_, url := limited(t, c.rules...)
			var log lines
			c.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			d := open(t, url, &c.opts)
			for range 2 {
				a := ask(t, d, driver.Exclusive, "orders").get()
				w := ask(t, d, driver.Exclusive, "orders")
				w.refused()
				a.release()
				w.getSoon().release()
			}
			want := 0
			check := func(what, why string, got func() error) {
				t.Helper()
				if why == "" {
					if got() != nil {
						t.Errorf("%s: %v", what, got())
					}
					return
				}
				if why != "Options" {
					want++
				}
				eventually(t, what, func() bool { return got() != nil && strings.Contains(got().Error(), why) })
			}
			check("no scripts", c.noScripts, func() error { return d.Mode().NoScripts })
			check("no messages", c.noMessages, func() error { return d.Mode().NoMessages })
			eventually(t, "a line in the log for each", func() bool { return log.count() >= want })
			if log.count() != want {
				t.Errorf("%d lines were logged, want %d:\n%s", log.count(), want, &log)
			}
			if text := d.Mode().String(); (text == "scripts and messages") != (c.noScripts+c.noMessages == "") {
				t.Errorf("Mode is %q", text)
			}
			if c.noScripts == "" {
				return
			}
			// What cannot be done without scripts says so, and what to do.
			for _, kind := range everyKind[1:] {
				h := driver.Hold{Kind: kind, Name: "x", ID: idOf(d), Permits: 1, TTL: time.Second}
				_, err := d.Enter(t.Context(), driver.Request{Hold: h, Limit: 1, Notify: func(driver.Signal) {}})
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "+evalsha") {
					t.Errorf("Enter of %s: %v", kind, err)
				}
			}
			if _, _, err := d.Incarnation(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Incarnation: %v", err)
			}
		})
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count() int { return strings.Count(l.String(), "level=WARN") }

// Clients with and without scripts exclude each other, count tokens together, and wake each other.
func TestWithAndWithoutScripts(t *testing.T) {
	t.Parallel()
	s, url := limited(t, "-@scripting")
	for _, fenced := range []bool{false, true} {
		with := pawl.New(open(t, s.URL, &redislock.Options{Fenced: fenced}))
		without := pawl.New(open(t, url, quiet(&redislock.Options{Fenced: fenced})))
		var last, inside int64
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 12 {
			c := []*pawl.Client{with, without}[i%2]
			wg.Go(func() {
				for range 10 {
					err := c.Mutex("orders").Do(t.Context(), func(ctx context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						if inside++; inside != 1 {
							t.Errorf("%d inside at once", inside)
						}
						if token := pawl.FromContext(ctx, "orders").Token(); token <= last {
							t.Errorf("token %d follows %d", token, last)
						} else {
							last = token
						}
						inside--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		s.Do("FLUSHALL")
	}
}

// However many wait, one pipeline asks for all of them, and not all the time.
func TestPollingIsBounded(t *testing.T) {
	t.Parallel()
	s, url := limited(t, "-@pubsub", "resetchannels")
	raw := connect(t, s)
	holder, waiter := open(t, s.URL, nil), open(t, url, quiet(nil))
	var holds, waits []*asker
	for i := range 100 {
		name := "orders" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		holds = append(holds, ask(t, holder, driver.Exclusive, name, lasting(time.Minute)).get())
		w := ask(t, waiter, driver.Exclusive, name)
		w.refused()
		waits = append(waits, w)
	}
	time.Sleep(2 * time.Second) // it slows down
	asked := func() int64 {
		stats := commands(t, text(t, raw, "INFO", "commandstats"))
		return stats["exists"] + stats["evalsha"]
	}
	before, began := asked(), time.Now()
	time.Sleep(3 * time.Second)
	n, took := asked()-before, time.Since(began)
	if most := int64(100 * (took.Seconds()/0.25 + 2)); n > most {
		t.Errorf("100 waiters cost %d commands in %v, at most %d are expected", n, took, most)
	}
	t.Logf("100 waiters cost %.0f commands a second", float64(n)/took.Seconds())
	for _, h := range holds {
		h.release()
	}
	for _, w := range waits {
		w.rung().getSoon().release()
	}
}
