package servertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// count is one number that the server answers.
func (s product) count(t testing.TB, query string) (n int) {
	t.Helper()
	db := s.pool(t, "")
	defer db.Close()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Rows of names that nobody uses any more are deleted by whoever works next, tokens rise all the same, and what is in use
// stays.
func testSweep(t *testing.T, s product) {
	const dead = 700
	d := s.open(t)
	held := mustTake(t, d, "held", time.Hour)
	waiter := mustWait(t, d, "held", time.Hour)
	high, err := ask(within(t, soon), d, "name 7", time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	g, err := high.place.Try(within(t, soon), 1_000_000_000) // beyond the clock by a quarter of an hour
	if err != nil {
		t.Fatal(err)
	}
	last := g.Token + int64(g.Span) - 1
	if err := d.Release(within(t, soon), high.Hold, driver.End{Last: last}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range dead {
		wg.Go(func() {
			c, err := take(within(t, 3*soon), d, fmt.Sprint("name ", i), time.Minute)
			if err == nil {
				err = d.Release(within(t, 3*soon), c.Hold, driver.End{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	before := s.count(t, "SELECT COUNT(*) FROM "+s.table)
	s.exec(t, "UPDATE "+s.table+" SET changed = changed - 3600000000")
	d2 := s.open(t)
	settle(t, "the dead rows are gone", func() bool {
		mustRelease(t, d2, mustTake(t, d2, "now", time.Minute))
		return s.count(t, "SELECT COUNT(*) FROM "+s.table) <= 2
	})
	if before < dead {
		t.Errorf("there were only %d rows", before)
	}
	if err := renew(t, d, held); err != nil {
		t.Errorf("Renew of what was held all the time: %v", err)
	}
	mustRelease(t, d, held)
	if err := waiter.get(within(t, soon)); err != nil {
		t.Errorf("who waited all the time: %v", err)
	}
	if c := mustTake(t, d2, "name 7", time.Minute); c.Token <= last {
		t.Errorf("token %d follows %d, whose row was deleted", c.Token, last)
	}
}

// statements asks how many statements the server has run.
func (s product) statements() string {
	if s.dialect == sqllock.PostgreSQL {
		return "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
	}
	return "SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN ('COM_SELECT', 'COM_INSERT', 'COM_UPDATE')"
}

// rate is how many statements a second the server runs over some time.
func (s product) rate(t testing.TB, over time.Duration) float64 {
	t.Helper()
	from, begun := s.count(t, s.statements()), time.Now()
	time.Sleep(over)
	return float64(s.count(t, s.statements())-from) / time.Since(begun).Seconds()
}

// What waiting costs the server: a few statements a second for a whole process, however many wait.
func testIdle(t *testing.T, s product) {
	limit := 25.0 // ten looks, their signs of life, and this test's own
	if s.dialect == sqllock.PostgreSQL {
		limit = 12
	}
	holder := s.open(t)
	d, sent := s.tapped(t)
	for i := range 100 {
		name := fmt.Sprint("name ", i)
		mustTake(t, holder, name, time.Hour)
		mustWait(t, d, name, time.Hour)
	}
	time.Sleep(2 * time.Second)
	rate := s.rate(t, 3*time.Second)
	t.Logf("100 waiters of one process, %s: %.1f statements/s", d.Waiting(), rate)
	if rate > limit {
		t.Errorf("%.1f statements/s, at most %.0f are right", rate, limit)
	}
	settle(t, "looks without the question whether it lives itself", func() bool {
		sent.take()
		time.Sleep(2 * time.Second)
		all := strings.Join(sent.take(), "\n")
		return strings.Contains(all, ".version") && !strings.Contains(all, "SELECT id FROM")
	})
}

// Renewing all leases of a client takes a read and a write, however many there are.
func testRenewMany(t *testing.T, s product) {
	const many = 600
	d := s.open(t)
	holds := make([]driver.Hold, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			c, err := take(within(t, 3*soon), d, strings.Repeat("long ", i%60)+fmt.Sprint(i), time.Hour)
			if err != nil {
				t.Error(err)
				return
			}
			if i%10 == 0 {
				err = d.Release(within(t, 3*soon), c.Hold, driver.End{})
			}
			if err != nil {
				t.Error(err)
			}
			holds[i] = c.Hold
		})
	}
	wg.Wait()
	begun := time.Now()
	errs := d.Renew(within(t, 3*soon), holds)
	t.Logf("%d renewals in %v", many, time.Since(begun))
	for i, err := range errs {
		if over := i%10 == 0; over != (err == driver.ErrNotHeld) || !over && err != nil {
			t.Errorf("hold %d: %v", i, err)
		}
	}
	var listed []string
	for r, err := range d.List(context.Background(), "long long ") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, r.Name)
	}
	want := 0
	for i, h := range holds {
		if i%10 != 0 && strings.HasPrefix(h.Name, "long long ") {
			want++
			if !slices.Contains(listed, h.Name) {
				t.Errorf("%q is not listed", h.Name)
			}
		}
	}
	if len(listed) != want {
		t.Errorf("%d names are listed, %d would be right", len(listed), want)
	}
}
