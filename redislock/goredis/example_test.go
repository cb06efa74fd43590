package goredis_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock/goredis"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// address is of a Redis server.
var address string

func Example() {
	client := redis.NewClient(&redis.Options{Addr: address}) // the one that the program has anyway
	defer client.Close()

	locks := pawl.New(goredis.New(client, nil))
	defer locks.Close()

	ctx := context.Background()
	err := locks.Mutex("stock:1001").Do(ctx, func(ctx context.Context) error {
		client.Set(ctx, "left:1001", 41, 0) // the client goes on as before
		_, err := locks.Mutex("stock:1001").TryLock(context.Background())
		fmt.Println("somebody else:", errors.Is(err, pawl.ErrHeld))
		return nil
	})
	fmt.Println(err, client.Get(ctx, "left:1001").Val())
	// Output:
	// somebody else: true
	// <nil> 41
}

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // the tests wait more than they work
	var t outside
	address = redistest.Start(&t).Addr
	code := m.Run()
	t.end()
	os.Exit(code)
}

// outside is what a helper of tests needs where there is no test.
type outside struct {
	testing.TB
	last []func()
}

func (o *outside) Helper()                   {}
func (o *outside) Cleanup(f func())          { o.last = append(o.last, f) }
func (o *outside) Fatal(a ...any)            { o.Fatalf("%s", fmt.Sprint(a...)) }
func (o *outside) Fatalf(f string, a ...any) { fmt.Printf(f+"\n", a...); o.end(); os.Exit(1) }

func (o *outside) end() {
	for i := len(o.last) - 1; i >= 0; i-- {
		o.last[i]()
	}
}
