package servertest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// tap is all that was sent to a server, as text.
type tap struct {
	mu  sync.Mutex
	all []string
}

func (p *tap) note(query string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range args {
		query += fmt.Sprintf("\n%s %v", a, a) // bytes as text as well
	}
	p.all = append(p.all, query)
}

func (p *tap) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

// about is how many of the statements up to now name a lock.
func (p *tap) about(name string) (n int) {
	for _, s := range p.take() {
		if strings.Contains(s, name) || strings.Contains(s, fmt.Sprintf("%x", name)) {
			n++
		}
	}
	return n
}

func (p *tap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	p.note(d.SQL, d.Args...)
	return ctx
}

func (p *tap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

type tapConnector struct {
	sqldriver.Connector
	*tap
}

type tapConn struct {
	sqldriver.Conn
	*tap
}

func (c tapConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return tapConn{conn, c.tap}, err
}

func (c tapConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.note(query)
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, args)
}

func (c tapConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.note(query)
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
}

func (c tapConn) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c.Conn.(sqldriver.ConnBeginTx).BeginTx(ctx, opts)
}

// tapped is a driver on a pool of its own, and what it sends.
func (s product) tapped(t testing.TB) (*sqllock.Driver, *tap) {
	t.Helper()
	p := new(tap)
	var db *sql.DB
	if s.dialect == sqllock.PostgreSQL {
		config, err := pgx.ParseConfig(s.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.Tracer = p
		db = stdlib.OpenDB(*config)
	} else {
		config, err := mysql.ParseDSN(s.DSN)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mysql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		db = sql.OpenDB(tapConnector{c, p})
	}
	t.Cleanup(func() { db.Close() })
	return s.on(t, db, nil), p
}

// Which commits PostgreSQL need not flush before it answers: those of releases, unless they leave a minimum hold or a hold whose
// time would be long.
func testLight(t *testing.T, s product) {
	if s.dialect != sqllock.PostgreSQL {
		return
	}
	d, sent := s.tapped(t)
	light := func() bool { return strings.Contains(strings.Join(sent.take(), "\n"), "\noff off") }
	cycle := func(name string, ttl time.Duration, end driver.End) (taken, released bool) {
		sent.take()
		c := mustTake(t, d, name, ttl)
		taken = light()
		if err := d.Release(within(t, soon), c.Hold, end); err != nil {
			t.Fatal(err)
		}
		return taken, light()
	}
	for _, c := range []struct {
		name  string
		ttl   time.Duration
		end   driver.End
		light bool
	}{{"short", 30 * time.Second, driver.End{}, true}, {"long", 2 * time.Minute, driver.End{}, false}, {"kept", 30 * time.Second, driver.End{Keep: time.Minute}, false}} {
		settle(t, c.name, func() bool { // the row must be known, and on a busy machine guesses are wrong now and then
			if c.end.Keep > 0 {
				c.name += "."
			}
			taken, released := cycle(c.name, c.ttl, c.end)
			if taken || released && !c.light {
				t.Errorf("%s: taken without a flush: %v; released without one: %v", c.name, taken, released)
			}
			return released == c.light
		})
	}
	// A waiter is told as usual.
	a := mustTake(t, d, "wanted", 30*time.Second)
	b := mustWait(t, s.open(t), "wanted", time.Minute)
	sent.take()
	mustRelease(t, d, a)
	if !light() {
		t.Error("released with a flush, though somebody waits")
	}
	if err := b.get(within(t, soon)); err != nil {
		t.Error(err)
	}
}

// How many statements a lock takes: one to take a name that nobody else uses and one to give it back; and when a waiter of
// another process is told by PostgreSQL, one to call it, once each knows that the other wants the name too, and one to take it.
func testStatements(t *testing.T, s product) {
	d, sent := s.tapped(t)
	mustRelease(t, d, mustTake(t, d, "cycle", time.Minute))                          // now it knows the row
	settle(t, "ten times taken and given back with twenty statements", func() bool { // a busy machine guesses wrong now and then
		sent.take()
		for range 10 {
			mustRelease(t, d, mustTake(t, d, "cycle", time.Minute))
		}
		return sent.about("cycle") == 20
	})
	held := mustTake(t, d, "renewed", time.Minute)
	settle(t, "ten renewals with ten statements", func() bool {
		sent.take()
		for range 10 {
			if err := renew(t, d, held); err != nil {
				t.Fatal(err)
			}
		}
		return sent.about("renewed") == 10
	})
	if s.dialect != sqllock.PostgreSQL {
		return
	}
	other, heard := s.tapped(t)
	settle(t, "handed over with two statements", func() bool {
		a := mustTake(t, d, "passed on", time.Minute)
		b := mustWait(t, other, "passed on", time.Minute)
		settle(t, "it listens", func() bool { return other.Waiting() == "notifications" })
		sent.take()
		mustRelease(t, d, a)
		released := sent.about("passed on")
		select {
		case <-b.news:
		case <-time.After(soon):
			t.Fatal("the waiter was not told")
		}
		heard.take()
		if err := b.get(within(t, soon)); err != nil {
			t.Fatal(err)
		}
		taken := heard.about("passed on")
		mustRelease(t, other, b)
		return released == 1 && taken == 1
	})
}
