package servertest

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// waiting is a process that waits for a name each time it is told to.
type waiting struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// waits starts one, with a pool of that many connections.
func (s product) waits(t testing.TB, connections int) *waiting {
	t.Helper()
	w := &waiting{Cmd: exec.Command(os.Args[0])}
	w.Env = append(os.Environ(), "PAWL_ROLE=wait", "PAWL_DRIVER="+s.Driver, "PAWL_DSN="+s.DSN, "PAWL_TABLE="+s.table,
		fmt.Sprint("PAWL_DIALECT=", uint8(s.dialect)), fmt.Sprint("PAWL_CONNECTIONS=", connections))
	w.Stderr = os.Stderr
	var err error
	if w.in, err = w.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewReader(out)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.in.Close()
		w.Wait()
	})
	return w
}

func (w *waiting) line(t testing.TB) string {
	t.Helper()
	silent := time.AfterFunc(2*soon, func() { w.Process.Kill() })
	defer silent.Stop()
	line, err := w.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the process that waits has ended, or said nothing for %v: %v", 2*soon, err)
	}
	return strings.TrimSpace(line)
}

// waitProcess reads names. For each it says when it is in line and how it waits, then at which instant it got in, and then
// that it has released again.
func waitProcess() error {
	ctx := context.Background()
	db, err := sql.Open(os.Getenv("PAWL_DRIVER"), os.Getenv("PAWL_DSN"))
	if err != nil {
		return err
	}
	defer db.Close()
	connections, err := strconv.Atoi(os.Getenv("PAWL_CONNECTIONS"))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	dialect, err := strconv.Atoi(os.Getenv("PAWL_DIALECT"))
	if err != nil {
		return err
	}
	d := sqllock.New(db, sqllock.Dialect(dialect), &sqllock.Options{Table: os.Getenv("PAWL_TABLE")})
	defer d.Close()
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		c, err := ask(ctx, d, names.Text(), time.Minute, true)
		if err != nil {
			return err
		}
		if _, err := c.place.Try(ctx, 1); err == nil {
			return fmt.Errorf("%q should have been held", names.Text())
		}
		for strings.Contains(d.Waiting(), "nobody waits") || d.Waiting() == "polling" && dialect == int(sqllock.PostgreSQL) {
			time.Sleep(time.Millisecond)
		}
		fmt.Println(d.Waiting())
		<-c.news
		if err := c.get(ctx); err != nil {
			return err
		}
		fmt.Println(int64(driver.Now()))
		if err := d.Release(ctx, c.Hold, driver.End{}); err != nil {
			return err
		}
		fmt.Println("released")
	}
	return nil
}

// BenchmarkHandover is the time from before a Release to the grant in another process that waits, for each way of waiting,
// and what that costs while nothing happens. In the same minute, and after the same rest, since a disk that has rested takes
// longer, it measures what one bare statement takes with its commit; and how soon somebody hears who waits for the server's
// own lock on a connection of his own, which would be a way of waking others.
func BenchmarkHandover(b *testing.B) {
	both(b, func(b *testing.B, s product) {
		for _, connections := range []int{10, 2} {
			if s.dialect == sqllock.MySQL && connections == 2 {
				continue // it polls in any case
			}
			b.Run(fmt.Sprintf("pool-of-%d", connections), func(b *testing.B) { s.handOver(b, connections) })
		}
	})
}

func (s product) handOver(b *testing.B, connections int) {
	s.table = fmt.Sprint("pool", connections)
	d := s.open(b)
	db := s.DB()
	db.SetMaxOpenConns(1)
	s.exec(b, "CREATE TABLE IF NOT EXISTS bare (k INT PRIMARY KEY, n INT)")
	s.exec(b, "DELETE FROM bare")
	s.exec(b, "INSERT INTO bare VALUES (1, 0)")
	w := s.waits(b, connections)
	ring := s.doorbell(b)
	var bare, passed, slept, rung []time.Duration
	way := ""
	for i := range b.N + 10 {
		a := mustTake(b, d, "x", time.Minute)
		fmt.Fprintln(w.in, "x")
		way = w.line(b)
		rest := 20 * time.Millisecond
		if i%10 == 9 {
			rest = 500 * time.Millisecond
		}
		time.Sleep(rest)
		begun := time.Now()
		if _, err := db.Exec("UPDATE bare SET n = n + 1 WHERE k = 1"); err != nil {
			b.Fatal(err)
		}
		if i%10 != 9 {
			bare = append(bare, time.Since(begun))
		}
		time.Sleep(rest)
		released := driver.Now()
		mustRelease(b, d, a)
		at, err := strconv.ParseInt(w.line(b), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		if took := driver.Instant(at).Sub(released); i%10 == 9 {
			slept = append(slept, took)
		} else {
			passed = append(passed, took)
		}
		w.line(b) // it has released
		rung = append(rung, ring())
	}
	a := mustTake(b, d, "x", time.Minute)
	fmt.Fprintln(w.in, "x")
	w.line(b)
	time.Sleep(3 * time.Second)
	b.ReportMetric(s.rate(b, 4*time.Second), "idle-statements/s")
	mustRelease(b, d, a)
	b.Log(way)
	b.ReportMetric(float64(median(bare).Microseconds()), "bare-µs")
	b.ReportMetric(float64(median(passed).Microseconds()), "handover-µs")
	b.ReportMetric(float64(median(slept).Microseconds()), "after-500ms-µs")
	b.ReportMetric(float64(median(rung).Microseconds()), "server-lock-µs")
	b.ReportMetric(float64(median(passed))/float64(median(bare)), "×bare")
	b.ReportMetric(0, "ns/op")
}

// doorbell measures how long after the end of one connection's lock another has it that waits.
func (s product) doorbell(b *testing.B) func() time.Duration {
	ctx := context.Background()
	db := s.pool(b, "") // which ends with this measurement, and the locks with it
	var conns [2]*sql.Conn
	for i := range conns {
		c, err := db.Conn(ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		conns[i] = c
	}
	get, put := "SELECT GET_LOCK('bell', 10)", "DO RELEASE_LOCK('bell')"
	if s.dialect == sqllock.PostgreSQL {
		get, put = "SELECT pg_advisory_lock(8)", "SELECT pg_advisory_unlock(8)"
	}
	must := func(c *sql.Conn, statement string) {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			b.Error(err)
		}
	}
	must(conns[0], get)
	return func() time.Duration {
		heard := make(chan time.Time, 1)
		go func() {
			must(conns[1], get)
			heard <- time.Now()
		}()
		time.Sleep(5 * time.Millisecond)
		begun := time.Now()
		must(conns[0], put)
		took := (<-heard).Sub(begun)
		conns[0], conns[1] = conns[1], conns[0]
		return took
	}
}
