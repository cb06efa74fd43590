package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// A server that is killed and comes back has forgotten nothing: the holder holds, its tokens rise, waiters get in.
func testRestart(t *testing.T, s product) {
	d1, d2 := s.open(t), s.open(t)
	a := mustTake(t, d1, "x", time.Minute)
	b := mustWait(t, d2, "x", time.Minute)
	s.Kill()
	begun := time.Now()
	if err := d1.Renew(within(t, soon/2), []driver.Hold{a.Hold})[0]; err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew without a server: %v", err)
	}
	if took := time.Since(begun); took > soon {
		t.Errorf("Renew without a server took %v", took)
	}
	s.Restart()
	settle(t, "renewed after the restart", func() bool { return renew(t, d1, a) == nil })
	if err := try(t, d2, "x"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try for what is held since before the restart: %v", err)
	}
	mustRelease(t, d1, a)
	if err := b.get(within(t, soon)); err != nil {
		t.Fatalf("who waited during the restart: %v", err)
	}
	if b.Token <= a.Token {
		t.Errorf("token %d follows %d", b.Token, a.Token)
	}
}

// A server that is killed right after a release may have forgotten it: the name is free when the hold would have run out. A minimum
// hold is not forgotten, nor the largest token.
func testForgottenRelease(t *testing.T, s product) {
	const ttl = 2 * time.Second
	d := s.open(t)
	short, kept := mustTake(t, d, "short", ttl), mustTake(t, d, "kept", ttl)
	if err := d.Release(within(t, soon), kept.Hold, driver.End{Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, d, short)
	s.Kill()
	s.Restart()
	d = s.open(t)
	if err := try(t, d, "kept"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try for a name with a minimum hold of an hour: %v", err)
	}
	var next *contender
	settle(t, "the name is free", func() bool {
		c, err := take(within(t, soon), d, "short", time.Minute)
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		if err != nil {
			t.Logf("the release was forgotten: %v", err)
		}
		next = c
		return err == nil
	})
	if next.Token <= short.Token {
		t.Errorf("token %d follows %d", next.Token, short.Token)
	}
}

// Killing every connection again and again, in the middle of whatever is under way, loses no lock and admits nobody twice.
// The next kill comes when somebody has got through, so that all come to an end on a slow machine too.
func testKilledConnections(t *testing.T, s product) {
	const clients, rounds = 4, 10
	kill := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
	db := s.DB()
	db.SetMaxOpenConns(1)
	stop := make(chan struct{})
	var killer, workers sync.WaitGroup
	var killed, visits atomic.Int64
	var drivers []*sqllock.Driver
	for range clients {
		drivers = append(drivers, s.open(t))
	}
	killer.Go(func() {
		for seen := int64(-1); ; {
			for wait := time.Now(); visits.Load() == seen && time.Since(wait) < time.Second; {
				time.Sleep(time.Millisecond)
			}
			seen = visits.Load()
			select {
			case <-stop:
				return
			case <-time.After(rand.N(10 * time.Millisecond)):
			}
			if s.dialect == sqllock.PostgreSQL {
				db.Exec(kill)
				killed.Add(1)
				continue
			}
			var ids []int
			rows, err := db.Query("SELECT id FROM information_schema.processlist WHERE user = 'pawl' AND id <> CONNECTION_ID()")
			if err != nil {
				continue
			}
			for rows.Next() {
				var id int
				rows.Scan(&id)
				ids = append(ids, id)
			}
			rows.Close()
			for _, id := range ids {
				db.Exec(fmt.Sprint("KILL ", id))
				killed.Add(1)
			}
		}
	})
	var inside atomic.Int64
	for _, d := range drivers {
		workers.Go(func() {
			for done := 0; done < rounds; {
				ctx, cancel := context.WithTimeout(context.Background(), 2*soon)
				c, err := ask(ctx, d, "hot", time.Minute, true)
				if err == nil {
					err = c.get(ctx)
				}
				if err != nil { // what it may have won is given back
					for c.place.Leave(ctx) != nil && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					if ctx.Err() != nil {
						t.Errorf("a request came to no end: %v", err)
					}
					cancel()
					if t.Failed() {
						return
					}
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				for err = d.Release(ctx, c.Hold, driver.End{}); err != nil && !errors.Is(err, driver.ErrNotHeld); err = d.Release(ctx, c.Hold, driver.End{}) {
					if ctx.Err() != nil {
						t.Errorf("a release came to no end: %v", err)
						break
					}
				}
				cancel()
				visits.Add(1)
				done++
			}
		})
	}
	workers.Wait()
	close(stop)
	killer.Wait()
	t.Logf("%d visits, %d kills", visits.Load(), killed.Load())
	if killed.Load() == 0 {
		t.Error("nothing was killed")
	}
}

// A transaction of somebody else that keeps one row locked delays no other name, and nobody who asks for that name longer
// than he wants.
func testLockedRow(t *testing.T, s product) {
	d, other := s.open(t), s.open(t)
	slow, quick := mustTake(t, d, "slow", time.Minute), mustTake(t, d, "quick", time.Minute)
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE " + s.table + " SET last = last + 1 WHERE k = " + s.blob("slow")); err != nil {
		t.Fatal(err)
	}
	// Both in one call: the one that is locked does not hold up the other.
	errs := make(chan []error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		errs <- d.Renew(ctx, []driver.Hold{slow.Hold, quick.Hold})
	}()
	for range 20 {
		begun := time.Now()
		if err := renew(t, d, quick); err != nil {
			t.Errorf("Renew beside a locked row: %v", err)
		}
		if took := time.Since(begun); took > 1500*time.Millisecond {
			t.Errorf("Renew beside a locked row took %v", took)
		}
	}
	mustRelease(t, d, mustTake(t, d, "new", time.Minute))
	got := <-errs
	if got[1] != nil {
		t.Errorf("Renew of the other name in one call: %v", got[1])
	}
	if err := got[0]; err == nil || errors.Is(err, driver.ErrNotHeld) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("Renew of a locked row: %v", err)
	}
	if err := try(t, other, "slow"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try for a held name whose row is locked: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := renew(t, d, slow); err != nil {
		t.Errorf("Renew after the row was unlocked: %v", err)
	}
}

// A renewal that a driver sent without reading the row first, since it knew it, and that arrives when the hold has run out,
// does not revive it.
func testLateGuess(t *testing.T, s product) {
	d := s.open(t)
	a := mustTake(t, d, "late", time.Second)
	s.Stop()
	longer := a.Hold
	longer.TTL = 10 * time.Minute
	late := make(chan error, 1)
	go func() { late <- d.Renew(within(t, soon), []driver.Hold{longer})[0] }()
	time.Sleep(1200 * time.Millisecond)
	s.Cont()
	if err := <-late; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew that arrived late: %v", err)
	}
	mustRelease(t, s.open(t), mustTake(t, s.open(t), "late", time.Minute))
}

// A frozen server bounds nothing: ctx does, and Close does not wait for it.
func testFrozen(t *testing.T, s product) {
	d, d2 := s.open(t), s.open(t)
	a := mustTake(t, d, "x", time.Minute)
	mustTake(t, d2, "y", time.Minute)
	s.Stop()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := d.Renew(ctx, []driver.Hold{a.Hold})[0]; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Renew: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- try(t, d2, "z") }()
	time.Sleep(50 * time.Millisecond)
	d2.Close()
	if err := <-ended; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Try under way at Close: %v", err)
	}
	if took := time.Since(begun); took > soon/2 {
		t.Errorf("that took %v", took)
	}
	s.Cont()
	settle(t, "renewed when the server goes on", func() bool { return renew(t, d, a) == nil })
}

// A server that becomes read-only under a holder (a primary that was demoted) refuses, and says so; the hold is not given up
// for that, and goes on when the server can write again.
func testReadOnly(t *testing.T, s product) {
	d := s.open(t)
	a := mustTake(t, d, "x", time.Minute)
	var as *sqllock.Driver
	on, off := []string{"SET GLOBAL read_only = 1"}, []string{"SET GLOBAL read_only = 0"}
	if s.dialect == sqllock.PostgreSQL {
		on = []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"}
		off = []string{"SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"}
		as = d
	} else { // who may do anything may write to a read-only server as well
		s.exec(t, "CREATE USER app@'%' IDENTIFIED BY 'pw'")
		s.exec(t, "GRANT ALL ON pawl.* TO app@'%'")
		db, err := sql.Open("mysql", "app:pw@tcp("+s.Addr+")/pawl")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		as = s.on(t, db, nil)
	}
	admin := s.DB()
	admin.SetMaxOpenConns(1) // a session that has begun
	run := func(statements []string) {
		t.Helper()
		for _, st := range statements {
			if _, err := admin.Exec(st); err != nil {
				t.Fatalf("%s: %v", st, err)
			}
		}
	}
	run(on)
	settle(t, "refused", func() bool { return renew(t, as, a) != nil })
	err := renew(t, as, a)
	mustSay(t, "Renew on a read-only server", err, "read-only", "primary")
	if errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew on a read-only server: %v", err)
	}
	mustSay(t, "Try on a read-only server", try(t, as, "y"), "read-only", "primary")
	if _, err := as.Inspect(within(t, soon), "x"); err != nil {
		t.Errorf("Inspect on a read-only server: %v", err)
	}
	run(off)
	settle(t, "renewed when the server writes again", func() bool { return renew(t, as, a) == nil })
	mustRelease(t, as, a)
}
