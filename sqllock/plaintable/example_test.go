package plaintable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/plaintable"
)

// A table that another program locks in, by statements of its own.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "locks")
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "locks.db")) // yours, with the table in it
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store := plaintable.New(db, sqllock.SQLite, &plaintable.Options{UTC: true})
	defer store.Close()
	if err := store.CreateSchema(ctx); err != nil {
		fmt.Println(err)
		return
	}
	locks := pawl.New(store)
	defer locks.Close()

	const take = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES ('order:1', 'other', datetime('now', '+30 seconds'))"
	err = locks.Mutex("order:1").Do(ctx, func(context.Context) error {
		_, err := db.Exec(take)
		fmt.Println("the other program is kept out:", err != nil)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	if _, err := db.Exec(take); err != nil {
		fmt.Println(err)
	}
	_, err = locks.Mutex("order:1").TryLock(ctx)
	var held *pawl.HeldError
	fmt.Println("pawl is kept out:", errors.As(err, &held), "by", held.Holder.Label)
	// Output:
	// the other program is kept out: true
	// pawl is kept out: true by other
}
