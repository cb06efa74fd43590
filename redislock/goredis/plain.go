package goredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/redislock"
)

// NewPlain is New for the layout of plain string keys, which redsync and bsm/redislock use over the same client. go-redis hands
// nothing on that a server tells by itself, so that waiters look at their names every 10 to 250 ms (redislock.Plain.Mode).
func NewPlain(client redis.UniversalClient, opts *redislock.PlainOptions) *redislock.Plain {
	c, err := over(client)
	if err != nil {
		return redislock.OverPlain(nil, err, opts)
	}
	return redislock.OverPlain(c, nil, opts)
}
