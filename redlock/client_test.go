package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redlock"
)

func Example() {
	// Five stores that fail independently: in production redislock drivers to five Redis servers on five machines.
	var members []driver.Driver
	for range 5 {
		members = append(members, memlock.New())
	}
	locks := pawl.New(redlock.New(members, nil))
	defer locks.Close()

	err := locks.Mutex("stock:1001").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("has a fencing token:", pawl.FromContext(ctx, "stock:1001").Token() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// has a fencing token: true
	// <nil>
}

// The client over a quorum whose minority fails: nobody notices, tokens rise, nothing is lost.
func TestClientOverAFailingMinority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		var clients []*pawl.Client
		var all [][]*wire
		for range 3 {
			d, wires := q.process(t, nil)
			clients, all = append(clients, pawl.New(d)), append(all, wires)
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				m := i % 5
				for _, wires := range all {
					wires[m].set(silent)
				}
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Second):
				}
				if i%2 == 0 {
					q[m].Wipe()
				}
				for _, wires := range all {
					wires[m].set(healthy)
				}
				time.Sleep(40 * time.Second) // until a restarted member votes again
			}
		})
		var mu sync.Mutex
		var last int64
		inside := 0
		var users sync.WaitGroup
		for _, c := range clients {
			for range 4 {
				users.Go(func() {
					for range 25 {
						err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
							token := pawl.FromContext(ctx, "n").Token()
							mu.Lock()
							if inside++; inside > 1 || token <= last {
								t.Errorf("%d inside, token %d after %d", inside, token, last)
							}
							last = token
							mu.Unlock()
							time.Sleep(700 * time.Millisecond)
							mu.Lock()
							inside--
							mu.Unlock()
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		users.Wait()
		close(stop)
		wg.Wait()
		for _, c := range clients {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// When a majority is gone the lease is lost in time, and the error says so.
func TestClientLosesItsMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(3)
		d, wires := q.process(t, nil)
		c := pawl.New(d)
		defer c.Close()
		l, err := c.With(pawl.Options{TTL: 3 * time.Second}).Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := l.Err(); err != nil {
			t.Fatalf("after ten seconds of renewals: %v", err)
		}
		began := time.Now()
		wires[0].set(silent)
		wires[1].set(silent)
		<-l.Done()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the loss was told after %v", took)
		}
		wantIs(t, "Err", l.Err(), pawl.ErrLost)
		l.Unlock()
	})
}

// A hold that moves to another process: it is renewed, filled and released there.
func TestAttach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := stores(5)
		d1, wires := q.process(t, nil)
		d2, _ := q.process(t, nil)
		wires[4].set(refusing)
		h, g := get(t, d1)
		last := g.Token + int64(g.Span) - 1
		r := request()
		r.Hold = h
		r.TTL = ttl
		d1.Close()
		g2, err := d2.Attach(t.Context(), r)
		if err != nil || g2.Token != g.Token {
			t.Fatalf("Attach: %+v, %v", g2, err)
		}
		q[0].Wipe()
		if err := renew(t, d2, h); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := q.holds("n"); n != 5 {
			t.Errorf("%d of 5 members have it", n)
		}
		q[1].Expire("n")
		q[2].Expire("n")
		q[3].Expire("n")
		wantIs(t, "Renew when a majority lost it", renew(t, d2, h), driver.ErrNotHeld)
		time.Sleep(time.Second)
		if n := q.holds("n"); n != 0 {
			t.Errorf("%d members still have what is lost", n)
		}
		p, _ := q[0].Share().Enter(t.Context(), request())
		if g, err := p.Try(t.Context(), 1); err != nil || g.Token <= last {
			t.Errorf("the member that was filled goes on with token %d (%v) after %d", g.Token, err, last)
		}
	})
}

// stingy is a member that grants less than it was asked for, counted from an earlier instant.
type stingy struct{ *memlock.Driver }

type stingyPlace struct{ driver.Place }

func (s stingy) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	p, err := s.Driver.Enter(ctx, r)
	return stingyPlace{p}, err
}

func (p stingyPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	g, err := p.Place.Try(ctx, span)
	g.Sent, g.TTL = g.Sent.Add(-2*time.Second), 5*time.Second
	return g, err
}

func TestMembersThatGrantLess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := redlock.New([]driver.Driver{memlock.New(), stingy{memlock.New()}, stingy{memlock.New()}}, nil)
		defer d.Close()
		_, g := get(t, d)
		if left := g.Sent.Add(g.TTL).Until(); left > 3*time.Second-100*time.Millisecond {
			t.Errorf("%v are trusted, but a majority keeps it for 3s only", left)
		}
	})
}

// What members say gets into errors, so they must not say secrets; what the quorum adds is their number.
func TestErrorsNameMembersByNumber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, wires := stores(3).process(t, nil)
		for _, w := range wires {
			w.Break(errors.New("dial: refused"))
		}
		_, err := d.Inspect(t.Context(), "n")
		wantSays(t, err, "inspect: 0 of 3 members", "member 1: dial: refused", "member 3: ")
		for _, err := range d.List(t.Context(), "") {
			wantSays(t, err, "list: 0 of 3 members")
		}
		wantSays(t, renew(t, d, request().Hold), "renew: 0 of 3 members", "member 2: dial: refused")
	})
}
