package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// rueidisClient speaks to Redis by rueidis.
type rueidisClient struct {
	rueidis.Client
	dedicate func() dedicated
}

// dedicated is a connection for one use.
type dedicated struct {
	rueidis.DedicatedClient
	raw net.Conn // nil: not known, since the client is somebody else's
}

// cut closes the connection, whatever the server does. Without raw, rueidis waits up to a second for a silent server.
func (d *dedicated) cut() {
	if d.raw != nil {
		d.raw.Close()
	}
	d.Close()
}

func dedicate(client rueidis.Client) func() dedicated {
	return func() dedicated {
		conn, _ := client.Dedicate()
		return dedicated{conn, nil}
	}
}

func (c *rueidisClient) Cluster() bool { return c.Mode() == rueidis.ClientModeCluster }
func (c *rueidisClient) Cuts() bool    { return true }

func (c *rueidisClient) Connect(until time.Time) (wire.Conn, error) {
	d := c.dedicate()
	if err := d.Do(bound{context.Background(), until}, d.B().Ping().Build()).NonRedisError(); err != nil {
		d.cut()
		return nil, err
	}
	return &rueidisConn{dedicated: d}, nil
}

// Do relies on rueidis for MOVED and ASK. rueidis gives a request up when a context is cancelled, but closes the connection
// when its deadline passes, so the deadline becomes a cancellation.
func (c *rueidisClient) Do(ctx context.Context, until time.Time, cmd wire.Command) (wire.Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Until(until), cancel).Stop()
	r := result(c.Client.Do(ctx, build(c.B(), &cmd)))
	return r.Reply, r.Err
}

func (c *rueidisClient) Session(string) (wire.Session, error) {
	conn, back := c.Dedicate()
	return &rueidisConn{dedicated: dedicated{conn, nil}, back: back}, nil
}

// Addr is the address of the one server.
func (c *rueidisClient) Addr() string {
	for addr := range c.Client.Nodes() {
		return addr
	}
	return ""
}

func (c *rueidisClient) Nodes(context.Context) ([]wire.Node, error) {
	var out []wire.Node
	for _, node := range c.Client.Nodes() {
		out = append(out, func(ctx context.Context, cmd wire.Command) (wire.Reply, error) {
			r := result(node.Do(ctx, build(node.B(), &cmd)))
			return r.Reply, r.Err
		})
	}
	return out, nil
}

// followEvery is how soon a driver over Sentinels notices that its client has turned to another primary.
const followEvery = 100 * time.Millisecond

func (c *rueidisClient) Follow(ctx context.Context, turned func()) {
	if c.Mode() != rueidis.ClientModeSentinel {
		return
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	at := c.primary()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := c.primary(); now != at {
			at = now
			turned()
		}
	}
}

// primary is the address of the primary that the client knows.
func (c *rueidisClient) primary() string {
	for addr := range c.Client.Nodes() {
		return addr
	}
	return ""
}

// rueidisConn is one connection.
type rueidisConn struct {
	dedicated
	back func()
	once sync.Once
}

func (c *rueidisConn) Do(until time.Time, cmds []wire.Command, out []wire.Result) {
	limit, b := bound{context.Background(), until}, c.B()
	if len(cmds) == 1 {
		out[0] = result(c.DedicatedClient.Do(limit, build(b, &cmds[0])))
		return
	}
	built := make([]rueidis.Completed, len(cmds))
	for i := range cmds {
		built[i] = build(b, &cmds[i])
	}
	for i, r := range c.DoMulti(limit, built...) {
		out[i] = result(r)
	}
}

func (c *rueidisConn) Close() { c.once.Do(c.cut) }
func (c *rueidisConn) Back()  { c.once.Do(c.back) }

func build(b rueidis.Builder, cmd *wire.Command) rueidis.Completed {
	if cmd.Script == "" {
		return b.Arbitrary(cmd.Name).Keys(cmd.Keys...).Args(cmd.Args...).Build()
	}
	return b.Arbitrary(cmd.Name, cmd.Script, fmt.Sprint(len(cmd.Keys))).Keys(cmd.Keys...).Args(cmd.Args...).Build()
}

func result(r rueidis.RedisResult) wire.Result {
	msg, err := r.ToMessage()
	if err == nil {
		return wire.Result{Reply: reply(&msg)}
	}
	return wire.Result{Err: problem(err)}
}

func problem(err error) error {
	var op *net.OpError
	switch refusal, ok := rueidis.IsRedisErr(err); {
	case err == nil || rueidis.IsRedisNil(err):
		return nil
	case ok:
		return wire.Refusal(refusal.Error())
	case errors.Is(err, rueidis.ErrNoSlot) || errors.As(err, &op) && op.Op == "dial":
		return wire.Unsent{Why: err}
	}
	return err
}

func reply(m *rueidis.RedisMessage) wire.Reply {
	switch {
	case m.IsString():
		s, _ := m.ToString()
		return wire.Text(s)
	case m.IsInt64():
		n, _ := m.ToInt64()
		return wire.Int(n)
	case m.IsArray():
		all, _ := m.ToArray()
		out := make([]wire.Reply, len(all))
		for i := range all {
			out[i] = reply(&all[i])
		}
		return wire.Array(out)
	case m.IsMap():
		all, _ := m.ToMap()
		out := make([]wire.Reply, 0, 2*len(all))
		for k, v := range all {
			out = append(out, wire.Text(k), reply(&v))
		}
		return wire.Array(out)
	case m.IsFloat64():
		f, _ := m.ToFloat64()
		return wire.Text(fmt.Sprint(f))
	}
	refusal, ok := rueidis.IsRedisErr(m.Error())
	switch {
	case ok && !refusal.IsNil():
		return wire.Failure(wire.Refusal(refusal.Error()))
	case m.Error() == nil && !m.IsBool(): // a verbatim text, as of INFO, begins with its format: "txt:"
		if s, err := m.ToString(); err == nil && len(s) >= 4 && s[3] == ':' {
			return wire.Text(s[4:])
		}
	}
	return wire.Reply{}
}

// bound is a context with a deadline that costs no timer unless somebody waits for it. rueidis does so only when its
// connection is not on the synchronous path.
type bound struct {
	context.Context
	at time.Time
}

func (b bound) Deadline() (time.Time, bool) { return b.at, true }

func (b bound) Err() error {
	if time.Now().Before(b.at) {
		return nil
	}
	return context.DeadlineExceeded
}

func (b bound) Done() <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(time.Until(b.at), func() { close(done) })
	return done
}

// rueidisEar is a connection that subscribes.
type rueidisEar struct {
	dedicated
	lost <-chan error
	once sync.Once
}

func (c *rueidisClient) Listen(l wire.Listener) wire.Subscription {
	e := &rueidisEar{dedicated: c.dedicate()}
	e.lost = e.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { l.Message(m.Channel, m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				l.On(s.Channel)
			}
		},
	})
	return e
}

func (e *rueidisEar) Subscribe(ctx context.Context, channels ...string) error {
	return problem(e.Do(ctx, e.B().Subscribe().Channel(channels...).Build()).Error())
}

func (e *rueidisEar) Unsubscribe(ctx context.Context, channels ...string) error {
	return problem(e.Do(ctx, e.B().Unsubscribe().Channel(channels...).Build()).Error())
}

func (e *rueidisEar) Lost() <-chan error { return e.lost }
func (e *rueidisEar) Close()             { e.once.Do(e.cut) }

func (c *rueidisClient) ListenShard(ctx context.Context, channel string, l wire.Listener) error {
	hook := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "ssubscribe" {
			l.On(s.Channel)
		}
	})
	hook = rueidis.WithOnReceiveReturnHook(hook, func(err error, c rueidis.CommandClient) error {
		if ctx.Err() != nil {
			limit, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c.Do(limit, c.B().Sunsubscribe().Channel(channel).Build()) // or else the connection has gone
		}
		return err
	})
	return problem(c.Receive(hook, c.B().Ssubscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		l.Message(m.Channel, m.Message)
	}))
}
