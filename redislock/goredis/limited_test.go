package goredis_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// Where the user may run no scripts, and neither publish nor subscribe, mutexes work by plain commands: one holder at a time,
// rising tokens, and everybody gets through, also on small pools and in a cluster.
func TestPlainCommands(t *testing.T) {
	t.Parallel()
	quiet := &redislock.Options{Logger: slog.New(slog.DiscardHandler)}
	rules := []string{"ACL", "SETUSER", "worker", "on", ">s3same", "~*", "&*", "+@all", "-@scripting", "-@pubsub", "resetchannels"}
	contend := func(t *testing.T, open func() redis.UniversalClient) {
		var mu sync.Mutex
		var last int64
		var wg sync.WaitGroup
		for range 3 { // each a process of its own
			d := over(t, open(), quiet)
			locks := pawl.New(d)
			for range 4 {
				wg.Go(func() {
					for range 5 {
						err := locks.Mutex("orders").Do(t.Context(), func(ctx context.Context) error {
							if !mu.TryLock() {
								t.Error("two holders at once")
								return nil
							}
							defer mu.Unlock()
							if token := pawl.FromContext(ctx, "orders").Token(); token <= last {
								t.Errorf("token %d follows %d", token, last)
							} else {
								last = token
							}
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			t.Cleanup(func() {
				if m := d.Mode(); m.NoScripts == nil || m.NoMessages == nil {
					t.Errorf("Mode is %v", m)
				}
			})
		}
		wg.Wait()
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		s.Do(rules...)
		contend(t, func() redis.UniversalClient {
			return single(t, s, redis.Options{PoolSize: 2, Username: "worker", Password: "s3same"})
		})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.NewCluster(t, 3, false, 60_000)
		var addrs []string
		for _, s := range c.Primaries {
			s.Do(rules...)
			addrs = append(addrs, s.Addr)
		}
		contend(t, func() redis.UniversalClient {
			x := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "worker", Password: "s3same"})
			t.Cleanup(func() { x.Close() })
			return x
		})
	})
}
