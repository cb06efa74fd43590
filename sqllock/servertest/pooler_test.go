package servertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// testPooler is everything behind a pooler in transaction mode, which gives each statement another session of the server,
// and a client that goes around it. The clients do not know of the pooler: they keep statements prepared in their sessions,
// as pgx does unless it is told otherwise.
func testPooler(t *testing.T, s product) {
	if s.dialect != sqllock.PostgreSQL {
		return
	}
	direct := s.open(t)
	pooler := sqltest.StartPgBouncer(t, s.Server, "default_pool_size = 3")
	behind := product{pooler, s.dialect, s.table}
	d1, d2 := behind.open(t), behind.open(t)
	exchange(t, d1, d2)
	exchange(t, d1, direct)
	exchange(t, direct, d2)

	holder := mustTake(t, direct, "waited for", time.Minute)
	c := mustWait(t, d1, "waited for", time.Minute)
	settle(t, "it polls, and says why", func() bool { return knowsPooler(d1) })
	mustRelease(t, direct, holder)
	if err := c.get(within(t, soon)); err != nil {
		t.Errorf("who polls: %v", err)
	}
	mustRelease(t, d1, c)
}

func knowsPooler(d *sqllock.Driver) bool {
	got := d.Waiting()
	return strings.HasPrefix(got, "polling: ") && strings.Contains(got, "pooler")
}

// What a driver told itself once, and what came to another of its connections since there is one session for all of them,
// does not count the next time.
func testPoolerAgain(t *testing.T, s product) {
	if s.dialect != sqllock.PostgreSQL {
		return
	}
	mustTake(t, s.open(t), "waited for", time.Minute)
	d := product{sqltest.StartPgBouncer(t, s.Server, "default_pool_size = 1"), s.dialect, s.table}.open(t)
	for range 2 {
		c := mustWait(t, d, "waited for", time.Minute)
		settle(t, "it polls, and says why", func() bool { return knowsPooler(d) })
		if err := c.place.Leave(within(t, soon)); err != nil {
			t.Fatal(err)
		}
		settle(t, "nobody waits", func() bool { return strings.Contains(d.Waiting(), "nobody waits") })
	}
}

// testPgx is a pool of pgx without database/sql.
func testPgx(t *testing.T, s product) {
	if s.dialect != sqllock.PostgreSQL {
		return
	}
	open := func(most int) (*sqllock.Driver, *pgxpool.Pool) {
		config, err := pgxpool.ParseConfig(s.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns = int32(most)
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		d := sqllock.NewPgx(pool, &sqllock.Options{Table: s.table})
		t.Cleanup(func() { d.Close() })
		if err := d.CreateSchema(within(t, soon)); err != nil {
			t.Fatal(err)
		}
		return d, pool
	}
	d1, pool := open(8)
	d2, _ := open(1)
	exchange(t, d1, d2)
	exchange(t, d2, s.open(t))
	exchange(t, s.open(t), d1)

	holder := mustTake(t, s.open(t), "waited for", time.Minute)
	a, b := mustWait(t, d1, "waited for", time.Minute), mustWait(t, d2, "waited for", time.Minute)
	settle(t, "a pool with room listens", func() bool { return d1.Waiting() == "notifications" })
	settle(t, "a pool of one polls", func() bool { return strings.Contains(d2.Waiting(), "pool allows less than 3") })
	for i := range 20 { // the pool is free for others all the time
		if _, err := pool.Exec(within(t, soon), fmt.Sprint("SELECT ", i)); err != nil {
			t.Errorf("a query of the caller: %v", err)
		}
	}
	if n := pool.Stat().AcquiredConns(); n > 1 {
		t.Errorf("%d connections are in use while one place waits", n)
	}
	mustRelease(t, d1, holder)
	if err := a.get(within(t, soon)); err != nil {
		t.Errorf("the first in line: %v", err)
	}
	mustRelease(t, d1, a)
	if err := b.get(within(t, soon)); err != nil {
		t.Errorf("the second in line: %v", err)
	}
	if err := d1.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	settle(t, "Close gives all connections back", func() bool { return pool.Stat().AcquiredConns() == 0 })
	var listening int
	if err := pool.QueryRow(within(t, soon), "SELECT COUNT(*) FROM pg_listening_channels()").Scan(&listening); err != nil || listening > 0 {
		t.Errorf("Close closed the caller's pool, or left a listener: %d, %v", listening, err)
	}

	none := sqllock.NewPgx(nil, nil)
	mustSay(t, "no pool", try(t, none, "x"), "nil *pgxpool.Pool")
	gone, pool := open(2)
	pool.Close()
	mustSay(t, "a closed pool", try(t, gone, "x"), "closed pool")
}
