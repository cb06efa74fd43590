package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// unlock makes a function an Unlocker. A release is never bounded by the context of the wait.
type unlock func(ctx context.Context) error

func (u unlock) Unlock() error { return u(context.Background()) }

const (
	ttl  = bench.DefaultTTL
	poll = 10 * time.Millisecond
)

const deleteIfOurs = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

var errNotOurs = errors.New("the lock was not ours any more")

// hostsOf are the servers of redis://host:port,host:port,…
func hostsOf(url string) []string {
	_, rest, _ := strings.Cut(url, "://")
	return strings.Split(rest, ",")
}

// openPolling is the lock of countless tutorials, done without their mistakes: a unique value, an expiry, a release that
// checks the owner, and a new try every 10 ms.
func openPolling(_ context.Context, url string, _ bench.Case) (*bench.Session, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: hostsOf(url), DisableCache: true, DisableRetry: true, ForceSingleClient: true})
	if err != nil {
		return nil, err
	}
	release := rueidis.NewLuaScript(deleteIfOurs)
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			value := rand.Text()
			err := polled(ctx, func() (bool, error) {
				err := client.Do(ctx, client.B().Set().Key(key).Value(value).Nx().Px(ttl).Build()).Error()
				if rueidis.IsRedisNil(err) {
					return false, nil
				}
				return true, err
			})
			if err != nil {
				return nil, err
			}
			return unlock(func(ctx context.Context) error {
				n, err := release.Exec(ctx, client, []string{key}, []string{value}).AsInt64()
				if err == nil && n != 1 {
					err = errNotOurs
				}
				return err
			}), nil
		},
		Close: func() error { client.Close(); return nil },
	}, nil
}

// polled tries every 10 ms.
func polled(ctx context.Context, try func() (done bool, err error)) error {
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

// openRedsync is redsync over one or several servers, with its default delay between tries, and tries without end.
func openRedsync(ctx context.Context, url string, _ bench.Case) (*bench.Session, error) {
	var pools []rsredis.Pool
	var clients []*goredislib.Client
	for _, h := range hostsOf(url) {
		c := goredislib.NewClient(&goredislib.Options{Addr: h})
		clients = append(clients, c)
		if err := c.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1<<30))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return unlock(func(ctx context.Context) error {
				ok, err := m.UnlockContext(ctx)
				if err == nil && !ok {
					err = errNotOurs
				}
				return err
			}), nil
		},
		Close: func() error {
			var errs []error
			for _, c := range clients {
				errs = append(errs, c.Close())
			}
			return errors.Join(errs...)
		},
	}, nil
}

// openBSM is github.com/bsm/redislock with a try every 10 ms.
func openBSM(ctx context.Context, url string, _ bench.Case) (*bench.Session, error) {
	c := goredislib.NewClient(&goredislib.Options{Addr: hostsOf(url)[0]})
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	locks := bsm.New(c)
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			if _, ok := ctx.Deadline(); !ok { // else it gives up after the TTL
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, time.Hour)
				defer stop()
			}
			l, err := locks.Obtain(ctx, key, ttl, &bsm.Options{RetryStrategy: bsm.LinearBackoff(poll)})
			if err != nil {
				return nil, err
			}
			return unlock(l.Release), nil
		},
		Close: c.Close,
	}, nil
}

// openRueidislock is rueidis's own lock, on one server, told that the server is new enough for all that it can do.
func openRueidislock(ctx context.Context, url string, _ bench.Case) (*bench.Session, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: hostsOf(url), ForceSingleClient: true},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: ttl, ExtendInterval: ttl / 3,
		TryNextAfter: 2 * time.Second, // its default of 20 ms fails requests on a busy machine
	})
	if err != nil {
		return nil, err
	}
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			_, cancel, err := locks.WithContext(ctx, key)
			if err != nil {
				return nil, err
			}
			return unlock(func(context.Context) error { cancel(); return nil }), nil
		},
		Close: func() error { locks.Close(); return nil },
	}, nil
}

// openRaw is the limit: SET NX PX and a script that deletes, written to one socket, as many keys at a time as are asked for.
func openRaw(ctx context.Context, url string, _ bench.Case) (*bench.Session, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", hostsOf(url)[0])
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	reply := func(want byte) error {
		line, err := r.ReadSlice('\n')
		if err == nil && line[0] != want {
			err = fmt.Errorf("redis answered %.40q", line)
		}
		return err
	}
	load := fmt.Sprintf("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%s\r\n", len(deleteIfOurs), deleteIfOurs)
	if _, err := conn.Write([]byte(load)); err != nil {
		return nil, err
	}
	if err := errors.Join(reply('$'), reply(hexDigest[0])); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var buf []byte
	return &bench.Session{
		Batch: func(ctx context.Context, keys []string) error {
			mu.Lock()
			defer mu.Unlock()
			buf = buf[:0]
			for _, k := range keys {
				buf = fmt.Appendf(buf, "*6\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$1\r\nv\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n", len(k), k)
			}
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			for range keys {
				if err := reply('+'); err != nil {
					return err
				}
			}
			buf = buf[:0]
			for _, k := range keys {
				buf = fmt.Appendf(buf, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n$1\r\nv\r\n", hexDigest, len(k), k)
			}
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			for range keys {
				if err := reply(':'); err != nil {
					return err
				}
			}
			return nil
		},
		Close: conn.Close,
	}, nil
}

var hexDigest = func() string {
	sum := sha1.Sum([]byte(deleteIfOurs))
	return hex.EncodeToString(sum[:])
}()
