// Package goredis lets package redislock use a client of go-redis (github.com/redis/go-redis/v9), so that a team that has one
// keeps it. The locks are the same as over rueidis, and both may be used at once.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// New makes a driver over a client of one server (redis.NewClient), of what Sentinels name (redis.NewFailoverClient) or of a
// cluster (redis.NewClusterClient). Another kind, such as a Ring, whose servers know nothing of each other, makes every call
// answer driver.ErrInvalid. New does no I/O; opts may be nil.
//
// The client stays the caller's: Close of the driver leaves it as it is, and none of its options is changed. Requests take
// connections from its pool for one pipeline at a time, at most two at once for each server: a pool of one is enough, though
// others then wait. Besides, there is one connection to listen with as soon as something waits, and in a cluster one more for
// each name that clients of another make hold while somebody waits for it. The client's hooks see all of that.
//
// pawl's requests are never repeated by the client, and are given up after 5 s at the latest, whatever MaxRetries and
// ReadTimeout say. go-redis cannot cut a request short that waits for an answer: a call returns when its context ends, and the
// connection comes back to the pool later. For the same reason Close may take those 5 s while a server does not answer.
//
// A request that finds no free connection within PoolTimeout, and one after the client was closed, had no effect
// (driver.ErrNotDone).
func New(client redis.UniversalClient, opts *redislock.Options) *redislock.Driver {
	c, err := over(client)
	if err != nil {
		return redislock.Over(nil, err, opts)
	}
	return redislock.Over(c, nil, opts)
}

func over(c redis.UniversalClient) (*client, error) {
	switch x := c.(type) {
	case *redis.Client:
		if x != nil {
			return &client{one: bare(x), listen: x}, nil
		}
	case *redis.ClusterClient:
		if x != nil {
			return &client{cluster: x, listen: x, nodes: map[*redis.Client]*node{}}, nil
		}
	case *redis.Ring:
		return nil, fmt.Errorf("redislock: a Ring spreads keys over servers that know nothing of each other, and moves them when one fails; "+
			"give New a client of one server, of Sentinels or of a cluster, or redlock one driver for each server: %w", driver.ErrInvalid)
	case nil:
	default:
		return nil, fmt.Errorf("redislock: a client of type %T; give New a *redis.Client or a *redis.ClusterClient: %w", c, driver.ErrInvalid)
	}
	return nil, fmt.Errorf("redislock: the client is nil: %w", driver.ErrInvalid)
}

// client speaks to Redis by go-redis.
type client struct {
	one     *redis.Client // nil: a cluster
	cluster *redis.ClusterClient
	listen  interface {
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	}

	mu    sync.Mutex
	nodes map[*redis.Client]*node
}

// most is how long a request may take at most. The driver gives it less.
const most = 5 * time.Second

// bare is a client over the same pool that repeats nothing and keeps to deadlines. The options are its own.
func bare(c *redis.Client) *redis.Client {
	c = c.WithTimeout(most)
	o := c.Options()
	o.MaxRetries, o.ContextTimeoutEnabled = 0, true
	o.MaintNotificationsConfig = nil // shared with c, and written by the first connections of both
	return c
}

func (c *client) Cluster() bool { return c.cluster != nil }
func (c *client) Cuts() bool    { return false }
func (c *client) Close()        {}

func (c *client) Connect(time.Time) (wire.Conn, error) { return pooled{c.one}, nil }

// pooled takes a connection from the pool for each pipeline.
type pooled struct{ c *redis.Client }

func (p pooled) Do(until time.Time, cmds []wire.Command, out []wire.Result) {
	send(p.c, until, cmds, out)
}
func (p pooled) Close() {}

// session keeps one connection. go-redis throws it away if its last request went wrong.
type session struct {
	*redis.Conn
	once sync.Once
}

func (s *session) Do(until time.Time, cmds []wire.Command, out []wire.Result) {
	send(s.Conn, until, cmds, out)
}
func (s *session) Close() { s.once.Do(func() { s.Conn.Close() }) }
func (s *session) Back()  { s.Close() }

func (c *client) Session(key string) (wire.Session, error) {
	one := c.one
	if c.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		n, err := c.nodeOf(ctx, key)
		if err != nil {
			return nil, problem(err)
		}
		one = n.c
	}
	return &session{Conn: one.Conn()}, nil
}

// sender is what a client and one of its connections have in common.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// send sends commands as one pipeline.
func send(c sender, until time.Time, cmds []wire.Command, out []wire.Result) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	if len(cmds) == 1 {
		cmd := command(ctx, &cmds[0])
		err := c.Process(ctx, cmd)
		out[0] = result(cmd, err)
		return
	}
	p := c.Pipeline()
	sent := make([]*redis.Cmd, len(cmds))
	for i := range cmds {
		sent[i] = command(ctx, &cmds[i])
		p.Process(ctx, sent[i]) // which only notes it
	}
	_, err := p.Exec(ctx)
	for i, cmd := range sent {
		out[i] = result(cmd, err)
	}
}

func command(ctx context.Context, cmd *wire.Command) *redis.Cmd {
	args := make([]any, 0, 3+len(cmd.Keys)+len(cmd.Args))
	args = append(args, cmd.Name)
	if cmd.Script != "" {
		args = append(args, cmd.Script, len(cmd.Keys))
	}
	for _, k := range cmd.Keys {
		args = append(args, k)
	}
	for _, a := range cmd.Args {
		args = append(args, a)
	}
	return redis.NewCmd(ctx, args...)
}

// result is what a command was answered. err is what became of its pipeline.
func result(cmd *redis.Cmd, err error) wire.Result {
	val, own := cmd.Result()
	if own == nil && val == nil { // a null is an error to go-redis, so there was no answer at all
		own = err
		if own == nil {
			own = errors.New("go-redis gave no answer")
		}
	}
	if own = problem(own); own != nil {
		return wire.Result{Err: own}
	}
	return wire.Result{Reply: reply(val)}
}

// problem tells the errors of go-redis apart.
func problem(err error) error {
	var refusal redis.Error
	var op *net.OpError
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, redis.ErrPoolTimeout):
		return wire.Unsent{Why: fmt.Errorf("the go-redis client had no free connection in time; raise its PoolSize: %w", err)}
	case errors.Is(err, redis.ErrClosed):
		return wire.Unsent{Why: fmt.Errorf("the go-redis client was closed: %w", err)}
	case errors.As(err, &op) && op.Op == "dial":
		return wire.Unsent{Why: err}
	case errors.As(err, &refusal):
		return wire.Refusal(refusal.Error())
	}
	return err
}

func reply(val any) wire.Reply {
	switch x := val.(type) {
	case nil:
		return wire.Reply{}
	case string:
		return wire.Text(x)
	case int64:
		return wire.Int(x)
	case bool:
		if x {
			return wire.Int(1)
		}
		return wire.Int(0)
	case []any:
		out := make([]wire.Reply, len(x))
		for i := range x {
			out[i] = reply(x[i])
		}
		return wire.Array(out)
	case map[any]any:
		out := make([]wire.Reply, 0, 2*len(x))
		for k, v := range x {
			out = append(out, reply(k), reply(v))
		}
		return wire.Array(out)
	case error:
		if errors.Is(x, redis.Nil) {
			return wire.Reply{}
		}
		return wire.Failure(wire.Refusal(x.Error()))
	}
	return wire.Text(fmt.Sprint(val)) // a number of RESP3
}
