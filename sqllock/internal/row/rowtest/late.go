package rowtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// LateCommits keeps the COMMIT of a Try back until its caller has given up, and wants Leave to know what became of it:
// while it is under way Leave waits, and then the name is free, whether the COMMIT has arrived or not. open opens a driver.
func LateCommits(t *testing.T, db Database, open func(location string) driver.Driver) {
	g := NewGate(t, db.Server.Addr)
	d1, d2 := open(g.Through(db.URL)), open(db.URL)
	defer d1.Close()
	defer d2.Close()
	for i, c := range []struct{ arrives, there bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		name := fmt.Sprint("late ", i)
		h := hold(name, 10*i+1)
		if c.there { // a row of somebody who had it before
			old := hold(name, 10*i+2)
			old.TTL = 20 * time.Millisecond
			if err := Try(t.Context(), d2, old); err != nil {
				t.Fatal(err)
			}
			time.Sleep(40 * time.Millisecond)
		}
		p, err := d1.Enter(t.Context(), driver.Request{Hold: h, Notify: func(driver.Signal) {}})
		if err != nil {
			t.Fatal(err)
		}
		g.Arm()
		ctx, cancel := context.WithCancel(t.Context())
		tried := make(chan error, 1)
		go func() {
			_, err := p.Try(ctx, 1)
			tried <- err
		}()
		select {
		case <-g.Kept:
		case err := <-tried:
			t.Fatalf("%s: Try: %v before any COMMIT", name, err)
		}
		cancel()
		if err := <-tried; err == nil || answered(err) {
			t.Errorf("%s: the COMMIT is under way, but Try says: %v", name, err)
		}
		left := make(chan error, 1)
		go func() { left <- p.Leave(t.Context()) }()
		select {
		case err := <-left:
			t.Errorf("%s: Leave did not wait for the COMMIT: %v", name, err)
			left <- err
		case <-time.After(300 * time.Millisecond):
		}
		g.Open <- c.arrives
		if err := <-left; err != nil {
			t.Errorf("%s: Leave: %v", name, err)
		}
		if err := Try(t.Context(), d2, hold(name, 10*i+3)); err != nil {
			t.Errorf("%s: after Leave: %v", name, err)
		}
	}
}

func answered(err error) bool {
	for _, certain := range []error{driver.ErrHeld, driver.ErrDone, driver.ErrMismatch, driver.ErrInvalid, driver.ErrNotDone, errors.ErrUnsupported} {
		if errors.Is(err, certain) {
			return true
		}
	}
	return false
}

func hold(name string, n int) driver.Hold {
	return driver.Hold{Kind: driver.Exclusive, Name: name, ID: fmt.Sprintf("00000000-0000-4000-8000-000000000000:%d", n), Permits: 1, TTL: time.Minute}
}

// LockedRows keeps the row of one hold locked in a transaction of another program: the renewal of the others goes on, and
// the one is neither renewed nor lost. column is the key's.
func LockedRows(t *testing.T, db Database, d driver.Driver, table, column string) {
	var hs []driver.Hold
	for i := range 5 {
		hs = append(hs, hold(fmt.Sprint("row ", i), 100+i))
		if err := Try(t.Context(), d, hs[i]); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := db.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"BEGIN", "SELECT * FROM " + table + " WHERE " + column + " = 'row 2' FOR UPDATE"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, err := range d.Renew(ctx, hs) {
		if locked := err != nil && !errors.Is(err, driver.ErrNotHeld); locked != (i == 2) || i != 2 && err != nil {
			t.Errorf("row %d: renewed with %v", i, err)
		}
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	for i, err := range d.Renew(t.Context(), hs) {
		if err != nil {
			t.Errorf("row %d, unlocked: %v", i, err)
		}
		if err := d.Release(t.Context(), hs[i], driver.End{}); err != nil {
			t.Errorf("row %d: release: %v", i, err)
		}
	}
}

// IdleWaiters has many places wait for some names, and wants one statement now and then for all of them.
func IdleWaiters(t *testing.T, db Database, d driver.Driver) {
	var places []driver.Place
	for i := range 20 {
		if err := Try(t.Context(), d, hold(fmt.Sprint("idle ", i), 200+i)); err != nil {
			t.Fatal(err)
		}
		for j := range 10 {
			r := driver.Request{Hold: hold(fmt.Sprint("idle ", i), 1000+100*i+j), Wait: true, Notify: func(driver.Signal) {}}
			p, err := d.Enter(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Try(t.Context(), 1); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("a name that is taken: %v", err)
			}
			places = append(places, p)
		}
	}
	questions := func() int {
		var name string
		var n int
		if err := db.DB.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	time.Sleep(time.Second) // the pause between two looks has grown
	before := questions()
	time.Sleep(2 * time.Second)
	n := questions() - before
	t.Logf("%d places that wait for 20 names cost %d statements in 2s", len(places), n)
	if n < 4 || n > 60 {
		t.Errorf("%d statements in 2s: want about 20", n)
	}
	for _, p := range places {
		if err := p.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i := range 20 {
		if err := d.Release(t.Context(), hold(fmt.Sprint("idle ", i), 200+i), driver.End{}); err != nil {
			t.Error(err)
		}
	}
}
