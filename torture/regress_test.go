package torture_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
)

// What the state machine or a look at the code has found, as small as it gets.

// The tokens of a hold that had been handed on were given out again after a steal.
func TestStealKeepsTokensRising(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{Linger: time.Second})
		b, _ := t.process()
		var last int64
		for range 5 { // one grant of the store, five tokens
			l := t.must(a.Mutex("x"))
			last = l.Token()
			l.Unlock()
		}
		t.steal(b, "x")
		l := t.must(b.Mutex("x"))
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		l.Unlock()
	})
}

// A reader joined a grant that was being given back: it held nothing, for ever, and nothing told it.
func TestNoReaderJoinsADrainingGrant(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		first := t.must(a.RWMutex("x").RLocker())
		wire.next("Release", fault{After: 2 * time.Millisecond})
		go first.Unlock()
		time.Sleep(time.Millisecond)
		second := t.must(a.RWMutex("x").RLocker())
		time.Sleep(2 * time.Millisecond)
		_, err := b.RWMutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld)
		second.Unlock()
		t.must(b.RWMutex("x")).Unlock()
	})
}

// A reader inside a writer took the lock to write, beside the other readers inside that writer.
func TestNoWriterInsideAnInnerReader(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		m := a.RWMutex("x")
		outer := t.must(m)
		ctx := outer.Context(t.Context())
		r1, err1 := m.TryRLock(ctx)
		r2, err2 := m.TryRLock(ctx)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, r := range []*pawl.Lease{r1, r2} {
			_, err := m.TryLock(r.Context(ctx))
			wantIs(t, err, pawl.ErrMismatch)
		}
		inner, err := m.TryRLock(r1.Context(ctx)) // reading deeper still is fine, but no way around the rule
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.TryLock(inner.Context(ctx))
		wantIs(t, err, pawl.ErrMismatch)
		inner.Unlock()
		r1.Unlock()
		r2.Unlock()
		w, err := m.TryLock(ctx) // the outer lease writes: so may what is nested in it
		if err != nil {
			t.Fatal(err)
		}
		w.Unlock()
		outer.Unlock()
	})
}

// All gave the end of one of its own short waits as the reason why the caller's wait had ended.
func TestAllSaysWhatEndedTheWait(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		held := t.must(b.Mutex("2"))
		ctx, cancel := context.WithCancelCause(t.Context())
		answer := make(chan error, 1)
		wire.next("Release", fault{After: time.Second})
		go func() {
			_, err := pawl.All(a.Mutex("1"), a.Mutex("2")).Lock(ctx)
			answer <- err
		}()
		time.Sleep(500 * time.Millisecond) // it has given up on 2 for now and gives 1 back, to wait for 2 first
		cancel(errGaveUp)
		wantIs(t, <-answer, pawl.ErrHeld, errGaveUp)
		held.Unlock()
	})
}

// Of two signals that came before the answer to the request, only one was kept: Wanted hid Lost.
func TestLostBeforeTheAnswer(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		wire.next("Try", fault{After: 10 * time.Millisecond})
		mine := t.lock(t.Context(), a.Mutex("x"))
		theirs := t.lock(t.Context(), b.Mutex("x")) // a's hold is wanted
		t.store.Expire("x")                         // and lost
		defer func() { t.got(theirs).Unlock() }()
		time.Sleep(10 * time.Millisecond)
		l := t.got(mine)
		wantIs(t, l.Err(), pawl.ErrLost)
		l.Unlock()
	})
}

// An Unlock whose first request did its work without an answer was called lost when a later request was refused and one
// after that found nothing.
func TestUnlockAnsweredAtTheThirdAttempt(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		l := t.must(a.Mutex("x"))
		wire.next("Release", fault{Lost: true}, fault{Never: true, Err: errCertain})
		want(t, "unlock", l.Unlock(), error(nil))
	})
}

// MaxHold of a lease that was taken over from a lingering one was told late: the timer stood at the end of the lingering.
func TestMaxHoldAfterLinger(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process(pawl.Options{Linger: 600 * time.Millisecond, MaxHold: 100 * time.Millisecond})
		t.must(a.Mutex("x")).Unlock()
		time.Sleep(200 * time.Millisecond)
		l := t.must(a.Mutex("x"))
		begin := time.Now()
		<-l.Done()
		want(t, "told after", time.Since(begin), 100*time.Millisecond)
		l.Unlock()
	})
}

// A waiter that was handed a lease at the instant in which it gave up told of a lease released that was never acquired.
func TestNoEventsOfALeaseThatNobodyGot(t *testing.T) {
	bubble(t, func(t *world) {
		var mu sync.Mutex
		ops := map[pawl.Op]int{}
		a, _ := t.process(pawl.Options{Linger: time.Second, OnEvent: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			ops[e.Op]++
		}})
		for range 50 {
			l := t.must(a.Mutex("x"))
			ctx, cancel := context.WithCancel(t.Context())
			ch := t.lock(ctx, a.Mutex("x"))
			cancel()
			l.Unlock() // hands over unless the waiter was faster
			t.ended(ch).l.Unlock()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want(t, "released", ops[pawl.Released], ops[pawl.Acquired])
	})
}

// Unlock of a closed client went on asking the closed driver for as long as a store may take to answer.
func TestUnlockAfterCloseIsQuick(t *testing.T) {
	bubble(t, func(t *world) {
		a, _ := t.process()
		l := t.must(a.Mutex("x"))
		if err := a.Close(); err == nil {
			t.Error("close does not name the lease")
		}
		begin := time.Now()
		wantIs(t, l.Unlock(), pawl.ErrLost, pawl.ErrClosed)
		want(t, "took", time.Since(begin), time.Duration(0))
	})
}

// A renewal that was under way could reach the store after an Unlock that had given up, and prolong what was to be free by
// then.
func TestUnlockOutlivesARenewal(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		l := t.must(a.Mutex("x"))
		wire.all("Renew", fault{Before: 4 * time.Second, Recall: true})
		for n := wire.Calls("Renew"); ; time.Sleep(time.Millisecond) { // until one is on its way
			wire.mu.Lock()
			out := wire.out
			wire.mu.Unlock()
			if out > 0 {
				want(t, "arrived", wire.Calls("Renew"), n)
				break
			}
		}
		wire.all("Release", fault{Never: true})
		begin := time.Now()
		err := l.Unlock()
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("unlock took %v", d)
		}
		unknown, ok := errors.AsType[*pawl.UnknownError](err)
		if !ok {
			t.Fatalf("got %v, want an *UnknownError", err)
		}
		time.Sleep(time.Until(unknown.FreeBy))
		t.must(pawl.New(t.store.Share()).Mutex("x")).Unlock()
	})
}

// An Unlock that reached the store late kept the name for MinHold from then.
func TestMinHoldCountsFromTheStart(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process(pawl.Options{MinHold: 10 * time.Second})
		b, _ := t.process()
		l := t.must(a.Mutex("x"))
		time.Sleep(time.Second)
		wire.all("Release", fault{Never: true})
		wantIs(t, l.Unlock(), pawl.ErrUnknown)
		time.Sleep(3 * time.Second)
		wire.heal()
		time.Sleep(2500 * time.Millisecond)
		_, err := b.Mutex("x").TryLock(t.Context())
		wantIs(t, err, pawl.ErrHeld) // 9.5 s have passed
		time.Sleep(time.Second)
		t.must(b.Mutex("x")).Unlock()
	})
}

// The events of one name in one process came out of order: a lease was acquired before the one before it was released.
func TestEventsAlternate(t *testing.T) {
	bubble(t, func(t *world) {
		var mu sync.Mutex
		held, wrong := 0, 0
		a, _ := t.process(pawl.Options{OnEvent: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Op {
			case pawl.Acquired:
				held++
			case pawl.Released:
				held--
			}
			if held < 0 || held > 1 {
				wrong++
			}
		}})
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 100 {
					l, err := a.Mutex("x").Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					l.Unlock()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want(t, "out of order", wrong, 0)
	})
}

// Whoever counts leases by their events went wrong: re-entry was acquired and never released, a detached lease likewise,
// and an attached one the other way round.
func TestEventsBalance(t *testing.T) {
	bubble(t, func(t *world) {
		var mu sync.Mutex
		ops := map[pawl.Op]int{}
		count := pawl.Options{OnEvent: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			ops[e.Op]++
		}}
		a, _ := t.process(count)
		b, _ := t.process(count)
		l := t.must(a.Mutex("x"))
		inner, err := a.Mutex("x").Lock(l.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		inner.Unlock()
		ticket, err := l.Detach()
		if err != nil {
			t.Fatal(err)
		}
		l, err = b.Attach(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		want(t, "held", ops[pawl.Acquired]-ops[pawl.Released], 1)
		mu.Unlock()
		l.Unlock()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want(t, "acquired", ops[pawl.Acquired], 2)
		want(t, "released", ops[pawl.Released], 2)
	})
}

// A lease that was lost before its caller had it was told lost first and acquired then, or only lost.
func TestEventsOfALeaseLostOnArrival(t *testing.T) {
	for _, gaveUp := range []bool{false, true} {
		t.Run(map[bool]string{false: "taken", true: "given up"}[gaveUp], func(t *testing.T) {
			bubble(t, func(t *world) {
				var mu sync.Mutex
				var ops []pawl.Op
				a, wire := t.process(pawl.Options{OnEvent: func(e pawl.Event) {
					mu.Lock()
					defer mu.Unlock()
					ops = append(ops, e.Op)
				}})
				wire.next("Try", fault{After: 10 * time.Millisecond})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ch := make(chan answer, 1)
				go func() {
					l, err := a.Mutex("x").Lock(stubborn{t.Context(), ctx})
					ch <- answer{l, err}
				}()
				time.Sleep(5 * time.Millisecond)
				t.store.Expire("x")
				exp := []pawl.Op{pawl.Acquired, pawl.Lost}
				if gaveUp {
					cancel()
					exp = []pawl.Op{pawl.Failed}
				}
				time.Sleep(5 * time.Millisecond)
				t.ended(ch).l.Unlock()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(ops, exp) {
					t.Errorf("got %v, want %v", ops, exp)
				}
			})
		})
	}
}

// stubborn is a context that ends without waking whoever waits for it, as if both came in one instant.
type stubborn struct {
	context.Context
	ended context.Context
}

func (s stubborn) Err() error { return s.ended.Err() }

// A waiter that rode out an outage began a new request every second and left each of them in parallel, again and again:
// forty requests a second to a store that was down.
func TestOutageIsNoStorm(t *testing.T) {
	bubble(t, func(t *world) {
		a, wire := t.process()
		b, _ := t.process()
		held := t.must(b.Mutex("x"))
		waiting := t.lock(t.Context(), a.Mutex("x"))
		before := wire.Calls("Try") + wire.Calls("Leave")
		wire.cut(errBroken)
		time.Sleep(35 * time.Second) // it looks again after a third of a TTL, and fails for the rest
		if n := wire.Calls("Try") + wire.Calls("Leave") - before; n < 5 || n > 40 {
			t.Errorf("%d requests in 25 s", n)
		}
		t.waits(waiting)
		wire.mend()
		held.Unlock()
		time.Sleep(2 * time.Second)
		t.got(waiting).Unlock()
		want(t, "waiters", waiters(t), 0)
	})
}
