package servertest

import (
	"bufio"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/sqllock"
)

var crowdFor = flag.Duration("crowd", 2*time.Second, "how long TestServer/*/crowd lasts")

// TestMain lets the test's program be another process of a test.
func TestMain(m *testing.M) {
	roles := map[string]func() error{"crowd": crowdProcess, "wait": waitProcess}
	if role := roles[os.Getenv("PAWL_ROLE")]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	flag.Set("test.parallel", "8") // the tests wait more than they work
	os.Exit(m.Run())
}

const crowdNames, crowdGoroutines = 4, 200

// crowdProcess locks until its time is over. Under the lock it reads a number and writes the next one, in two statements:
// if two were inside at once, a visit would be missing from the number in the end.
func crowdProcess() error {
	db, err := sql.Open(os.Getenv("PAWL_DRIVER"), os.Getenv("PAWL_DSN"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	d, err := sqllock.Open(context.Background(), os.Getenv("PAWL_URL"), nil)
	if err != nil {
		return err
	}
	locks := pawl.New(d)
	defer locks.Close()
	lasts, err := time.ParseDuration(os.Getenv("PAWL_LASTS"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var visits [crowdNames]atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for g := range crowdGoroutines {
		wg.Go(func() {
			n := g % crowdNames
			m := locks.Mutex(fmt.Sprint("crowd ", n))
			for ctx.Err() == nil && failed.Load() == nil {
				l, err := m.Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						failed.Store(&err)
					}
					return
				}
				var was int64
				err = db.QueryRow(fmt.Sprint("SELECT n FROM visits WHERE k = ", n)).Scan(&was)
				if err == nil {
					_, err = db.Exec(fmt.Sprintf("UPDATE visits SET n = %d WHERE k = %d", was+1, n))
				}
				if err == nil {
					visits[n].Add(1)
					err = l.Err()
				}
				if err != nil {
					failed.Store(&err)
				}
				if err := l.Unlock(); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	for n := range visits {
		fmt.Println(n, visits[n].Load())
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// 200 goroutines in each of 4 processes want 4 names.
func testCrowd(t *testing.T, s product) {
	s.open(t)
	s.exec(t, "CREATE TABLE visits (k INT PRIMARY KEY, n BIGINT)")
	for n := range crowdNames {
		s.exec(t, fmt.Sprintf("INSERT INTO visits VALUES (%d, 0)", n))
	}
	const processes = 4
	var wg sync.WaitGroup
	var visits [crowdNames]atomic.Int64
	for range processes {
		wg.Go(func() {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "PAWL_ROLE=crowd", "PAWL_URL="+s.URL, "PAWL_DRIVER="+s.Driver, "PAWL_DSN="+s.DSN, "PAWL_LASTS="+crowdFor.String())
			var complaints strings.Builder
			c.Stderr = &complaints
			out, err := c.Output()
			if err != nil {
				t.Errorf("a process: %v\n%s", err, complaints.String())
			}
			lines := bufio.NewScanner(strings.NewReader(string(out)))
			for lines.Scan() {
				var n int
				var v int64
				if _, err := fmt.Sscan(lines.Text(), &n, &v); err == nil {
					visits[n].Add(v)
				}
			}
		})
	}
	wg.Wait()
	var total int64
	for n := range crowdNames {
		var got int64
		if err := s.DB().QueryRow("SELECT n FROM visits WHERE k = " + strconv.Itoa(n)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		want := visits[n].Load()
		if got != want || want == 0 {
			t.Errorf("name %d: %d visits were made and %d counted", n, want, got)
		}
		total += want
	}
	t.Logf("%d visits in %v: %.0f/s", total, *crowdFor, float64(total)/crowdFor.Seconds())
}
