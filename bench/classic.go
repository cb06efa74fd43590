package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/rueidis"
)

// classic is the lock of countless tutorials, done without their mistakes: a unique value, an expiry, a release that
// checks the owner, and a new try every 10 ms.
type classic struct {
	client  rueidis.Client
	release *rueidis.Lua
}

const (
	classicTTL  = 30 * time.Second
	classicPoll = 10 * time.Millisecond
)

func newClassic(c rueidis.Client) *classic {
	return &classic{c, rueidis.NewLuaScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)}
}

func (l *classic) cycle(ctx context.Context, key string) error {
	value := rand.Text()
	for {
		err := l.client.Do(ctx, l.client.B().Set().Key(key).Value(value).Nx().Px(classicTTL).Build()).Error()
		if err == nil {
			break
		}
		if !rueidis.IsRedisNil(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(classicPoll):
		}
	}
	n, err := l.release.Exec(context.WithoutCancel(ctx), l.client, []string{key}, []string{value}).AsInt64()
	if err == nil && n != 1 {
		err = errors.New("the lock was not ours any more")
	}
	return err
}
