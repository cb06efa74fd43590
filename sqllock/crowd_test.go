package sqllock_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/sqllock"
)

var crowdFor = flag.Duration("crowd", 2*time.Second, "how long TestCrowd lasts")

const crowdNames, crowdGoroutines, crowdProcesses = 4, 200, 4

// childCrowd locks until its time is over. Under the lock it reads a number from a file and writes the next one: if two were
// inside at once, a visit would be missing from the number in the end.
func childCrowd(args []string) error {
	file, counter := args[0], args[1]
	lasts, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	d, err := sqllock.Open(context.Background(), "sqlite://"+file, nil)
	if err != nil {
		return err
	}
	locks := pawl.New(d)
	defer locks.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var visits [crowdNames]atomic.Int64
	var failed atomic.Pointer[error]
	visit := func(n int) error {
		l, err := locks.Mutex(fmt.Sprint("crowd ", n)).Lock(ctx)
		if err != nil {
			return err
		}
		defer l.Unlock()
		text, err := os.ReadFile(counter + strconv.Itoa(n))
		if err != nil {
			return err
		}
		was, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := os.WriteFile(counter+strconv.Itoa(n), fmt.Append(nil, was+1), 0o600); err != nil {
			return err
		}
		visits[n].Add(1)
		return l.Err()
	}
	var wg sync.WaitGroup
	for g := range crowdGoroutines {
		wg.Go(func() {
			for ctx.Err() == nil && failed.Load() == nil {
				if err := visit(g % crowdNames); err != nil && ctx.Err() == nil {
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
func TestCrowd(t *testing.T) {
	t.Parallel()
	file := newFile(t)
	open(t, file)
	counter := filepath.Join(filepath.Dir(file), "visits")
	for n := range crowdNames {
		if err := os.WriteFile(counter+strconv.Itoa(n), []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all []*child
	for range crowdProcesses {
		all = append(all, startChild(t, "crowd", file, counter, crowdFor.String()))
	}
	var want [crowdNames]int
	for _, c := range all {
		out, _ := io.ReadAll(c.out)
		if err := c.Wait(); err != nil {
			t.Errorf("a process: %v: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			var n, v int
			if _, err := fmt.Sscan(line, &n, &v); err == nil {
				want[n] += v
			}
		}
	}
	total := 0
	for n := range want {
		text, err := os.ReadFile(counter + strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := strconv.Atoi(string(text)); got != want[n] || got == 0 {
			t.Errorf("name %d: %d visits were made and %d counted", n, want[n], got)
		}
		total += want[n]
	}
	t.Logf("%d visits in %v: %.0f/s", total, *crowdFor, float64(total)/crowdFor.Seconds())
}
