package patterns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// What the programs of the page find in their surroundings, as a service would: a Redis, and pawl's client on it.
var (
	rdb   *redis
	locks *pawl.Client
)

var errBusy = errors.New("busy, try again")

func TestMain(m *testing.M) {
	var t outside
	code := func() int {
		defer t.end()
		s := redistest.Start(&t)
		rdb = dial(&t, s)
		d, err := redislock.Open(context.Background(), s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		locks = pawl.New(d)
		defer locks.Close()
		return m.Run()
	}()
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

// redis is one Redis server with the few commands that locks of the first blog post are made of.
type redis struct{ c rueidis.Client }

func dial(t testing.TB, s *redistest.Server) *redis {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &redis{c}
}

// SetNX sets a key unless it is there; a ttl of 0 is none.
func (r *redis) SetNX(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	set := r.c.B().Set().Key(key).Value(value).Nx()
	cmd := set.Build
	if ttl > 0 {
		cmd = set.Px(ttl).Build
	}
	err := r.c.Do(ctx, cmd()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

// Del deletes a key, whoever has set it.
func (r *redis) Del(ctx context.Context, key string) error {
	return r.c.Do(ctx, r.c.B().Del().Key(key).Build()).Error()
}

var compareAndDelete = rueidis.NewLuaScript("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")

// Release deletes a key if it still has the value.
func (r *redis) Release(ctx context.Context, key, value string) error {
	return compareAndDelete.Exec(ctx, r.c, []string{key}, []string{value}).Error()
}

func (r *redis) do(t testing.TB, words ...string) rueidis.RedisResult {
	t.Helper()
	res := r.c.Do(t.Context(), r.c.B().Arbitrary(words...).Build())
	if err := res.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", words, err)
	}
	return res
}

// there reports whether the key exists.
func (r *redis) there(t testing.TB, key string) bool {
	t.Helper()
	n, _ := r.do(t, "EXISTS", key).AsInt64()
	return n == 1
}
