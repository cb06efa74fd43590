// Package wire is what a redislock.Driver needs of a library that speaks to Redis. Each library is one implementation:
// rueidis in package redislock, go-redis in module goredis. All that decides about locks is above it.
package wire

import (
	"context"
	"time"
)

// Client is a client of one server, of the primary that Sentinels name, or of a cluster. Its methods may be called
// concurrently.
//
// Nothing here repeats a request: only the driver knows what may be repeated. A request that surely was not sent fails with
// [Unsent], one that the server refused with [Refusal], and any other error leaves open what became of it.
type Client interface {
	// Cluster reports whether the keys are spread over nodes. Then Do and ListenShard are used, else Connect.
	Cluster() bool

	// Cuts reports whether Close of a Conn ends a request that is under way on it.
	Cuts() bool

	// Connect makes a Conn, and tries it if it is a connection of its own.
	Connect(until time.Time) (Conn, error)

	// Do sends one command to the node of its first key, and follows MOVED and ASK. It ends with ctx, or at least stops to
	// redirect then, and at until in any case.
	Do(ctx context.Context, until time.Time, cmd Command) (Reply, error)

	// Session borrows a connection to the server, or to the node of key in a cluster, for commands that belong together.
	Session(key string) (Session, error)

	// Nodes are the primaries of a cluster.
	Nodes(ctx context.Context) ([]Node, error)

	// Listen makes a connection that can subscribe.
	Listen(l Listener) Subscription

	// ListenShard listens to a sharded channel of a cluster until that is lost or refused, or ctx ends. It calls l.On each time
	// when the node has confirmed it.
	ListenShard(ctx context.Context, channel string, l Listener) error

	// Follow calls turned each time when the client has turned to another primary, until ctx ends. It returns at once if
	// there is only one server to turn to, or if the library itself drops all connections to the old one.
	Follow(ctx context.Context, turned func())

	// Close ends the client. It is called for one that the driver owns.
	Close()
}

// Conn sends pipelines, one at a time.
type Conn interface {
	// Do sends the commands as one pipeline, and puts their results into out, of the same length. It gives up at until.
	Do(until time.Time, cmds []Command, out []Result)

	// Close ends the Conn, whatever the server does. It may be called at any time, and twice.
	Close()
}

// Session is a Conn all of whose pipelines take the same connection.
type Session interface {
	Conn

	// Back ends the Session, whose connection is fit for others.
	Back()
}

// Node sends a command to one node of a cluster.
type Node func(ctx context.Context, cmd Command) (Reply, error)

// Subscription is a connection that can subscribe.
type Subscription interface {
	// Subscribe returns when the server has confirmed all channels, or refused.
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error

	// Lost is closed, or gets an error, when the connection is lost. It is not made again.
	Lost() <-chan error

	// Close ends the connection, whatever the server does. It may be called twice.
	Close()
}

// Listener is told what comes by a Subscription, in the goroutine that reads it.
type Listener struct {
	On      func(channel string) // the server has confirmed the subscription
	Message func(channel, payload string)
}

// Command is one command: Name Keys… Args…, or with a script Name Script len(Keys) Keys… Args….
type Command struct {
	Name   string
	Script string // its hash or its text; "": none
	Keys   []string
	Args   []string
}

// Result is the answer to one command of a pipeline.
type Result struct {
	Reply Reply
	Err   error
}

// Refusal is an error that the server answered with.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Unsent says that a request was not sent.
type Unsent struct{ Why error }

func (u Unsent) Error() string { return u.Why.Error() }
func (u Unsent) Unwrap() error { return u.Why }
