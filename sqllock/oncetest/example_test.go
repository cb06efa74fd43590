package oncetest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/record"
)

// No duplicate order: a customer's impatience sends one request twenty times. The order and the record of the request are
// committed together, so that there is one order, whatever happens to the lock, and everybody is shown that one.
func Example() {
	ctx := context.Background()
	locks := pawl.New(memlock.New()) // or redislock, zklock, etcdlock, sqllock …
	defer locks.Close()

	dir, _ := os.MkdirTemp("", "shop")
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	records := record.Table{Dialect: fence.SQLite}
	create, _ := records.CreateTable()
	for _, q := range []string{create, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)"} {
		if _, err := db.Exec(q); err != nil {
			fmt.Println(err)
			return
		}
	}

	type Order struct {
		ID   int64
		Item string
	}
	buy := func(request, item string) (Order, error) {
		return record.OnceInTx(ctx, locks, db, records, "order:"+request, 24*time.Hour, func(ctx context.Context, tx *sql.Tx) (Order, error) {
			r, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", item)
			if err != nil {
				return Order{}, err
			}
			id, err := r.LastInsertId()
			return Order{id, item}, err
		})
	}

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if o, err := buy("request-1", "phone"); err != nil || o.ID != 1 {
				fmt.Println("got", o, err)
			}
		})
	}
	wg.Wait()
	o, err := buy("request-2", "case")
	fmt.Println(o, err)
	var n int
	db.QueryRow("SELECT COUNT(*) FROM orders").Scan(&n)
	fmt.Println("orders:", n)
	// Output:
	// {2 case} <nil>
	// orders: 2
}
