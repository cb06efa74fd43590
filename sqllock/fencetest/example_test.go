package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/memlock"
)

// Selling under a lock, with the check in the database's own transaction. One holder is paused between its two
// transactions until its lease has run out and another has sold.
func Example() {
	ctx := context.Background()
	store := memlock.New() // or redislock, zklock, etcdlock, sqllock …
	locks := pawl.New(store)
	defer locks.Close()

	dir, _ := os.MkdirTemp("", "shop")
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	marks := fence.Table{Dialect: fence.SQLite}
	create, _ := marks.CreateTable()
	for _, q := range []string{create, "CREATE TABLE stock (item TEXT PRIMARY KEY, n INT)", "INSERT INTO stock VALUES ('phone', 5)"} {
		if _, err := db.Exec(q); err != nil {
			fmt.Println(err)
			return
		}
	}

	// Every transaction begins with the claim.
	claimed := func(l fence.Lease, f func(tx *sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := marks.Claim(ctx, tx, "stock:phone", l); err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	read := func(l fence.Lease) (n int, err error) {
		err = claimed(l, func(tx *sql.Tx) error { return tx.QueryRow("SELECT n FROM stock").Scan(&n) })
		return n, err
	}
	write := func(l fence.Lease, n int) error {
		return claimed(l, func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE stock SET n = ?", n)
			return err
		})
	}

	slow, err := locks.Mutex("stock:phone").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slow.Unlock()
	n, err := read(slow)
	fmt.Println("slow reads", n, err)
	asleep := guardtest.Freeze(slow) // it has looked at its lease, and is paused here
	store.Expire("stock:phone")      // meanwhile its lease runs out

	err = locks.Mutex("stock:phone").Do(ctx, func(ctx context.Context) error {
		quick := pawl.FromContext(ctx, "stock:phone")
		n, err := read(quick)
		if err != nil {
			return err
		}
		return write(quick, n-1)
	})
	fmt.Println("quick sells:", err)

	err = write(asleep, n-1)
	fmt.Println("slow is refused:", errors.Is(err, fence.ErrStale))
	n, err = read(nil)
	fmt.Println("nobody without a lease:", n, errors.Is(err, fence.ErrStale))
	db.QueryRow("SELECT n FROM stock").Scan(&n)
	fmt.Println("left:", n)
	// Output:
	// slow reads 5 <nil>
	// quick sells: <nil>
	// slow is refused: true
	// nobody without a lease: 0 true
	// left: 4
}
