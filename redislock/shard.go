package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// Clients of another make publish in a cluster by plain or by sharded messages. Plain ones come to the ear's one connection,
// at whatever node, since the nodes pass them on. Sharded ones are told by the node that has the channel's slot alone, so
// each channel of theirs gets a subscription at its node too.

// shard begins the sharded subscription of s, if it needs one. e.mu is held.
func (e *ear) shard(s *sub) {
	if !e.redis.Cluster() || !foreign(s.channel) || e.closed {
		return
	}
	life, end := context.WithCancel(e.life)
	s.end, s.sharded = end, make(chan struct{})
	e.wg.Add(1)
	go e.hearShard(life, s)
}

// hearShard keeps the sharded subscription of s, also when its slot moves.
func (e *ear) hearShard(life context.Context, s *sub) {
	defer e.wg.Done()
	on := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		select {
		case <-s.sharded:
		default:
			close(s.sharded)
		}
	}
	var again atomic.Bool
	l := wire.Listener{Message: e.message, On: func(channel string) {
		on()
		if again.Swap(true) { // what was published meanwhile is lost
			e.message(channel, "")
		}
	}}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		began := time.Now()
		err := e.redis.ListenShard(life, s.channel, l)
		var refusal wire.Refusal
		if errors.As(err, &refusal) {
			switch code(string(refusal)) {
			case "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK":
			default:
				on() // Redis 6 has no sharded messages, nor have those who would send them
				return
			}
		}
		if time.Since(began) > time.Minute {
			pause = 20 * time.Millisecond
		}
		select {
		case <-life.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}
