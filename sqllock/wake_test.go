package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// A thousand waiters for a thousand names cost a look a second, a sign of life every two, and three goroutines. The renewals
// of those who hold the names cost nothing and wake nobody.
func TestIdleWaiters(t *testing.T) {
	const crowd = 1000
	file := newFile(t)
	holder := open(t, file)
	d, did := newCounted(t, file)
	statements := &did.statements
	var holds []driver.Hold
	var mu sync.Mutex
	each(t, crowd, func(i int) error {
		a, err := ask(context.Background(), holder, fmt.Sprint("name ", i), time.Hour, false)
		if err != nil {
			return err
		}
		if err := a.get(context.Background()); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		holds = append(holds, a.Hold)
		return nil
	})
	before := runtime.NumGoroutine()
	news := make([]*asker, crowd)
	each(t, crowd, func(i int) (err error) {
		if news[i], err = ask(context.Background(), d, fmt.Sprint("name ", i), time.Hour, true); err != nil {
			return err
		}
		if _, err := news[i].place.Try(context.Background(), 1); !errors.Is(err, driver.ErrHeld) {
			return fmt.Errorf("Try for a held name: %v", err)
		}
		return nil
	})
	settle(t, "goroutines", func() bool { return runtime.NumGoroutine() <= before+4 })

	time.Sleep(200 * time.Millisecond) // what the refusals themselves made to look at
	begun, from := time.Now(), statements.Load()
	time.Sleep(2 * time.Second)
	t.Logf("%d waiters: %.1f statements/s, %d goroutines", crowd,
		float64(statements.Load()-from)/time.Since(begun).Seconds(), runtime.NumGoroutine()-before)
	begun, from = time.Now(), statements.Load()
	const renewals = 4
	for range renewals {
		time.Sleep(500 * time.Millisecond)
		for _, err := range holder.Renew(within(t, soon), holds[:100]) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	n, took := statements.Load()-from, time.Since(begun)
	t.Logf("and with %.1f transactions/s of another process: %.1f statements/s", renewals/took.Seconds(), float64(n)/took.Seconds())
	// A look a second, and a sign of life every two seconds, which is a transaction of 7 statements.
	if limit := int64(2*took.Seconds()) + 2 + 7*int64(took.Seconds()/2+2); n > limit {
		t.Errorf("%d statements in %v, at most %d are right", n, took, limit)
	}
	for i, a := range news {
		select {
		case <-a.news:
			t.Errorf("waiter %d was woken by the renewals of others", i)
		default:
		}
	}
	each(t, crowd, func(i int) error { return news[i].place.Leave(context.Background()) })
	if n := count(t, file, `SELECT COUNT(*) FROM pawl_lock WHERE state LIKE '%"line"%'`); n != 0 {
		t.Errorf("%d rows are left in line after all have left", n)
	}
	// With nobody in line, the goroutines and the watch end by themselves.
	settle(t, "goroutines without waiters", func() bool { return runtime.NumGoroutine() <= before })
	from = statements.Load()
	time.Sleep(1500 * time.Millisecond)
	if n := statements.Load() - from; n != 0 {
		t.Errorf("%d statements with nobody in line", n)
	}
}

// What waits when a driver is closed leaves no goroutine behind.
func TestCloseLeavesNothing(t *testing.T) {
	file := newFile(t)
	before := runtime.NumGoroutine()
	d := open(t, file)
	mustGet(t, d, "x", driver1m)
	waiter := mustAsk(t, d, "x", driver1m)
	if _, err := waiter.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	ticks, err := d.Watch(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	select {
	case _, ok := <-ticks:
		if ok {
			t.Error("a watch ticked at Close")
		}
	case <-time.After(soon):
		t.Error("Close did not end a watch")
	}
	if _, err := d.Watch(context.Background(), "x"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Watch after Close: %v", err)
	}
	settle(t, "goroutines after Close", func() bool { return runtime.NumGoroutine() <= before })
}

// A waiter that was called and does not come costs the others its turn and no more; those behind it come in order.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	holder := mustGet(t, d, "x", driver1m)
	var dead []*sqllock.Driver
	for range 3 {
		gone := open(t, file)
		if _, err := mustAsk(t, gone, "x", driver1m).place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		dead = append(dead, gone)
	}
	a := mustAsk(t, d, "x", driver1m)
	if _, err := a.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	for _, gone := range dead {
		gone.Close()
	}
	released := time.Now()
	mustRelease(t, d, holder)
	if err := a.get2(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	t.Logf("got in %v after the release, behind %d dead waiters", time.Since(released), len(dead))
	if n := count(t, file, `SELECT COUNT(*) FROM pawl_lock WHERE state LIKE '%"line"%'`); n != 0 {
		t.Errorf("%d dead waiters are still in line", n)
	}
}

// A driver that was stopped for so long that the others took it for dead finds back into the line.
func TestTakenForDead(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d1, d2 := open(t, file), open(t, file)
	holder := mustGet(t, d1, "x", driver1m)
	a := mustAsk(t, d2, "x", driver1m)
	if _, err := a.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	bells := func() []string {
		all, err := filepath.Glob(file + "-bell-*")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	settle(t, "a bell", func() bool { return len(bells()) == 1 })
	exec1(t, file+"?_busy_timeout=10000", "UPDATE pawl_lock SET state = json_remove(state, '$.line'); DELETE FROM pawl_lock_process")
	if err := os.Remove(bells()[0]); err != nil {
		t.Fatal(err)
	}
	<-a.news // its row is missing
	if _, err := a.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	settle(t, "a new bell", func() bool { return len(bells()) == 1 })
	mustRelease(t, d1, holder)
	if err := a.get2(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	d2.Close()
	if all := bells(); len(all) != 0 {
		t.Errorf("after Close there are bells: %v", all)
	}
}

// The bell of a process that was killed is deleted with its waiters.
func TestDeadBell(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	mustGet(t, d, "pass", time.Hour)
	c := startChild(t, "pass", file)
	fmt.Fprintln(c.in)
	if got := c.line(t); got != "waits" {
		t.Fatal(got)
	}
	settle(t, "a bell", func() bool {
		all, err := filepath.Glob(file + "-bell-*")
		return err == nil && len(all) == 1
	})
	c.Process.Kill()
	c.Wait()
	d.Elsewhere("", time.Minute, 0)
	mustGet(t, d, "other", driver1m)
	if all, err := filepath.Glob(file + "-bell-*"); err != nil || len(all) != 0 {
		t.Errorf("bells are left: %v, %v", all, err)
	}
	if r, err := d.Inspect(within(t, soon), "pass"); err != nil || r.Waiters != 0 {
		t.Errorf("Inspect shows %+v, %v", r, err)
	}
}

// Where the system cannot report changes, the file is looked at instead.
func TestPollFile(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	news, stop := sqllock.PollFile(file)
	select {
	case <-news:
		t.Error("news without a change")
	case <-time.After(100 * time.Millisecond):
	}
	if err := os.WriteFile(file+"-wal", []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-news:
	case <-time.After(soon):
		t.Error("a change was not noticed")
	}
	stop()
}
