package torture_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// Every lease has its events, in order, with the times and the error that the caller saw.
func TestEvents(t *testing.T) {
	bubble(t, func(t *world) {
		var mu sync.Mutex
		var got []pawl.Event
		b, _ := t.process()
		a, wire := t.process(pawl.Options{Group: "job:{id}", TTL: 3 * time.Second, OnEvent: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, e)
		}})
		held := t.must(b.Mutex("x"))
		_, err1 := a.Mutex("x").TryLock(t.Context())
		ch := t.lock(t.Context(), a.Mutex("x"))
		time.Sleep(2 * time.Second)
		held.Unlock()
		l1 := t.got(ch)
		time.Sleep(5 * time.Second)
		l1.Unlock()
		l1.Unlock()
		l2 := t.must(a.Mutex("x"))
		time.Sleep(time.Second)
		t.store.Expire("x")
		err2 := l2.Unlock()
		l3 := t.must(a.Mutex("x"))
		wire.all("Release", fault{Never: true})
		err3 := l3.Unlock()
		wire.heal()
		_, err4 := a.Mutex("").Lock(t.Context())
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		exp := []pawl.Event{
			{Op: pawl.Failed, Err: err1},
			{Op: pawl.Acquired, Token: l1.Token(), Took: 2 * time.Second},
			{Op: pawl.Released, Token: l1.Token(), Took: 5 * time.Second},
			{Op: pawl.Acquired, Token: l2.Token()},
			{Op: pawl.Lost, Token: l2.Token(), Took: time.Second, Err: err2},
			{Op: pawl.Acquired, Token: l3.Token()},
			{Op: pawl.Released, Token: l3.Token(), Err: err3},
		}
		for i := range exp {
			exp[i].Name, exp[i].Group = "x", "job:{id}"
		}
		if !slices.Equal(got, exp) {
			t.Errorf("got\n%s\nwant\n%s", lines(got), lines(exp))
		}
		wantIs(t, err1, pawl.ErrHeld)
		wantIs(t, err2, pawl.ErrLost)
		wantIs(t, err3, pawl.ErrUnknown)
		wantIs(t, err4, pawl.ErrInvalid) // no event: nothing was asked for
	})
}

func lines(es []pawl.Event) (s string) {
	for _, e := range es {
		s += fmt.Sprintf("%+v\n", e)
	}
	return s
}

// The callback is never run twice at once, and locks do not wait for it.
func TestSlowEvents(t *testing.T) {
	bubble(t, func(t *world) {
		var mu sync.Mutex
		inside, n := 0, 0
		a, _ := t.process(pawl.Options{OnEvent: func(e pawl.Event) {
			mu.Lock()
			if inside++; inside > 1 {
				t.Error("two at once")
			}
			mu.Unlock()
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			inside--
			n++
		}})
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				l, err := a.Mutex(fmt.Sprint("x", i%3)).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				l.Unlock()
			})
		}
		wg.Wait()
		want(t, "took", time.Since(begin), time.Duration(0))
		time.Sleep(20*time.Minute + time.Second)
		mu.Lock()
		defer mu.Unlock()
		want(t, "events", n, 20)
	})
}

// A callback may use the client.
func TestEventsMayLock(t *testing.T) {
	bubble(t, func(t *world) {
		var c *pawl.Client
		done := make(chan error, 1)
		a, _ := t.process()
		c = a.With(pawl.Options{OnEvent: func(e pawl.Event) {
			if e.Op == pawl.Released && e.Name == "x" {
				done <- a.Mutex("x").Do(context.Background(), func(context.Context) error { return nil })
			}
		}})
		t.must(c.Mutex("x")).Unlock()
		want(t, "lock in the callback", <-done, error(nil))
	})
}
