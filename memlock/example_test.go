package memlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/memlock"
)

// A test of what a program does when it loses a lock: no server, no mock, no waiting.
func ExampleDriver_Expire() {
	store := memlock.New()
	locks := pawl.New(store)
	defer locks.Close()

	err := locks.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		store.Expire("report") // as if the process had been paused for too long
		<-ctx.Done()           // what a careful program watches
		return nil
	})
	fmt.Println(errors.Is(err, pawl.ErrLost))
	// Output: true
}
