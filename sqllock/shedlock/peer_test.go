package shedlock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/internal/row/rowtest"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

// The tests run themselves as the other service: a process that does to the table what ShedLock 7 is documented to do, with
// statements of its own, its own clock and zone. Package interop does the same with ShedLock itself.
func TestMain(m *testing.M) {
	if dsn := os.Getenv("PAWL_PEER_DSN"); dsn != "" {
		servePeer(os.Getenv("PAWL_PEER_DRIVER"), dsn, os.Getenv("PAWL_PEER_CLOCK") == "database")
		return
	}
	os.Exit(m.Run())
}

// peer is the other service's process. It names each hold "vm", as ShedLock names all of a host.
type peer struct {
	t   *testing.T
	in  io.Writer
	out chan string
}

func startPeer(t *testing.T, db rowtest.Database, clock string) *peer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PAWL_PEER_DSN="+db.Server.DSN, "PAWL_PEER_DRIVER="+db.Server.Driver, "PAWL_PEER_CLOCK="+clock, "TZ=America/New_York")
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
		wg.Wait()
		cmd.Wait()
	})
	return p
}

// ask sends a command: lock NAME MOST LEAST, extend NAME MOST, unlock NAME. The answer is true or false.
func (p *peer) ask(format string, args ...any) bool {
	p.t.Helper()
	fmt.Fprintf(p.in, format+"\n", args...)
	select {
	case got := <-p.out:
		if got != "true" && got != "false" {
			p.t.Fatalf("the peer says %q", got)
		}
		return got == "true"
	case <-time.After(30 * time.Second):
		p.t.Fatal("the peer says nothing")
		return false
	}
}

func testPeers(t *testing.T, db rowtest.Database) {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for clock, opts := range map[string]*shedlock.Options{
		"database": {Table: "shedlock"},
		"client":   {Table: "shedlock", ClientClock: newYork},
	} {
		t.Run(clock, func(t *testing.T) {
			if db.Dialect == sqllock.MySQL { // as ShedLock's documentation has it
				db.Exec(t, "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))")
			} else {
				create(t, db, opts)
			}
			testPeer(t, db, startPeer(t, db, clock), open(t, db.URL, opts), clock+"-")
		})
	}
}

func testPeer(t *testing.T, db rowtest.Database, p *peer, d *shedlock.Driver, prefix string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	locks := pawl.New(d)
	defer locks.Close()

	// Pawl has it, then the peer, then pawl again.
	job := prefix + "job"
	lease, err := locks.Mutex(job).TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if p.ask("lock %s 60000 0", job) {
		t.Error("the peer took what pawl holds")
	}
	if p.ask("extend %s 60000", job) || p.ask("unlock %s", job) {
		t.Error("the peer touched what it does not hold")
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	if !p.ask("lock %s 60000 0", job) {
		t.Error("the peer could not take what is free")
	}
	var held *pawl.HeldError
	if _, err := locks.Mutex(job).TryLock(ctx); !errors.As(err, &held) || held.Holder.Label != "vm" || held.Remaining <= 30*time.Second || held.Remaining > time.Minute {
		t.Errorf("what the peer holds: %v, %+v", err, held)
	}
	waiting := make(chan error, 1)
	go func() {
		l, err := locks.Mutex(job).Lock(ctx)
		if err == nil {
			lease = l
		}
		waiting <- err
	}()
	select {
	case err := <-waiting:
		t.Errorf("pawl did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if !p.ask("extend %s 60000", job) || !p.ask("unlock %s", job) {
		t.Error("the peer lost what it held")
	}
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	mark := mark(db)
	if n := db.Count(t, "SELECT COUNT(*) FROM shedlock WHERE name = "+mark+" AND locked_at <= lock_until", job); n != 1 {
		t.Errorf("%d rows of the job: want the one that stays", n)
	}

	// A minimum hold keeps the peer out, and the peer's keeps pawl out.
	if err := locks.With(pawl.Options{MinHold: time.Hour}).Mutex(prefix+"least").TryDo(ctx, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if p.ask("lock %sleast 60000 0", prefix) {
		t.Error("the peer took what pawl keeps")
	}
	if !p.ask("lock %sleast2 7200000 3600000", prefix) || !p.ask("unlock %sleast2", prefix) {
		t.Error("the peer could not take and free what is free")
	}
	if err := locks.Mutex(prefix+"least2").TryDo(ctx, func(context.Context) error { return nil }); !errors.Is(err, pawl.ErrHeld) {
		t.Errorf("what the peer keeps: %v", err)
	}

	// A hold of the peer's that ran out is taken; its late release touches nobody.
	if !p.ask("lock %sshort 50 0", prefix) {
		t.Error("the peer could not take what is free")
	}
	lease, err = locks.With(pawl.Options{TTL: 3 * time.Second}).Mutex(prefix + "short").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if p.ask("extend %sshort 60000", prefix) || p.ask("unlock %sshort", prefix) {
		t.Error("the peer touched what it lost")
	}
	if lease.Err() != nil {
		t.Errorf("the lease: %v", lease.Err())
	}

	// Whoever frees by the name alone, as ShedLock before 7 does by the client's clock, ends pawl's hold. It is told.
	db.Exec(t, "UPDATE shedlock SET lock_until = locked_at WHERE name = "+mark, prefix+"short")
	select {
	case <-lease.Done():
	case <-time.After(20 * time.Second):
		t.Error("the loss was not noticed")
	}
	if !p.ask("lock %sshort 60000 0", prefix) {
		t.Error("the peer could not take what was freed")
	}
	lease.Unlock()
	if p.ask("lock %sshort 60000 0", prefix) {
		t.Error("the loser freed what is another's")
	}

	// A job at each tick: both try at once, and one runs it, as long as the minimum hold outlasts the tick's start.
	ticks := 40
	var ours, theirs int
	for tick := range ticks {
		ran, mine := make(chan bool, 1), false
		peer := func() { mine = p.ask("lock %scron 7200000 3600000", prefix) && p.ask("unlock %scron", prefix) }
		pawl := func() {
			err := locks.With(pawl.Options{MinHold: time.Hour}).Mutex(prefix+"cron").TryDo(ctx, func(context.Context) error { return nil })
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
		db.Exec(t, "UPDATE shedlock SET lock_until = locked_at WHERE name = "+mark, prefix+"cron") // an hour goes by
	}
	t.Logf("of %d ticks pawl ran %d, the peer %d", ticks, ours, theirs)

	// What the row has no room for is refused at once.
	if err := locks.Schedule(prefix+"schedule", time.Second).Run(ctx, func(context.Context) error { return nil }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Schedule: %v", err)
	}
	if _, err := d.Enter(ctx, driver.Request{Hold: driver.Hold{Kind: driver.Fair, Name: "x", ID: "x"}}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a fair lock: %v", err)
	}
}

// servePeer is the peer's process.
func servePeer(name, dsn string, database bool) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	seen, since := make(map[string]bool), make(map[string]time.Time) // the rows it knows, and the end of each minimum
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		var verb, job string
		var most, least int64
		fmt.Sscan(s.Text(), &verb, &job, &most, &least)
		begun := time.Now().Truncate(time.Millisecond)
		wall := func(t time.Time) string { return "TIMESTAMP '" + t.Format("2006-01-02 15:04:05.000") + "'" }
		now := wall(begun)
		until := wall(begun.Add(time.Duration(most) * time.Millisecond))
		atLeast := wall(since[job])
		same := fmt.Sprintf("name = '%s' AND locked_by = 'vm'", job)
		switch {
		case database && name == "mysql":
			now = "UTC_TIMESTAMP(3)"
			until = fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d * 1000, %s)", most, now)
			atLeast = fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d * 1000, locked_at)", since[job].UnixMilli())
		case database:
			now = "timezone('utc', CURRENT_TIMESTAMP)"
			until = fmt.Sprintf("%s + interval '%d milliseconds'", now, most)
			atLeast = fmt.Sprintf("locked_at + interval '%d milliseconds'", since[job].UnixMilli())
		}
		var statements []string
		switch verb {
		case "lock":
			insert := fmt.Sprintf("INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('%s', %s, %s, 'vm')", job, until, now)
			set := fmt.Sprintf("SET lock_until = %s, locked_at = %s, locked_by = 'vm' WHERE", until, now)
			switch {
			case name == "pgx" && !seen[job]:
				statements = []string{fmt.Sprintf("INSERT %s ON CONFLICT (name) DO UPDATE %s shedlock.lock_until <= %s", insert, set, now)}
			case !seen[job]:
				statements = []string{"INSERT IGNORE " + insert, fmt.Sprintf("UPDATE shedlock %s name = '%s' AND lock_until <= %s", set, job, now)}
			default:
				statements = []string{fmt.Sprintf("UPDATE shedlock %s name = '%s' AND lock_until <= %s", set, job, now)}
			}
			seen[job] = true
		case "extend":
			statements = []string{fmt.Sprintf("UPDATE shedlock SET lock_until = %s WHERE %s AND lock_until > %s", until, same, now)}
		case "unlock":
			statements = []string{fmt.Sprintf("UPDATE shedlock SET lock_until = CASE WHEN %[1]s > %[2]s THEN %[1]s ELSE %[2]s END WHERE %[3]s", atLeast, now, same)}
		}
		done := false
		for _, statement := range statements {
			r, err := db.Exec(statement)
			if err != nil {
				fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "), statement)
				return
			}
			if n, _ := r.RowsAffected(); n > 0 {
				done = true
				break
			}
		}
		if done && verb == "lock" {
			if since[job] = begun.Add(time.Duration(least) * time.Millisecond); database {
				since[job] = time.UnixMilli(least)
			}
		}
		fmt.Println(done)
	}
}
