//go:build maven

// Package interop tests shedlock beside ShedLock itself, which Maven brings: make interop-shedlock. It is not among the
// tests that need nothing but Debian's packages; there the peer is a program that does what ShedLock is documented to do.
package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

var classpath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "shedlock")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		classpath = filepath.Join(dir, "*") + ":" + dir
		for _, c := range [][]string{
			{"mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=" + dir},
			{"javac", "-cp", classpath, "-d", dir, "Peer.java"},
		} {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v (install a JDK of version 17 or later, and maven)\n%s", c[0], err, out)
				return 1
			}
		}
		return m.Run()
	}())
}

type peer struct {
	t   *testing.T
	in  io.Writer
	out chan string
}

func startPeer(t *testing.T, db rowtest.Database, clock, zone string) *peer {
	t.Helper()
	var location, user, password string
	if u, _ := url.Parse(db.URL); db.Server != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
		scheme := map[sqllock.Dialect]string{sqllock.PostgreSQL: "jdbc:postgresql://", sqllock.MySQL: "jdbc:mariadb://"}[db.Dialect]
		location = scheme + u.Host + u.Path
	} else {
		location = "jdbc:sqlite:" + u.Path
	}
	cmd := exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Peer", location, user, password, clock)
	cmd.Env = append(os.Environ(), "TZ="+zone)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &peer{t, in, make(chan string, 10)}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(p.out)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.out <- s.Text()
		}
	})
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		wg.Wait()
		cmd.Wait()
	})
	if got := p.hear(); got != "ready" {
		t.Fatalf("the peer says %q", got)
	}
	return p
}

func (p *peer) hear() string {
	p.t.Helper()
	select {
	case got := <-p.out:
		return got
	case <-time.After(time.Minute):
		p.t.Fatal("the peer says nothing")
		return ""
	}
}

func (p *peer) ask(format string, args ...any) bool {
	p.t.Helper()
	fmt.Fprintf(p.in, format+"\n", args...)
	got := p.hear()
	if got != "true" && got != "false" {
		p.t.Fatalf("the peer says %q", got)
	}
	return got == "true"
}

// The tables are those of ShedLock's documentation.
var tables = map[sqllock.Dialect]string{
	sqllock.PostgreSQL: "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
	sqllock.MySQL:      "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
	sqllock.SQLite:     "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
}

func TestShedLock(t *testing.T) {
	const zone = "America/New_York"
	newYork, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	rowtest.Each(t, func(t *testing.T, db rowtest.Database) {
		db.Exec(t, tables[db.Dialect])
		for clock, opts := range map[string]*shedlock.Options{
			"database": nil,
			"utc":      {ClientClock: time.UTC},
			"zone":     {ClientClock: newYork},
		} {
			if clock == "database" && db.Dialect == sqllock.SQLite {
				continue // ShedLock has no such clock there
			}
			t.Run(clock, func(t *testing.T) {
				share(t, db, startPeer(t, db, clock, zone), shedlock.New(db.DB, db.Dialect, opts), clock)
			})
		}
	})
}

func share(t *testing.T, db rowtest.Database, p *peer, d *shedlock.Driver, prefix string) {
	ctx := t.Context()
	defer d.Close()
	locks := pawl.New(d)
	defer locks.Close()
	count := func(where string) int { return db.Count(t, "SELECT COUNT(*) FROM shedlock WHERE "+where) }

	if db.Dialect == sqllock.SQLite { // ShedLock does not understand the error of a row that somebody else has made
		for _, name := range []string{"first", "second", "kept", "least", "short", "cron"} {
			if !p.ask("lock %s-%s 60000 0", prefix, name) || !p.ask("unlock %s-%s", prefix, name) {
				t.Errorf("ShedLock could not make the row %s", name)
			}
		}
	}

	// Each takes what is free, by inserting the row or by updating it, and not what the other holds.
	first, second := prefix+"-first", prefix+"-second"
	lease, err := locks.Mutex(first).TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if p.ask("lock %s 60000 0", first) {
		t.Error("ShedLock took what pawl holds")
	}
	if !p.ask("lock %s 60000 0", second) {
		t.Error("ShedLock could not take what is free")
	}
	var held *pawl.HeldError
	if _, err := locks.Mutex(second).TryLock(ctx); !errors.As(err, &held) || held.Holder.Label != "vm" || held.Remaining < 20*time.Second || held.Remaining > time.Minute+time.Second {
		t.Errorf("what ShedLock holds: %v, %+v", err, held)
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	if !p.ask("lock %s 60000 0", first) {
		t.Error("ShedLock could not take what pawl has freed")
	}
	got := make(chan error, 1)
	go func() {
		var err error
		if lease, err = locks.Mutex(first).Lock(ctx); err == nil {
			err = lease.Unlock()
		}
		got <- err
	}()
	if !p.ask("extend %s 60000 0", first) {
		t.Error("ShedLock could not extend")
	}
	select {
	case err := <-got:
		t.Errorf("pawl did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if !p.ask("unlock %s", first) || !p.ask("unlock %s", second) {
		t.Error("ShedLock could not unlock")
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if n := count("name = '" + first + "' OR name = '" + second + "'"); n != 2 {
		t.Errorf("%d rows, want the two that stay", n)
	}

	// Both respect the other's minimum.
	if err := locks.With(pawl.Options{MinHold: time.Hour}).Mutex(prefix+"-kept").TryDo(ctx, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if p.ask("lock %s-kept 60000 0", prefix) {
		t.Error("ShedLock took what pawl keeps")
	}
	if !p.ask("lock %s-least 7200000 3600000", prefix) || !p.ask("unlock %s-least", prefix) {
		t.Error("ShedLock could not take and free what is free")
	}
	if err := locks.Mutex(prefix+"-least").TryDo(ctx, func(context.Context) error { return nil }); !errors.Is(err, pawl.ErrHeld) {
		t.Errorf("what ShedLock keeps: %v", err)
	}

	// A hold that ran out is taken, and its late end touches nobody.
	if !p.ask("lock %s-short 100 0", prefix) {
		t.Error("ShedLock could not take what is free")
	}
	if lease, err = locks.Mutex(prefix + "-short").Lock(ctx); err != nil {
		t.Fatal(err)
	}
	defer lease.Unlock()
	p.ask("unlock %s-short", prefix)
	if p.ask("lock %s-short 60000 0", prefix) {
		t.Error("ShedLock freed what pawl holds")
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}

	// A job at each tick: both try at once, and one of them runs it.
	var ours, theirs int
	for tick := range 100 {
		ran, mine := make(chan bool, 1), false
		peer := func() { mine = p.ask("lock %s-cron 7200000 3600000", prefix) && p.ask("unlock %s-cron", prefix) }
		pawl := func() {
			err := locks.With(pawl.Options{MinHold: time.Hour}).Mutex(prefix+"-cron").TryDo(ctx, func(context.Context) error { return nil })
			if err != nil && !errors.Is(err, pawl.ErrHeld) {
				t.Error(err)
			}
			ran <- err == nil
		}
		switch tick % 4 {
		case 0:
			peer()
			pawl()
		case 1:
			pawl()
			peer()
		default:
			go pawl()
			peer()
		}
		switch us := <-ran; {
		case us && mine:
			t.Fatalf("tick %d ran twice", tick)
		case us:
			ours++
		case mine:
			theirs++
		default:
			t.Fatalf("tick %d was not run", tick)
		}
		db.Exec(t, "UPDATE shedlock SET lock_until = locked_at WHERE name = '"+prefix+"-cron'") // an hour goes by
	}
	t.Logf("of 100 ticks pawl ran %d, ShedLock %d", ours, theirs)
}
