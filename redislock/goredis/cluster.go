package goredis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// node is one node of a cluster. What is pending when one of its two pipelines comes back goes out as the next one.
type node struct {
	c *redis.Client

	mu      sync.Mutex
	pending []*job
	busy    int // pipelines under way
}

// job is one command on its way.
type job struct {
	cmd   wire.Command
	ask   bool // the slot is being moved here
	until time.Time
	out   wire.Result
	done  chan struct{}
}

const (
	pipelines = 2   // of one node
	batch     = 512 // commands in one
)

// nodeOf is the node that is believed to have a key.
func (c *client) nodeOf(ctx context.Context, key string) (*node, error) {
	one, err := c.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.node(one), nil
}

func (c *client) node(one *redis.Client) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[one]
	if n == nil {
		n = &node{c: bare(one)}
		c.nodes[one] = n
	}
	return n
}

// nodeAt is the node of that address, or nil if the client does not know it yet.
func (c *client) nodeAt(ctx context.Context, addr string) *node {
	var mu sync.Mutex
	var found *redis.Client
	all := map[*redis.Client]bool{}
	err := c.cluster.ForEachShard(ctx, func(_ context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all[one] = true
		if one.Options().Addr == addr {
			found = one
		}
		return nil
	})
	if err != nil || found == nil {
		return nil
	}
	c.mu.Lock()
	for one := range c.nodes { // those that have left the cluster
		if !all[one] {
			delete(c.nodes, one)
		}
	}
	c.mu.Unlock()
	return c.node(found)
}

// Do sends a command to its node, and follows it to where its slot is.
func (c *client) Do(ctx context.Context, until time.Time, cmd wire.Command) (wire.Reply, error) {
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := c.nodeOf(bounded, cmd.Keys[0])
	if err != nil {
		c.cluster.ReloadState(context.Background())
		if err = problem(err); err == context.DeadlineExceeded || err == context.Canceled {
			err = wire.Unsent{Why: err}
		}
		return wire.Reply{}, err
	}
	j := &job{cmd: cmd, until: until, done: make(chan struct{}, 1)}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		n.add(j)
		<-j.done
		var refusal wire.Refusal
		if j.out.Err == nil {
			return j.out.Reply, nil
		}
		if !errors.As(j.out.Err, &refusal) {
			c.cluster.ReloadState(context.Background()) // the node may be gone
			return wire.Reply{}, j.out.Err
		}
		addr, ask := redirection(string(refusal), n.c.Options().Addr)
		if addr == "" {
			return wire.Reply{}, refusal
		}
		if !ask {
			c.cluster.ReloadState(context.Background())
		}
		next := c.nodeAt(bounded, addr)
		if next != nil && next != n {
			n, j.ask = next, ask
			continue
		}
		c.cluster.ReloadState(context.Background())
		j.ask = false
		select {
		case <-time.After(pause):
		case <-bounded.Done():
			return wire.Reply{}, refusal
		}
		if next, err := c.nodeOf(bounded, cmd.Keys[0]); err == nil {
			n = next
		}
	}
}

// redirection reads MOVED and ASK, which came from the node at that address. It answers "" if it is neither.
func redirection(text, from string) (addr string, ask bool) {
	f := strings.Fields(text)
	if len(f) != 3 || f[0] != "MOVED" && f[0] != "ASK" {
		return "", false
	}
	if host, port, err := net.SplitHostPort(f[2]); err == nil && host == "" { // the host that was asked
		host, _, _ = net.SplitHostPort(from)
		return net.JoinHostPort(host, port), f[0] == "ASK"
	}
	return f[2], f[0] == "ASK"
}

func (n *node) add(j *job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = append(n.pending, j)
	if n.busy < pipelines {
		n.busy++
		go n.work() // until nothing is pending: whoever added it waits for it
	}
}

func (n *node) work() {
	for {
		n.mu.Lock()
		jobs := n.pending
		if len(jobs) == 0 {
			n.busy--
			n.mu.Unlock()
			return
		}
		if len(jobs) > batch {
			jobs = jobs[:batch:batch]
		}
		n.pending = n.pending[len(jobs):]
		n.mu.Unlock()
		n.send(jobs)
	}
}

func (n *node) send(jobs []*job) {
	cmds := make([]wire.Command, 0, len(jobs))
	until := jobs[0].until
	for _, j := range jobs {
		if j.ask {
			cmds = append(cmds, wire.Command{Name: "ASKING"})
		}
		cmds = append(cmds, j.cmd)
		if j.until.After(until) {
			until = j.until
		}
	}
	out := make([]wire.Result, len(cmds))
	send(n.c, until, cmds, out)
	i := 0
	for _, j := range jobs {
		if j.ask {
			i++
		}
		j.out = out[i]
		i++
		j.done <- struct{}{}
	}
}

func (c *client) Nodes(ctx context.Context) ([]wire.Node, error) {
	var mu sync.Mutex
	var out []wire.Node
	err := c.cluster.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error {
		n := c.node(one)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, func(ctx context.Context, cmd wire.Command) (wire.Reply, error) {
			until := time.Now().Add(most)
			if at, ok := ctx.Deadline(); ok && at.Before(until) {
				until = at
			}
			r := make([]wire.Result, 1)
			send(n.c, until, []wire.Command{cmd}, r)
			return r[0].Reply, r[0].Err
		})
		return nil
	})
	return out, problem(err)
}
