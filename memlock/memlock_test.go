package memlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

const ttl = 30 * time.Second

// asker is one request and what it heard.
type asker struct {
	driver.Request
	place driver.Place
	grant driver.Grant

	mu    sync.Mutex
	heard []driver.Signal
}

var ids = 0

func ask(t *testing.T, d *Driver, kind driver.Kind, name string, changes ...func(*driver.Request)) *asker {
	t.Helper()
	ids++
	a := &asker{Request: driver.Request{Hold: driver.Hold{Kind: kind, Name: name, ID: fmt.Sprintf("client:%d", ids), Permits: 1, TTL: ttl}}}
	a.Notify = func(s driver.Signal) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.heard = append(a.heard, s)
	}
	if kind == driver.Permits {
		a.Limit = 1
	}
	for _, change := range changes {
		change(&a.Request)
	}
	p, err := d.Enter(t.Context(), a.Request)
	if err != nil {
		t.Fatal(err)
	}
	a.place = p
	return a
}

func waits(r *driver.Request) { r.Wait = true }

func (a *asker) try(t *testing.T) error {
	t.Helper()
	g, err := a.place.Try(t.Context(), 1)
	if err == nil {
		a.grant, a.Token = g, g.Token
	}
	return err
}

func (a *asker) get(t *testing.T) *asker {
	t.Helper()
	if err := a.try(t); err != nil {
		t.Fatalf("Try: %v", err)
	}
	return a
}

func (a *asker) refused(t *testing.T) *driver.HeldError {
	t.Helper()
	err := a.try(t)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("Try: got %v, want a HeldError", err)
	}
	return held
}

func (a *asker) hears(t *testing.T, want ...driver.Signal) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.heard, want) {
		t.Fatalf("heard signals %v, want %v", a.heard, want)
	}
	a.heard = nil
}

func release(t *testing.T, d *Driver, a *asker) {
	t.Helper()
	if err := d.Release(t.Context(), a.Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
}

// empty wants a store in which nothing is left.
func empty(t *testing.T, d *Driver) {
	t.Helper()
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if len(d.s.names) > 0 || len(d.s.watches) > 0 {
		t.Fatalf("left are %d names and %d watched names", len(d.s.names), len(d.s.watches))
	}
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		a := ask(t, d, driver.Exclusive, "n").get(t)
		b := ask(t, d, driver.Exclusive, "n", waits)
		b.refused(t)
		a.hears(t, driver.Wanted)
		d.Expire("n")
		a.hears(t, driver.Lost)
		b.hears(t, driver.Changed)
		if err := d.Renew(t.Context(), []driver.Hold{a.Hold})[0]; err != driver.ErrNotHeld {
			t.Fatalf("Renew: got %v, want ErrNotHeld", err)
		}
		if b.get(t); b.Token <= a.Token {
			t.Fatalf("token %d follows %d", b.Token, a.Token)
		}
		d.Expire("n")
		d.Expire("never used")
		empty(t, d)
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		other := d.Share()
		a := ask(t, d, driver.Exclusive, "n").get(t)
		b := ask(t, d, driver.Exclusive, "free")
		down := errors.New("down")
		d.Break(down)
		_, inspect := d.Inspect(t.Context(), "n")
		var list error
		for _, list = range d.List(t.Context(), "") {
		}
		_, watch := d.Watch(t.Context(), "n")
		_, attach := d.Attach(t.Context(), a.Request)
		for what, err := range map[string]error{
			"Try": b.try(t), "Leave": b.place.Leave(t.Context()), "Renew": d.Renew(t.Context(), []driver.Hold{a.Hold})[0],
			"Release": d.Release(t.Context(), a.Hold, driver.End{}), "Inspect": inspect, "List": list, "Watch": watch,
			"Attach": attach, "Raise": d.Raise(t.Context(), a.Hold, 1),
		} {
			if !errors.Is(err, down) {
				t.Errorf("%s of a broken driver: got %v, want %v", what, err, down)
			}
		}
		ask(t, other, driver.Exclusive, "n").refused(t) // the other process is not cut off
		d.Break(nil)
		b.get(t)
		release(t, d, a)
		release(t, d, b)
		empty(t, d)

		// While it is broken, TTLs run on.
		a = ask(t, d, driver.Exclusive, "n").get(t)
		d.Break(down)
		time.Sleep(ttl)
		ask(t, other, driver.Exclusive, "n").get(t)
		d.Break(nil)
		if err := d.Renew(t.Context(), []driver.Hold{a.Hold})[0]; err != driver.ErrNotHeld {
			t.Fatalf("Renew: got %v, want ErrNotHeld", err)
		}
	})
}

func TestCalls(t *testing.T) {
	d := New()
	other := d.Share()
	a := ask(t, d, driver.Exclusive, "n").get(t)
	ask(t, d, driver.Exclusive, "n").refused(t)
	d.Renew(t.Context(), []driver.Hold{a.Hold, a.Hold})
	release(t, d, a)
	d.Release(t.Context(), a.Hold, driver.End{})
	a.place.Leave(t.Context())
	for method, want := range map[string]int{"Enter": 2, "Try": 2, "Renew": 1, "Release": 2, "Leave": 1, "Inspect": 0, "nonsense": 0} {
		if got := d.Calls(method); got != want {
			t.Errorf("Calls(%q) = %d, want %d", method, got, want)
		}
		if got := other.Calls(method); got != 0 {
			t.Errorf("the other driver's Calls(%q) = %d, want 0", method, got)
		}
	}
}

func TestBadRequests(t *testing.T) {
	d := New()
	good := driver.Request{
		Hold:   driver.Hold{Kind: driver.Permits, Name: "n", ID: "client:1", Permits: 2, TTL: time.Second},
		Limit:  2,
		Notify: func(driver.Signal) {},
	}
	if _, err := d.Enter(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*driver.Request){
		"no name":          func(r *driver.Request) { r.Name = "" },
		"a long name":      func(r *driver.Request) { r.Name = string(make([]byte, 4097)) },
		"no ID":            func(r *driver.Request) { r.ID = "" },
		"no TTL":           func(r *driver.Request) { r.TTL = 0 },
		"no permits":       func(r *driver.Request) { r.Permits = 0 },
		"too many permits": func(r *driver.Request) { r.Permits = 3 },
		"no limit":         func(r *driver.Request) { r.Limit = 0 },
		"two of a mutex":   func(r *driver.Request) { r.Kind = driver.Exclusive },
		"no Notify":        func(r *driver.Request) { r.Notify = nil },
	} {
		r := good
		change(&r)
		if _, err := d.Enter(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	a := ask(t, d, driver.Exclusive, "n")
	if _, err := a.place.Try(t.Context(), 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a span of 0: got %v, want ErrInvalid", err)
	}
}

// A bubble ends without Close, whatever is left in the store, and a name that got free leaves nothing.
func TestNothingIsLeft(t *testing.T) {
	var d *Driver
	synctest.Test(t, func(t *testing.T) {
		d = New()
		for _, k := range []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Read, driver.Permits, driver.Leader, driver.Once} {
			a := ask(t, d, k, "n").get(t)
			b := ask(t, d, k, "n", waits)
			if k != driver.Read {
				b.refused(t)
			}
			b.place.Leave(t.Context())
			r := d.s.names["n"]
			release(t, d, a)
			empty(t, d)
			if r.timer.Stop() {
				t.Fatalf("%v: a timer is left", k)
			}
		}
		a := ask(t, d, driver.Once, "kept").get(t)
		d.Release(t.Context(), a.Hold, driver.End{Keep: time.Hour, Value: []byte("result")})
		b := ask(t, d, driver.Exclusive, "kept too").get(t)
		d.Release(t.Context(), b.Hold, driver.End{Keep: time.Hour})
		ask(t, d, driver.Exclusive, "expires").get(t)
		ask(t, d, driver.Exclusive, "expires", waits).refused(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		empty(t, d)
		ask(t, d, driver.Exclusive, "still held").get(t)
	})
}

func TestManyNames(t *testing.T) {
	d := New()
	const n = 100_000
	held := make([]*asker, n)
	for i := range held {
		held[i] = ask(t, d, driver.Exclusive, fmt.Sprint(i)).get(t)
	}
	names := 0
	for range d.List(t.Context(), "") {
		names++
	}
	if names != n {
		t.Fatalf("%d names are listed, want %d", names, n)
	}
	for _, a := range held {
		release(t, d, a)
	}
	empty(t, d)
}

// A name that is forgotten and used again within one tick of the clock goes on counting.
func TestForgottenTokensRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		d := New()
		var last int64
		for range 1000 {
			a := ask(t, d, driver.Exclusive, "n")
			g, err := a.place.Try(t.Context(), 1_000_000)
			if err != nil || g.Token <= last || g.Span != 1_000_000 {
				t.Fatalf("grant %+v, %v follows token %d", g, err, last)
			}
			last = g.Token + int64(g.Span) - 1
			d.Release(t.Context(), a.Hold, driver.End{Last: last})
			empty(t, d)
		}
		// What Release says cannot be more than what was granted.
		a := ask(t, d, driver.Exclusive, "n").get(t)
		d.Release(t.Context(), a.Hold, driver.End{Last: a.Token + 1_000_000_000})
		if b := ask(t, d, driver.Exclusive, "n").get(t); b.Token != a.Token+1 {
			t.Fatalf("token %d follows %d", b.Token, a.Token)
		}
	})
}

// The head of the line is told alone; if it does not come, the next is told a moment later.
func TestTheNextIsToldWhenTheHeadDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		a := ask(t, d, driver.Exclusive, "n").get(t)
		var line []*asker
		for range 3 {
			b := ask(t, d, driver.Exclusive, "n", waits)
			b.refused(t)
			line = append(line, b)
		}
		release(t, d, a)
		line[0].hears(t, driver.Changed)
		line[1].hears(t)
		time.Sleep(patience)
		synctest.Wait()
		line[1].hears(t, driver.Changed)
		line[2].hears(t)
		time.Sleep(patience)
		synctest.Wait()
		line[2].hears(t, driver.Changed)
		line[2].get(t)
		line[0].refused(t)
		line[1].refused(t)
		release(t, d, line[2])
		line[0].hears(t, driver.Changed)
		line[1].hears(t)
		line[0].get(t).hears(t, driver.Wanted) // line[1] waits
		release(t, d, line[0])
		line[1].get(t)
		release(t, d, line[1])
		empty(t, d)
	})
}

// A fair place that is not heard of for its TTL is dropped, and the next is told then.
func TestSilentPlaceIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		a := ask(t, d, driver.Fair, "n").get(t)
		silent := ask(t, d, driver.Fair, "n", waits, func(r *driver.Request) { r.TTL = 3 * time.Second })
		if held := silent.refused(t); held.Again != time.Second || held.Ahead != 0 {
			t.Fatalf("told to come back after %v behind %d, want a second and 0", held.Again, held.Ahead)
		}
		b := ask(t, d, driver.Fair, "n", waits)
		b.refused(t)
		release(t, d, a)
		silent.hears(t, driver.Changed)
		time.Sleep(3*time.Second - 1)
		if held := b.refused(t); held.By.ID != "" || held.Ahead != 1 {
			t.Fatalf("refused by %q behind %d, want nobody and 1", held.By.ID, held.Ahead)
		}
		b.hears(t)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		b.hears(t, driver.Changed)
		b.get(t)
		if held := silent.refused(t); held.Ahead != 0 { // at the end of a new line
			t.Fatalf("behind %d, want 0", held.Ahead)
		}
		silent.place.Leave(t.Context())
		release(t, d, b)
		empty(t, d)
	})
}

// A large request for permits is not starved by small ones.
func TestLargeRequestKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		permits := func(n int) func(*driver.Request) { return func(r *driver.Request) { r.Permits, r.Limit = n, 4 } }
		a := ask(t, d, driver.Permits, "n", permits(2)).get(t)
		b := ask(t, d, driver.Permits, "n", permits(1)).get(t)
		large := ask(t, d, driver.Permits, "n", permits(3), waits)
		large.refused(t)
		small := ask(t, d, driver.Permits, "n", permits(1), waits)
		small.refused(t) // one is free, but it is not the first
		ask(t, d, driver.Permits, "n", permits(1)).refused(t)
		release(t, d, a)
		large.hears(t, driver.Changed)
		small.hears(t) // 3 of 4 are reserved, 1 is held
		small.refused(t)
		large.get(t)
		release(t, d, b)
		small.hears(t, driver.Changed)
		small.get(t)
	})
}

// A Lost that is on its way is over when Release says that there is nothing to release.
func TestNoLostAfterRelease(t *testing.T) {
	d := New()
	reporting, resume := make(chan struct{}), make(chan struct{})
	a := ask(t, d, driver.Exclusive, "n", func(r *driver.Request) {
		r.Notify = func(driver.Signal) {
			close(reporting)
			<-resume
		}
	}).get(t)
	go d.Expire("n")
	<-reporting
	released := make(chan error, 1)
	go func() { released <- d.Release(t.Context(), a.Hold, driver.End{}) }()
	select {
	case err := <-released:
		t.Fatalf("Release answered %v while Lost was being reported", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(resume)
	if err := <-released; err != driver.ErrNotHeld {
		t.Fatalf("Release: got %v, want ErrNotHeld", err)
	}
}

// Release through another driver is a steal; through the same one it is the holder's own, and no news.
func TestStealIsLost(t *testing.T) {
	d := New()
	other := d.Share()
	a := ask(t, d, driver.Exclusive, "n").get(t)
	release(t, other, a)
	a.hears(t, driver.Lost)
	a = ask(t, d, driver.Exclusive, "n").get(t)
	release(t, d, a)
	a.hears(t)
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		other := d.Share()
		a := ask(t, d, driver.Exclusive, "n").get(t)
		b := ask(t, d, driver.Exclusive, "n", waits)
		b.refused(t)
		watch, err := d.Watch(context.Background(), "n")
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		if _, open := <-watch; open {
			t.Error("the watch of a closed driver is not closed")
		}
		a.hears(t, driver.Wanted)
		other.Expire("n")
		a.hears(t) // nobody is there to be told
		b.hears(t)
		if err := b.try(t); !errors.Is(err, driver.ErrClosed) || !errors.Is(err, driver.ErrNotDone) {
			t.Errorf("Try: got %v, want ErrClosed and ErrNotDone", err)
		}
		ask(t, other, driver.Exclusive, "n").get(t)
	})
}

func TestWatchesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			if _, err := d.Watch(ctx, "n"); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		synctest.Wait()
		empty(t, d)
	})
}

// Many goroutines over one name, and over many: the race detector watches.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		var wg sync.WaitGroup
		var mu sync.Mutex
		in := map[string]int{}
		for i := range 16 {
			name := []string{"one", fmt.Sprint(i % 4)}[i%2]
			var all []*asker
			for range 20 {
				all = append(all, ask(t, d, driver.Exclusive, name, waits))
			}
			wg.Go(func() {
				for _, a := range all {
					for a.try(t) != nil {
						time.Sleep(time.Millisecond)
					}
					mu.Lock()
					if in[name]++; in[name] > 1 {
						t.Errorf("%d hold %s", in[name], name)
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
					d.Renew(t.Context(), []driver.Hold{a.Hold})
					mu.Lock()
					in[name]--
					mu.Unlock()
					if err := d.Release(t.Context(), a.Hold, driver.End{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		empty(t, d)
	})
}

func BenchmarkTryRelease(b *testing.B) {
	d := New()
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "n", ID: "client:1", Permits: 1, TTL: ttl}, Notify: func(driver.Signal) {}}
	for b.Loop() {
		p, err := d.Enter(b.Context(), r)
		if err == nil {
			_, err = p.Try(b.Context(), 1)
		}
		if err == nil {
			err = d.Release(b.Context(), r.Hold, driver.End{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
