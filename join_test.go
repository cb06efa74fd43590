package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

// All of free mutexes is one request; one that is taken is waited for as ever.
func TestAllInOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ctx := t.Context()
		m := pawl.All(locks.Mutex("b"), locks.Mutex("a"), locks.Mutex("b"))
		ls, err := m.Lock(ctx)
		want(t, "Lock", err, error(nil))
		want(t, "names", ls[0].Name()+ls[1].Name()+ls[2].Name(), "bab")
		want(t, "together", store.Calls("TryAll"), 1)
		want(t, "alone", store.Calls("Try"), 0)

		// Here and elsewhere they are taken, and TryLock says which.
		other := pawl.New(store.Share())
		defer other.Close()
		for _, c := range []*pawl.Client{locks, other} {
			_, err = pawl.All(c.Mutex("b"), c.Mutex("free")).TryLock(ctx)
			held, _ := errors.AsType[*pawl.HeldError](err)
			if held == nil || held.Name != "b" || held.Here != (c == locks) {
				t.Errorf("TryLock of what is held: %v", err)
			}
			_, err = c.Mutex("free").TryLock(ctx)
			want(t, "nothing is kept", err, error(nil))
			store.Expire("free")
			synctest.Wait()
		}

		done := make(chan error)
		go func() {
			done <- pawl.All(other.Mutex("b"), other.Mutex("c")).Do(ctx, func(context.Context) error { return nil })
		}()
		synctest.Wait()
		want(t, "Unlock", ls.Unlock(), error(nil))
		want(t, "the one who waited", <-done, error(nil))
	})
}

// The waits inside All, and what it takes and gives back on the way, are no events.
func TestAllEvents(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		var got []string
		loud := locks.With(pawl.Options{OnEvent: func(e pawl.Event) { got = append(got, string(e.Op)+" "+e.Name) }})
		other := pawl.New(store.Share())
		defer other.Close()
		held, err := other.Mutex("b").Lock(t.Context())
		want(t, "Lock", err, error(nil))
		time.AfterFunc(time.Second, func() { held.Unlock() })
		ls, err := pawl.All(loud.Mutex("a"), loud.Mutex("b")).Lock(t.Context())
		want(t, "All", err, error(nil))
		ls.Unlock()
		synctest.Wait()
		want(t, "events", fmt.Sprint(got), "[acquired a acquired b released b released a]")

		got = nil
		held, _ = other.Mutex("b").Lock(t.Context())
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = pawl.All(loud.Mutex("a"), loud.Mutex("b")).Lock(ctx)
		want(t, "no end", errors.Is(err, pawl.ErrHeld) && errors.Is(err, context.DeadlineExceeded), true)
		synctest.Wait()
		want(t, "one event", fmt.Sprint(got), "[failed b]")
		held.Unlock()
	})
}

// unheard loses the answer of TryAll.
type unheard struct{ *memlock.Driver }

func (u unheard) TryAll(ctx context.Context, ps []driver.Place) ([]driver.Grant, error) {
	if _, err := u.Driver.TryAll(ctx, ps); err != nil {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

// What an unanswered request of All may have got is given back.
func TestAllUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		c := pawl.New(unheard{store.Share()})
		defer c.Close()
		_, err := pawl.All(c.Mutex("a"), c.Mutex("b")).Lock(t.Context())
		want(t, "unknown", errors.Is(err, pawl.ErrUnknown), true)
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			l, err := locks.Mutex(name).TryLock(t.Context())
			want(t, name+" is free", err, error(nil))
			l.Unlock()
		}
	})
}

func BenchmarkAll(b *testing.B) {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	var all []pawl.Locker
	for i := range 4 {
		all = append(all, locks.Mutex(fmt.Sprint(i)))
	}
	m := pawl.All(all...)
	for b.Loop() {
		ls, err := m.Lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		ls.Unlock()
	}
}
