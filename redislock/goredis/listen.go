package goredis

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// ear is one subscribing connection. go-redis would make it again by itself when it is lost, and nobody would know what was
// missed meanwhile, so that it is given up then.
type ear struct {
	ps   *redis.PubSub
	l    wire.Listener
	lost chan error
	once sync.Once
	wg   sync.WaitGroup

	mu      sync.Mutex
	reading bool
	closed  bool
	asked   map[string]bool // what Subscribe waits for
	answer  chan error
}

func (c *client) Listen(l wire.Listener) wire.Subscription {
	return &ear{ps: c.listen.Subscribe(context.Background()), l: l, lost: make(chan error)}
}

func (e *ear) Subscribe(ctx context.Context, channels ...string) error {
	answer := make(chan error, 1)
	e.mu.Lock()
	e.asked, e.answer = make(map[string]bool, len(channels)), answer
	for _, c := range channels {
		e.asked[c] = true
	}
	e.mu.Unlock()
	if err := e.ps.Subscribe(ctx, channels...); err != nil {
		return problem(err)
	}
	e.mu.Lock()
	if !e.reading && !e.closed {
		e.reading = true
		e.wg.Go(e.read)
	}
	e.mu.Unlock()
	select {
	case err := <-answer:
		return err
	case <-e.lost:
		return errors.New("the connection was lost")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *ear) Unsubscribe(ctx context.Context, channels ...string) error {
	return problem(e.ps.Unsubscribe(ctx, channels...))
}

func (e *ear) read() {
	defer close(e.lost)
	for {
		msg, err := e.ps.Receive(context.Background())
		if err != nil {
			var refusal wire.Refusal
			if !errors.As(problem(err), &refusal) {
				return
			}
			e.mu.Lock()
			if e.answer != nil {
				e.answer <- refusal
				e.answer = nil
			}
			e.mu.Unlock()
			continue
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				e.l.On(m.Channel)
				e.confirm(m.Channel)
			}
		case *redis.Message:
			e.l.Message(m.Channel, m.Payload)
		}
	}
}

func (e *ear) confirm(channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, channel)
	if len(e.asked) == 0 && e.answer != nil {
		e.answer <- nil
		e.answer = nil
	}
}

func (e *ear) Lost() <-chan error { return e.lost }

func (e *ear) Close() {
	e.once.Do(func() {
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		e.ps.Close()
	})
	e.wg.Wait()
}

// ListenShard takes a connection of its own for the channel: go-redis has them by channel.
func (c *client) ListenShard(ctx context.Context, channel string, l wire.Listener) error {
	ps := c.cluster.SSubscribe(ctx, channel)
	defer ps.Close()
	defer context.AfterFunc(ctx, func() { ps.Close() })()
	for {
		msg, err := ps.Receive(ctx)
		if err = problem(err); err != nil {
			c.cluster.ReloadState(context.Background()) // the slot may be elsewhere
			return err
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" { // the slot has moved
				c.cluster.ReloadState(context.Background())
				return nil
			}
			if m.Kind == "ssubscribe" {
				l.On(m.Channel)
			}
		case *redis.Message:
			l.Message(m.Channel, m.Payload)
		}
	}
}

// Follow has nothing to do: go-redis drops the connections of its pool to a primary that is none any more, and a Sentinel has
// such a server drop those that listen. One that hangs keeps them, and is noticed by the driver's own looking now and then.
func (c *client) Follow(context.Context, func()) {}
