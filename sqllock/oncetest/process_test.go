package oncetest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/record"
	"github.com/pawl-lock/pawl/sqllock"
)

// shop is one process of a shop: it takes the requests 0 to n-1 in an order of its own, makes an order for each unless it has been made,
// and prints what was answered.
func shop() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dialect, err := strconv.Atoi(os.Args[2])
	fail(err)
	d := &database{Table: record.Table{Dialect: fence.Dialect(dialect)}}
	d.DB, err = sql.Open(os.Args[3], os.Args[4])
	fail(err)
	store, err := sqllock.Open(context.Background(), os.Args[5], nil)
	fail(err)
	locks := pawl.New(store).With(pawl.Options{TTL: time.Second})
	n, err := strconv.Atoi(os.Args[7])
	fail(err)
	for _, k := range rand.Perm(n) {
		key := os.Args[6] + strconv.Itoa(k)
		o, err := record.OnceInTx(context.Background(), locks, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
			o, err := d.insert(ctx, tx, key, strconv.Itoa(os.Getpid()))
			time.Sleep(5 * time.Millisecond)
			return o, err
		})
		fail(err)
		b, err := json.Marshal(o)
		fail(err)
		fmt.Println(string(b))
	}
	fail(locks.Close())
}

// processes: four processes take the same hundred requests; every now and then one of them is killed, in the middle of what it does, and
// replaced. In the end there is one order for each request, and whoever was answered was told of that one.
func (d *database) processes(t *testing.T) {
	const requests, seats, kills = 100, 4, 3
	locks := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	if d.server != nil {
		locks = d.server.URL
	}
	store, err := sqllock.Open(t.Context(), locks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CreateSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.Close()
	var mu sync.Mutex
	told := map[string]map[order]bool{}
	answers := 0
	progress := func() int {
		mu.Lock()
		defer mu.Unlock()
		return answers
	}
	start := func() (*exec.Cmd, chan struct{}) {
		cmd := exec.Command(os.Args[0], "shop", strconv.Itoa(int(d.Dialect)), d.driver, d.dsn, locks, t.Name(), strconv.Itoa(requests))
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		read := make(chan struct{})
		go func() {
			defer close(read)
			for sc := bufio.NewScanner(out); sc.Scan(); {
				var o order
				if err := json.Unmarshal(sc.Bytes(), &o); err != nil {
					continue // cut in the middle of a line
				}
				mu.Lock()
				if told[o.Item] == nil {
					told[o.Item] = map[order]bool{}
				}
				told[o.Item][o] = true
				answers++
				mu.Unlock()
			}
			io.Copy(io.Discard, out)
		}()
		return cmd, read
	}
	type process struct {
		*exec.Cmd
		read chan struct{}
	}
	var all []process
	for range seats {
		cmd, read := start()
		all = append(all, process{cmd, read})
	}
	for k := range kills {
		for begin, n := time.Now(), progress(); progress() < n+10; time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("ten requests take more than a minute")
			}
		}
		victim := &all[k%seats]
		victim.Process.Kill()
		<-victim.read
		victim.Wait()
		victim.Cmd, victim.read = start()
	}
	for _, p := range all {
		<-p.read
		if err := p.Wait(); err != nil {
			t.Errorf("a process: %v", err)
		}
	}
	for k := range requests {
		key := t.Name() + strconv.Itoa(k)
		if n := d.orders(t, key); n != 1 || len(told[key]) != 1 {
			t.Errorf("request %d: %d orders, and the answers %v", k, n, told[key])
		}
		for o := range told[key] {
			if d.number(t, "SELECT COUNT(*) FROM orders WHERE item = ? AND who = ?", key, o.Who) != 1 {
				t.Errorf("request %d: the answer %+v is not the order", k, o)
			}
		}
	}
	t.Logf("%d answers", answers)
}
