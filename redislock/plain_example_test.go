package redislock_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// nobody is what a helper of tests needs where there is no test.
type nobody struct {
	testing.TB
	last []func()
}

func (n *nobody) Helper()                   {}
func (n *nobody) Context() context.Context  { return context.Background() }
func (n *nobody) Cleanup(f func())          { n.last = append(n.last, f) }
func (n *nobody) Fatal(a ...any)            { n.Fatalf("%s", fmt.Sprint(a...)) }
func (n *nobody) Fatalf(f string, a ...any) { fmt.Printf(f+"\n", a...); n.end(); os.Exit(1) }

func (n *nobody) end() {
	for i := len(n.last) - 1; i >= 0; i-- {
		n.last[i]()
	}
}

// A lock that is shared with clients which just set a key, here the mutex of redis-semaphore in Node.js.
func ExampleOpenPlain() {
	var t nobody
	defer t.end()
	url := redistest.Start(&t).URL
	ctx := context.Background()

	store, err := redislock.OpenPlain(ctx, url, &redislock.PlainOptions{Prefix: "mutex:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := pawl.New(store)
	defer locks.Close()
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{url[len("redis://"):]}, DisableCache: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()
	node := func(cmd ...string) string {
		answer, err := other.Do(ctx, other.B().Arbitrary(cmd...).Build()).ToString()
		if err != nil {
			return err.Error()
		}
		return answer
	}

	lease, err := locks.Mutex("orders").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("Node asks while Go holds:", node("SET", "mutex:orders", "a-token", "PX", "10000", "NX"))
	lease.Unlock()
	fmt.Println("Node asks again:", node("SET", "mutex:orders", "a-token", "PX", "10000", "NX"))
	_, err = locks.Mutex("orders").TryLock(ctx)
	fmt.Println("Go asks while Node holds:", err)
	time.AfterFunc(100*time.Millisecond, func() { node("DEL", "mutex:orders") })
	lease, err = locks.Mutex("orders").Lock(ctx) // woken by the server
	fmt.Println("Go waits for Node:", err)
	lease.Unlock()
	// Output:
	// Node asks while Go holds: redis nil message
	// Node asks again: OK
	// Go asks while Node holds: pawl: "orders": held by sha1:05d13c17415e7a8906400dc84f30f01482c65b79
	// Go waits for Node: <nil>
}
