package sqllock_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// A reboot ends every hold at once, since its process died with the machine, whatever the new clock says.
func TestReboot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what           string
		boottime, wall time.Duration
	}{
		{"clock begins anew", -30 * 24 * time.Hour, time.Minute},
		{"clock is ahead", time.Second, time.Minute},
		{"wall clock is set back", -time.Hour, -24 * time.Hour},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			file := newFile(t)
			before := open(t, file)
			a := mustGet(t, before, "held", time.Hour)
			waiter := mustAsk(t, before, "held", time.Hour)
			if _, err := waiter.place.Try(within(t, soon), 1); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			kept, expired := mustGet(t, before, "kept", time.Hour), mustGet(t, before, "was kept", time.Hour)
			for a, keep := range map[*asker]time.Duration{kept: 48 * time.Hour, expired: time.Second} {
				if err := before.Release(within(t, soon), a.Hold, driver.End{Keep: keep}); err != nil {
					t.Fatal(err)
				}
			}
			before.Close()

			d := open(t, file)
			d.Elsewhere("another boot", c.boottime, c.wall)
			if r, err := d.Inspect(within(t, soon), "held"); err != nil || len(r.Holds) > 0 {
				t.Errorf("after a reboot Inspect shows %+v, %v", r, err)
			}
			b := mustAsk(t, d, "held", time.Minute)
			if g, err := b.place.Try(within(t, soon), 1); err != nil {
				t.Errorf("a name that was held before the reboot: %v", err)
			} else if g.Token <= a.Token {
				t.Errorf("token %d follows %d", g.Token, a.Token)
			}
			if err := d.Renew(within(t, soon), []driver.Hold{a.Hold})[0]; !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew of a hold of an earlier boot: %v", err)
			}
			held := mustBeHeld(t, d, "kept") // a minimum hold has no process that could have died
			if want := 48*time.Hour - c.wall; held.Remaining > min(want, 48*time.Hour)+time.Minute || held.Remaining < min(want, 48*time.Hour)-time.Hour {
				t.Errorf("%v of a minimum hold are left after a reboot, should be about %v", held.Remaining, min(want, 48*time.Hour))
			}
			if c.wall > 0 {
				mustGet(t, d, "was kept", time.Minute)
			}
		})
	}
}

// Two machines that share a file would end one another's holds: whoever notices stops.
func TestTwoMachines(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d1, d2 := open(t, file), open(t, file)
	d2.Elsewhere("another machine", 0, 0)
	mustGet(t, d1, "x", driver1m)
	mustBeHeld(t, d1, "x")
	mustGet(t, d2, "y", driver1m)
	err := try(t, d1, "z")
	if err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("Try while another machine uses the file: %v", err)
	}
}

// Tokens rise although rows are deleted, the wall clock is set back, and the latest commits are lost in a power loss.
func TestTokensRise(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	last := int64(0)
	rises := func(what string, d *sqllock.Driver, name string) *asker {
		t.Helper()
		a := mustGet(t, d, name, driver1m)
		if a.Token <= last {
			t.Errorf("%s: token %d follows %d", what, a.Token, last)
		}
		last = max(last, a.Token)
		return a
	}
	d := open(t, file)
	mustRelease(t, d, rises("first", d, "x"))
	mustRelease(t, d, rises("after a release", d, "x"))
	d.Elsewhere("", 0, -240*time.Hour)
	mustRelease(t, d, rises("with the wall clock set back", d, "x"))
	mustRelease(t, d, rises("and again", d, "x"))

	p, err := ask(within(t, soon), d, "x", driver1m, false)
	if err != nil {
		t.Fatal(err)
	}
	g, err := p.place.Try(within(t, soon), 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	last = g.Token + int64(g.Span) - 1 // all may have been used
	d.Elsewhere("", time.Hour, 0)
	mustRelease(t, d, mustGet(t, d, "y", driver1m)) // which sweeps
	if n := count(t, file, "SELECT COUNT(*) FROM pawl_lock"); n != 0 {
		t.Errorf("%d rows are left of dead holds", n)
	}
	mustRelease(t, d, rises("after a sweep", d, "x"))
	d.Close()

	// What a power loss may undo are commits after the horizon was flushed.
	exec1(t, file, "DELETE FROM pawl_lock; UPDATE pawl_lock_state SET floor = 0")
	d = open(t, file)
	d.Elsewhere("after a power loss", 0, -240*time.Hour)
	rises("after a power loss", d, "x")
	d.Close()

	exec1(t, file, "DELETE FROM pawl_lock_state")
	rises("without the state row", open(t, file), "x2")
}

func count(t *testing.T, file, query string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// What dead processes left is swept by whoever comes next, a few rows at a time, and what lives is left alone.
func TestSweep(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	d := open(t, file)
	const dead, live = 1000, 100
	for i := range dead + live {
		ttl := time.Hour
		if i%((dead+live)/live) == 0 {
			ttl = 10 * time.Hour
		}
		if err := tryFor(t, d, fmt.Sprintf("name %04d", i), ttl); err != nil {
			t.Fatal(err)
		}
	}
	rows := func() int { return count(t, file, "SELECT COUNT(*) FROM pawl_lock") }
	before := rows()
	d.Elsewhere("", 2*time.Hour, 0)
	for steps := 0; rows() > live; steps++ {
		if steps > (dead+live)/200+3 {
			t.Fatalf("%d rows of %d are left after %d sweeps, %d are live", rows(), before, steps, live)
		}
		d.Elsewhere("", 2*time.Second, 0)
		n := rows()
		a := mustGet(t, d, "other", driver1m)
		if swept := n + 1 - rows(); swept > 201 {
			t.Errorf("one request swept %d rows", swept)
		}
		mustRelease(t, d, a)
	}
	if n := rows(); n != live {
		t.Errorf("%d rows are left of %d live holds", n, live)
	}
}

func tryFor(t *testing.T, d driver.Driver, name string, ttl time.Duration) error {
	t.Helper()
	a, err := ask(within(t, soon), d, name, ttl, false)
	if err != nil {
		return err
	}
	a.TTL = ttl
	_, err = a.place.Try(within(t, soon), 1)
	return err
}
