package goredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/goredis"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func TestPlainConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			p := goredis.NewPlain(single(t, s, redis.Options{}), &redislock.PlainOptions{Fenced: true})
			t.Cleanup(func() { p.Close() })
			return p
		},
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: time.Second,
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
		Delete: func(t testing.TB, name string) { s.Do("DEL", name) },
	})
}
