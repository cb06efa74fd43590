package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

// A flash sale of 100 items in 8 parts. A buyer begins at a part of his own, goes on while parts are held or empty, and
// hears "sold out" only when every part was seen to be empty.
func ExampleStriped_Any() {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	const parts = 8
	var stock [parts]int // in a program: one row each
	for i := range 100 {
		stock[i%parts]++
	}

	phones := locks.Striped("phones", parts)
	buy := func(ctx context.Context, buyer string) (bool, error) {
		return phones.Any(ctx, phones.Of(buyer), func(ctx context.Context, part int) (bool, error) {
			if stock[part] == 0 {
				return false, nil // on to the next part
			}
			stock[part]--
			return true, nil
		})
	}

	var wg sync.WaitGroup
	sold := make(chan bool, 150)
	for i := range 150 {
		wg.Go(func() {
			ok, err := buy(context.Background(), fmt.Sprint("buyer ", i))
			if err != nil {
				fmt.Println("the store is in trouble:", err)
			}
			sold <- ok
		})
	}
	wg.Wait()
	close(sold)
	n := 0
	for ok := range sold {
		if ok {
			n++
		}
	}
	left := 0
	err := phones.Each(context.Background(), func(_ context.Context, part int) error {
		left += stock[part]
		stock[part] = 0
		return nil
	})
	fmt.Println(n, "sold,", left, "left,", err)
	// Output: 100 sold, 0 left, <nil>
}

// Two processes sell from the same parts: nothing is sold twice, and many parts are worked on at once.
func TestStripedSale(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		const parts, items, buyers = 8, 100, 300
		other := pawl.New(store.Share())
		defer other.Close()
		var mu sync.Mutex
		var stock [parts]int
		for i := range items {
			stock[i%parts]++
		}
		inside, most, sold := 0, 0, 0
		start := time.Now()
		var wg sync.WaitGroup
		for b := range buyers {
			wg.Go(func() {
				s := []*pawl.Client{locks, other}[b%2].Striped("phones", parts)
				found, err := s.Any(t.Context(), s.Of(fmt.Sprint(b)), func(ctx context.Context, i int) (bool, error) {
					mu.Lock()
					left := stock[i]
					inside++
					most = max(most, inside)
					mu.Unlock()
					if left > 0 {
						time.Sleep(time.Millisecond)
					}
					mu.Lock()
					defer mu.Unlock()
					inside--
					if left == 0 {
						return false, nil
					}
					stock[i] = left - 1
					sold++
					return true, nil
				})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if !found && sold != items {
					t.Errorf("a buyer was turned away when %d of %d were sold", sold, items)
				}
			})
		}
		wg.Wait()
		want(t, "sold", sold, items)
		want(t, "the most at once", most, parts)
		if d := time.Since(start); d > items*time.Millisecond/2 {
			t.Errorf("the sale took %v, hardly less than one after the other", d)
		}
	})
}

func TestStriped(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ctx := t.Context()
		other := pawl.New(store.Share())
		defer other.Close()
		s := locks.Striped("s", 4)
		want(t, "segments", s.Len(), 4)
		var order []int
		no := func(_ context.Context, i int) (bool, error) { order = append(order, i); return false, nil }
		visits := func() string { v := fmt.Sprint(order); order = nil; return v }

		found, err := s.Any(ctx, 6, no)
		want(t, "nobody found", found, false)
		want(t, "and that is no error", err, error(nil))
		want(t, "around from 6", visits(), "[2 3 0 1]")
		s.Any(ctx, -1, no)
		want(t, "around from -1", visits(), "[3 0 1 2]")
		want(t, "each", s.Each(ctx, func(ctx context.Context, i int) error { _, err := no(ctx, i); return err }), error(nil))
		want(t, "each in order", visits(), "[0 1 2 3]")
		found, _ = s.Any(ctx, 1, func(ctx context.Context, i int) (bool, error) { no(ctx, i); return i == 2, nil })
		want(t, "found in 2", found, true)
		want(t, "and stopped", visits(), "[1 2]")

		// Segment 1 is held in another process, 2 in this one: Try passes over them and says so, Any comes back to them.
		l1, _ := other.Striped("s", 9).Segment(1).Lock(ctx)
		l2, _ := s.Segment(2).Lock(ctx)
		found, err = s.TryAny(ctx, 1, no)
		wantIs(t, err, pawl.ErrHeld)
		want(t, "not found", found, false)
		want(t, "tried", visits(), "[3 0]")
		ended := make(chan error)
		go func() {
			_, err := s.Any(ctx, 1, no)
			ended <- err
		}()
		time.Sleep(time.Minute)
		l2.Unlock()
		synctest.Wait()
		want(t, "while 1 is held", visits(), "[3 0]")
		l1.Unlock()
		want(t, "Any after all", <-ended, error(nil))
		want(t, "then the others", visits(), "[1 2]")

		// What ends it: the error of fn, a lost lease, a wait, a broken store.
		bad := errors.New("bad")
		_, err = s.Any(ctx, 0, func(ctx context.Context, i int) (bool, error) { no(ctx, i); return false, bad })
		want(t, "fn's error", err, bad)
		want(t, "first only", visits(), "[0]")
		want(t, "fn's error of Each", s.Each(ctx, func(ctx context.Context, i int) error { no(ctx, i); return bad }), bad)
		visits()
		found, err = s.Any(ctx, 3, func(ctx context.Context, i int) (bool, error) {
			store.Expire(pawl.FromContext(ctx, "s#003").Name())
			<-ctx.Done()
			return true, nil
		})
		wantIs(t, err, pawl.ErrLost)
		want(t, "what fn said of a lost segment", found, true)
		l1, _ = other.Striped("s", 4).Segment(1).Lock(ctx)
		quick := locks.With(pawl.Options{Wait: 3 * time.Second})
		start := time.Now()
		_, err = quick.Striped("s", 4).Any(ctx, 0, no)
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "waited", time.Since(start), 3*time.Second)
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err = s.Any(short, 0, no)
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		l1.Unlock()
		visits()
		store.Break(errors.New("connection refused"))
		_, err = s.TryAny(ctx, 0, no)
		want(t, "a broken store is not busy", err != nil && !errors.Is(err, pawl.ErrHeld), true)
		store.Break(nil)
		want(t, "and fn did not run", visits(), "[]")

		// Several segments at once, in the order of everybody.
		ls, err := pawl.All(s.Segment(3), s.Segment(0)).Lock(ctx)
		want(t, "two segments", err, error(nil))
		ls.Unlock()

		for _, bad := range []*pawl.Striped{locks.Striped("s", 0), locks.Striped("s", -1), locks.Striped("s", 1001), locks.Striped("", 3), {}} {
			_, err := bad.Any(ctx, 5, no)
			wantIs(t, err, pawl.ErrInvalid)
			_, err = bad.TryAny(ctx, 5, no)
			wantIs(t, err, pawl.ErrInvalid)
			wantIs(t, bad.Each(ctx, func(ctx context.Context, i int) error { no(ctx, i); return nil }), pawl.ErrInvalid)
			_ = bad.Of("key")
		}
		for _, i := range []int{-1, 4} {
			_, err := s.Segment(i).TryLock(ctx)
			wantIs(t, err, pawl.ErrInvalid)
		}
		_, err = locks.Striped(strings.Repeat("x", 4093), 2).Segment(0).TryLock(ctx)
		wantIs(t, err, pawl.ErrInvalid)
		want(t, "fn never ran", visits(), "[]")
	})
}

// The segment of a key must be the same in every process and every version: these are those of FNV-1a.
func TestStripedOf(t *testing.T) {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	for key, exp := range map[string][3]int{"": {0, 5, 37}, "a": {0, 4, 96}, "buyer 17": {0, 4, 32}} {
		for k, n := range []int{1, 8, 100} {
			want(t, fmt.Sprintf("segment of %q of %d", key, n), locks.Striped("x", n).Of(key), exp[k])
		}
	}
	var count [8]int
	for i := range 8000 {
		count[locks.Striped("x", 8).Of(fmt.Sprint("buyer ", i))]++
	}
	for i, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 8000 keys belong to segment %d of 8", n, i)
		}
	}
}
