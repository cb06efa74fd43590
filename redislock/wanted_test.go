package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
)

// keeper asks for a mutex with so many tokens, and hears what its holder is told.
func keeper(t testing.TB, d *redislock.Driver, name string, span int) (driver.Request, chan driver.Signal) {
	t.Helper()
	told := make(chan driver.Signal, 100)
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: idOf(d), Permits: 1, TTL: 30 * time.Second},
		Wait: true, Notify: func(s driver.Signal) { told <- s }}
	token, err := obtain(t, d, r, span)
	if err != nil {
		t.Fatal(say(err))
	}
	r.Token = token
	return r, told
}

func obtain(t testing.TB, d *redislock.Driver, r driver.Request, span int) (int64, error) {
	p, err := d.Enter(t.Context(), r)
	for err == nil {
		var g driver.Grant
		if g, err = p.Try(t.Context(), span); err == nil {
			return g.Token, nil
		}
		if errors.Is(err, driver.ErrHeld) {
			err = nil
			time.Sleep(5 * time.Millisecond)
		}
	}
	return 0, err
}

func isWanted(t testing.TB, told chan driver.Signal) {
	t.Helper()
	for end := time.After(20 * time.Second); ; {
		select {
		case s := <-told:
			if s == driver.Wanted {
				return
			}
		case <-end:
			t.Fatal("the holder was not told that others wait")
		}
	}
}

// A holder that took several tokens may keep the mutex for others of its process. It is told when another process waits,
// now or already, and no more once it has released. One that took a single token is not.
func TestWanted(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d1, d2 := open(t, s.URL, nil), open(t, s.URL, nil)
	r, told := keeper(t, d1, "orders", 8)
	eventually(t, "the holder listens", func() bool {
		answer := do(t, raw, "PUBSUB", "NUMSUB", "pawl_wake:"+uuid(r.ID))
		n, err := answer.ToArray()
		if err != nil {
			t.Fatal(err)
		}
		listening, _ := n[1].ToInt64()
		return listening == 1
	})
	w := ask(t, d2, driver.Exclusive, "orders")
	w.refused()
	isWanted(t, told)
	if err := d1.Release(t.Context(), r.Hold, driver.End{Last: r.Token}); err != nil {
		t.Fatal(err)
	}
	w.rung().getSoon()

	// Others wait already when it gets the name.
	told = make(chan driver.Signal, 100)
	r.ID, r.Token, r.Notify = idOf(d1), 0, func(s driver.Signal) { told <- s }
	first := make(chan error, 1)
	go func() {
		_, err := obtain(t, d1, r, 8)
		first <- err
	}()
	eventually(t, "a waiter", func() bool {
		rec, err := d2.Inspect(t.Context(), "orders")
		return err == nil && rec.Waiters == 1
	})
	behind := ask(t, d2, driver.Exclusive, "orders")
	behind.refused()
	w.release()
	if err := <-first; err != nil {
		t.Fatal(say(err))
	}
	isWanted(t, told)

	// Nothing for a single token.
	do(t, raw, "FLUSHALL")
	r, told = keeper(t, d1, "invoices", 1)
	w = ask(t, d2, driver.Exclusive, "invoices")
	w.refused()
	time.Sleep(200 * time.Millisecond)
	for len(told) > 0 {
		if s := <-told; s == driver.Wanted {
			t.Error("the holder of a single token was told that others wait")
		}
	}
	if err := d1.Release(t.Context(), r.Hold, driver.End{Last: r.Token}); err != nil {
		t.Fatal(err)
	}
	w.rung().getSoon().release()
}

// A holder is told of those who came before the server let it listen, too.
func TestWantedBeforeTheHolderListens(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	p := newProxy(t, s.Addr)
	d1, d2 := open(t, "redis://"+p.addr, nil), open(t, s.URL, nil)
	p.keepThose("SUBSCRIBE")
	_, told := keeper(t, d1, "orders", 8)
	ask(t, d2, driver.Exclusive, "orders").refused()
	p.release()
	isWanted(t, told)
}

// A client that lingers gives the mutex back when another process wants it, long before the linger is over.
func TestLingerEndsWhenWanted(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	lingers := pawl.New(open(t, s.URL, nil)).With(pawl.Options{Linger: time.Minute})
	other := pawl.New(open(t, s.URL, nil))
	for range 3 {
		lease, err := lingers.Mutex("orders").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lease.Unlock()
		if number(t, raw, "EXISTS", "orders") != 1 {
			t.Fatal("the mutex does not linger")
		}
		eventually(t, "the holder listens", func() bool { return len(text(t, raw, "CLIENT", "LIST", "TYPE", "pubsub")) > 0 })
		began := time.Now()
		lease, err = other.Mutex("orders").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v to get a mutex that lingers", took)
		}
		lease.Unlock()
	}
}

func uuid(id string) string { return id[:36] }
