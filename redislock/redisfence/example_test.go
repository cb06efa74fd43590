package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redislock/redisfence"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// addr is the Redis of Example.
var addr string

func TestMain(m *testing.M) {
	var t outside
	addr = redistest.Start(&t).Addr
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

// Selling from a Redis: the holder claims, reads, thinks, and writes with a guarded script. One is paused while it thinks, until
// its lease has run out and another has read.
func Example() {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	guard := redisfence.New(client, nil)
	write := redisfence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
	client.Do(ctx, client.B().Set().Key("left").Value("5").Build())

	store := memlock.New() // or redislock
	locks := pawl.New(store)
	defer locks.Close()
	read := func(l fence.Lease) (int64, error) {
		if err := guard.Claim(ctx, "stock", l); err != nil {
			return 0, err
		}
		return client.Do(ctx, client.B().Get().Key("left").Build()).AsInt64()
	}
	sell := func(l fence.Lease, n int64) error {
		return write.Exec(ctx, guard, "stock", l, []string{"left"}, []string{strconv.FormatInt(n-1, 10)}).Error()
	}

	slow, err := locks.Mutex("stock").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slow.Unlock()
	n, err := read(slow)
	fmt.Println("slow reads", n, err)
	asleep := guardtest.Freeze(slow) // it has looked at its lease, and is paused here
	store.Expire("stock")            // meanwhile its lease runs out

	quick, err := locks.Mutex("stock").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quick.Unlock()
	m, err := read(quick)
	fmt.Println("quick reads", m, err)
	fmt.Println("slow is refused:", errors.Is(sell(asleep, n), fence.ErrStale))
	fmt.Println("quick sells:", sell(quick, m))
	n, _ = client.Do(ctx, client.B().Get().Key("left").Build()).AsInt64()
	fmt.Println("left:", n)
	// Output:
	// slow reads 5 <nil>
	// quick reads 5 <nil>
	// slow is refused: true
	// quick sells: <nil>
	// left: 4
}
