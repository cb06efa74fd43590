package torture_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// crowd lets n goroutines lock k once each, in the order of their numbers, hold it for d and say that they were in.
func (t *world) crowd(n int, k pawl.Locker, d time.Duration, in func(*pawl.Lease)) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			l, err := k.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			in(l)
			time.Sleep(d)
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	return &wg
}

// What one process hands on before it asks the store again.
func TestHandOff(t *testing.T) {
	const n = 1200
	for _, c := range []struct {
		opts pawl.Options
		hold time.Duration
		most int // leases on one grant
	}{
		{pawl.Options{}, 0, 1024},                    // as many as there are tokens
		{pawl.Options{}, time.Millisecond, 5},        // as many as end within 5 ms
		{pawl.Options{}, 200 * time.Microsecond, 25}, // likewise
		{pawl.Options{}, 6 * time.Millisecond, 1},
		{pawl.Options{Span: 100}, 0, 100},
		{pawl.Options{Span: 1}, 0, 1},
		{pawl.Options{Span: 3}, time.Millisecond, 3},
		{pawl.Options{Slice: 20 * time.Millisecond}, time.Millisecond, 20},
		{pawl.Options{Slice: time.Minute}, 100 * time.Millisecond, 600}, // it is renewed on the way
	} {
		t.Run(fmt.Sprint(c.opts.Span, c.opts.Slice, c.hold), func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				a = a.With(c.opts)
				b, _ := t.process()
				first := t.must(b.Mutex("x"))
				var mu sync.Mutex
				byHold := map[string]int{}
				last := int64(0)
				wg := t.crowd(n, a.Mutex("x"), c.hold, func(l *pawl.Lease) {
					mu.Lock()
					defer mu.Unlock()
					if l.Token() <= last || byHold[l.ID()] > 0 && l.Token() != last+1 {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					byHold[l.ID()]++
				})
				want(t, "contenders in the store", wire.Calls("Enter"), 1)
				theirs := t.lock(t.Context(), b.Mutex("x"))
				go func() { (<-theirs).l.Unlock() }()
				first.Unlock()
				wg.Wait()
				synctest.Wait()
				most := 0
				for _, k := range byHold {
					most = max(most, k)
				}
				want(t, "most leases on one hold", most, c.most)
				want(t, "holds", len(byHold), (n+c.most-1)/c.most)
			})
		})
	}
}

// A grant passes between equal requests only, and not for fair locks.
func TestHandOffOnlyToEquals(t *testing.T) {
	for _, c := range []struct {
		name   string
		second func(a *pawl.Client) pawl.Locker
		equal  bool
	}{
		{"equal", func(a *pawl.Client) pawl.Locker { return a.Mutex("x") }, true},
		{"wait", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{Wait: time.Minute}).Mutex("x") }, true},
		{"ttl", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{TTL: time.Minute}).Mutex("x") }, false},
		{"note", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{Note: "why"}).Mutex("x") }, false},
		{"holder", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{Holder: "who"}).Mutex("x") }, false},
		{"max hold", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{MaxHold: time.Minute}).Mutex("x") }, false},
		{"min hold", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{MinHold: time.Millisecond}).Mutex("x") }, false},
		{"no keepalive", func(a *pawl.Client) pawl.Locker { return a.With(pawl.Options{NoKeepalive: true}).Mutex("x") }, false},
		{"fair", func(a *pawl.Client) pawl.Locker { return a.FairMutex("x") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *world) {
				a, wire := t.process()
				b, _ := t.process()
				outside := t.must(b.Mutex("x"))
				first := t.lock(t.Context(), a.Mutex("x"))
				second := t.lock(t.Context(), c.second(a))
				outside.Unlock()
				l1 := t.got(first)
				tries := wire.Calls("Try")
				l1.Unlock()
				time.Sleep(50 * time.Millisecond)
				l2 := t.got(second)
				want(t, "handed over", l1.ID() == l2.ID(), c.equal)
				want(t, "without asking the store", wire.Calls("Try") == tries, c.equal)
				if l2.Token() <= l1.Token() {
					t.Errorf("token %d after %d", l2.Token(), l1.Token())
				}
				l2.Unlock()
			})
		})
	}
}

// Fair locks are served in the order in which the waiters of all processes came.
func TestFairAcrossProcesses(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		b, _ := t.process()
		first := t.must(a.FairMutex("x"))
		var mu sync.Mutex
		var order []string
		var wgs []*sync.WaitGroup
		for i := range 12 {
			c := []*pawl.Client{a, a, b}[i%3]
			wgs = append(wgs, t.crowd(1, c.FairMutex("x"), time.Millisecond, func(*pawl.Lease) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(i))
			}))
		}
		first.Unlock()
		for _, wg := range wgs {
			wg.Wait()
		}
		want(t, "order", strings.Join(order, " "), "0 1 2 3 4 5 6 7 8 9 10 11")
	})
}

// A grant that may be lost soon goes back to the store.
func TestNoHandOffWithLittleTrust(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{TTL: 3 * time.Second, Linger: time.Second})
		l1 := t.must(a.Mutex("x"))
		second := t.lock(t.Context(), a.Mutex("x"))
		wire.all("Renew", fault{Never: true})
		time.Sleep(1500 * time.Millisecond) // trusted for 2.7 s
		l1.Unlock()
		l2 := t.got(second)
		want(t, "handed over", l1.ID() == l2.ID(), false)
		wire.heal()
		l2.Unlock()
	})
}
