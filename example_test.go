package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

func Example() {
	ctx, driver := context.Background(), memlock.New()
	// README begins
	locks := pawl.New(driver) // redislock.New(client, nil), sqllock.New(db, dialect, nil), memlock.New(), …
	defer locks.Close()

	lease, err := locks.Mutex("stock:1001").TryLock(ctx) // or Lock, which waits
	if errors.Is(err, pawl.ErrHeld) {
		fmt.Println("busy:", err) // says who holds it, and for how long
		return
	} else if err != nil {
		fmt.Println("the store is in trouble:", err) // never the same as busy
		return
	}
	defer lease.Unlock()
	ctx = lease.Context(ctx) // ends when the lease is lost: pass it to everything guarded
	fmt.Println("fenced:", lease.Token() > 0, "alive:", ctx.Err() == nil)
	// README ends
	// Output: fenced: true alive: true
}

func ExampleMutex_Do() {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	err := locks.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		// The same name again, deeper in the call: the context re-enters.
		return locks.Mutex("report").Do(ctx, func(ctx context.Context) error {
			fmt.Println("inside, twice")
			return ctx.Err()
		})
	})
	fmt.Println(err)
	// Output:
	// inside, twice
	// <nil>
}

func ExampleClient_With() {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	patient := locks.With(pawl.Options{Wait: 20 * time.Millisecond, Note: "deploy 812"})
	lease, _ := patient.Mutex("prod").Lock(context.Background())
	defer lease.Unlock()
	_, err := patient.Mutex("prod").Lock(context.Background())
	fmt.Println(errors.Is(err, pawl.ErrHeld), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleSemaphore_Weight() {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	slots := locks.Semaphore("render", 5)
	heavy, err := slots.Weight(4).Lock(context.Background())
	fmt.Println(err)
	_, err = slots.Weight(2).TryLock(context.Background())
	fmt.Println(errors.Is(err, pawl.ErrHeld))
	fmt.Println(heavy.Unlock())
	// Output:
	// <nil>
	// true
	// <nil>
}
