package shedlock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

// A job that two services, one of them perhaps in Java, are due to run at the same time. One runs it; the other finds it
// taken for the minimum hold, which is ShedLock's lockAtLeastFor, although it took no time at all.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "jobs")
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "jobs.db")) // yours, with the table in it
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if err := shedlock.New(db, sqllock.SQLite, nil).CreateSchema(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, service := range []string{"a", "b"} {
		store := shedlock.New(db, sqllock.SQLite, nil)
		locks := pawl.New(store).With(pawl.Options{
			MinHold: time.Minute,      // longer than the services' clocks and starts are apart, shorter than the period
			MaxHold: 10 * time.Minute, // the job's context ends then
		})
		err := locks.Mutex("nightly-report").TryDo(ctx, func(ctx context.Context) error {
			fmt.Println("service", service, "writes the report")
			return nil
		})
		if errors.Is(err, pawl.ErrHeld) {
			fmt.Println("service", service, "leaves it to another")
		} else if err != nil {
			fmt.Println(err)
		}
		locks.Close()
		store.Close()
	}
	// Output:
	// service a writes the report
	// service b leaves it to another
}
