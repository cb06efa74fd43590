package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Requests that meet while the write lock is busy share a transaction, and each has its own answer.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	const crowd = 200
	file := newFile(t)
	d, n := newCounted(t, file)
	taken := mustGet(t, d, "taken", driver1m)
	tx, err := pool(t, file, "?_txlock=immediate").Begin()
	if err != nil {
		t.Fatal(err)
	}
	before := n.transactions.Load()
	var started, done sync.WaitGroup
	errs := make([]error, crowd)
	for i := range crowd {
		name := "taken"
		if i%4 != 0 {
			name = fmt.Sprint("name ", i)
		}
		a, err := ask(context.Background(), d, name, driver1m, false)
		if err != nil {
			t.Fatal(err)
		}
		started.Add(1)
		done.Go(func() {
			started.Done()
			_, errs[i] = a.place.Try(context.Background(), 1)
		})
	}
	started.Wait()
	time.Sleep(100 * time.Millisecond)
	tx.Rollback()
	done.Wait()
	for i, err := range errs {
		if held := errors.Is(err, driver.ErrHeld); held != (i%4 == 0) || err != nil && !held {
			t.Errorf("request %d: %v", i, err)
		}
	}
	got := n.transactions.Load() - before
	t.Logf("%d requests in %d transactions", crowd, got)
	if got > crowd/4 {
		t.Errorf("%d requests took %d transactions", crowd, got)
	}
	mustRelease(t, d, taken)
}

// An uncontended lock is a transaction, and so is its release.
func TestTransactionsOfACycle(t *testing.T) {
	t.Parallel()
	d, n := newCounted(t, newFile(t))
	mustRelease(t, d, mustGet(t, d, "x", driver1m)) // makes what is made once
	transactions, statements := n.transactions.Load(), n.statements.Load()
	const rounds = 20
	for range rounds {
		mustRelease(t, d, mustGet(t, d, "x", driver1m))
	}
	transactions, statements = n.transactions.Load()-transactions, n.statements.Load()-statements
	if transactions != 2*rounds {
		t.Errorf("%d cycles took %d transactions", rounds, transactions)
	}
	t.Logf("%.1f statements a cycle", float64(statements)/rounds)
}

// One call renews more holds than one transaction does, in as few as can be, each with its own answer.
func TestRenewMany(t *testing.T) {
	t.Parallel()
	const many, transactions = 1100, 5
	d, n := newCounted(t, newFile(t))
	holds := make([]driver.Hold, many)
	each(t, many, func(i int) error {
		a, err := ask(context.Background(), d, fmt.Sprint("name ", i), time.Hour, false)
		if err == nil {
			err = a.get(context.Background())
		}
		if err == nil && i%10 == 0 {
			err = d.Release(context.Background(), a.Hold, driver.End{})
		}
		holds[i] = a.Hold
		return err
	})
	before := n.transactions.Load()
	errs := d.Renew(within(t, soon), holds)
	if got := n.transactions.Load() - before; got != transactions {
		t.Errorf("%d renewals took %d transactions, want %d", many, got, transactions)
	}
	for i, err := range errs {
		if errors.Is(err, driver.ErrNotHeld) != (i%10 == 0) || err != nil && i%10 != 0 {
			t.Errorf("hold %d: %v", i, err)
		}
	}
}

func TestBadNumbers(t *testing.T) {
	t.Parallel()
	ctx := within(t, soon)
	d := open(t, newFile(t))
	for _, h := range []driver.Hold{
		{Kind: driver.Exclusive, Name: "", ID: "a:1", TTL: time.Second},
		{Kind: driver.Exclusive, Name: string(make([]byte, 4097)), ID: "a:1", TTL: time.Second},
		{Kind: driver.Exclusive, Name: "x", ID: "", TTL: time.Second},
		{Kind: driver.Exclusive, Name: "x", ID: "a:1", TTL: 0},
		{Kind: driver.Exclusive, Name: "x", ID: "a:1", TTL: -1},
		{Kind: driver.Exclusive, Name: "x", ID: "a:1", TTL: 999 * time.Microsecond},
		{Kind: driver.Exclusive, Name: "x", ID: "a:1", TTL: math.MaxInt64},
	} {
		if _, err := d.Enter(ctx, driver.Request{Hold: h}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Enter for %.20q, ID %q, TTL %v: %v", h.Name, h.ID, h.TTL, err)
		}
		if _, err := d.Attach(ctx, driver.Request{Hold: h}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Attach for %.20q, ID %q, TTL %v: %v", h.Name, h.ID, h.TTL, err)
		}
	}
	a, err := ask(ctx, d, "x", driver1m, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.place.Try(ctx, math.MaxInt); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Try for MaxInt tokens: %v", err)
	}
	if err := a.get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.Raise(ctx, a.Hold, math.MaxInt64); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Raise to MaxInt64: %v", err)
	}
	odd := a.Hold
	for _, odd.TTL = range []time.Duration{math.MaxInt64, -1, math.MinInt64} {
		if err := d.Renew(ctx, []driver.Hold{odd})[0]; err != nil {
			t.Errorf("Renew for %v: %v", odd.TTL, err)
		}
	}
	if err := d.Release(ctx, a.Hold, driver.End{Last: math.MaxInt64, Keep: math.MaxInt64}); err != nil {
		t.Error(err)
	}
	kept := mustBeHeld(t, d, "x").By.Hold
	if err := d.Release(ctx, kept, driver.End{Last: math.MinInt64, Keep: math.MinInt64}); err != nil {
		t.Errorf("Release of a minimum hold that Inspect shows: %v", err)
	}
	if b := mustGet(t, d, "x", driver1m); b.Token <= a.Token {
		t.Errorf("token %d follows %d", b.Token, a.Token)
	}
}

// A row of a family that this version does not know is respected.
func TestUnknownFamily(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	a := mustGet(t, d, "x", driver1m)
	exec1(t, file+"?_busy_timeout=10000", fmt.Sprint("UPDATE pawl_lock SET kind = ", int(driver.Permits)))
	if err := try(t, d, "x"); !errors.Is(err, driver.ErrMismatch) {
		t.Errorf("Try for a semaphore's name: %v", err)
	}
	if r, err := d.Inspect(within(t, soon), "x"); err != nil || len(r.Holds) != 1 || r.Holds[0].ID != a.ID {
		t.Errorf("Inspect shows %+v, %v", r, err)
	}
}
