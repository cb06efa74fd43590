package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

// Cluster is a Redis Cluster. Its methods are for one goroutine.
type Cluster struct {
	URL       string    // "redis+cluster://…"
	Primaries []*Server // as they were at first; each has an equal part of the slots, in order
	Replicas  []*Server // the first one is of the first primary, and so on

	t testing.TB
}

const slots = 16384

// NewCluster starts so many primaries, each with a replica if replicated, and waits until all know that the cluster works. A
// node counts as dead when it did not answer for nodeTimeout milliseconds. It needs Redis 7.
func NewCluster(t testing.TB, primaries int, replicated bool, nodeTimeout int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var all []*Server
	node := func() *Server {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-port", anyPort, "--cluster-node-timeout", strconv.Itoa(nodeTimeout),
			"--repl-diskless-sync-delay", "0")
		all = append(all, s)
		return s
	}
	var hosts []string
	for i := range primaries {
		s := node()
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/primaries), strconv.Itoa((i+1)*slots/primaries-1))
		c.Primaries = append(c.Primaries, s)
		hosts = append(hosts, s.Addr)
	}
	c.URL = "redis+cluster://" + strings.Join(hosts, ",")
	if replicated {
		for range primaries {
			c.Replicas = append(c.Replicas, node())
		}
	}
	host, port, _ := net.SplitHostPort(all[0].Addr)
	for _, s := range all[1:] {
		s.Do("CLUSTER", "MEET", host, port, all[0].bus())
	}
	for _, s := range all {
		eventually(t, "a cluster whose nodes know each other", func() bool {
			return strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_known_nodes:"+strconv.Itoa(len(all)))
		})
	}
	for i, s := range c.Replicas {
		s.Do("CLUSTER", "REPLICATE", c.Primaries[i].ID())
	}
	for _, s := range all {
		eventually(t, "a cluster that works", func() bool { return strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_state:ok") })
	}
	for i := range c.Replicas {
		eventually(t, "a replica in step", func() bool {
			return strings.Contains(c.Primaries[i].Do("INFO", "replication"), "state=online")
		})
	}
	return c
}

// bus is the port that the nodes of a cluster talk to each other on.
func (s *Server) bus() string {
	for i, a := range s.args {
		if a == "--cluster-port" {
			return s.args[i+1]
		}
	}
	return ""
}

// ID is a node's name in its cluster.
func (s *Server) ID() string {
	s.t.Helper()
	return s.Do("CLUSTER", "MYID")
}

// Slot is the slot of a key, and the primary that had it at first.
func (c *Cluster) Slot(key string) (slot int, owner *Server) {
	c.t.Helper()
	msg, err := c.Primaries[0].Command("CLUSTER", "KEYSLOT", key)
	n, err2 := msg.AsInt64()
	if err != nil || err2 != nil {
		c.t.Fatalf("redistest: slot of %q: %v, %v", key, err, err2)
	}
	for i, s := range c.Primaries {
		if int(n) < (i+1)*slots/len(c.Primaries) {
			return int(n), s
		}
	}
	return int(n), nil
}

// Migrate moves a slot with all its keys, one by one. between, if not nil, is called when the move has begun, and after each
// key.
func (c *Cluster) Migrate(slot int, from, to *Server, between func()) {
	c.t.Helper()
	n := strconv.Itoa(slot)
	to.Do("CLUSTER", "SETSLOT", n, "IMPORTING", from.ID())
	from.Do("CLUSTER", "SETSLOT", n, "MIGRATING", to.ID())
	if between == nil {
		between = func() {}
	}
	between()
	host, port, _ := net.SplitHostPort(to.Addr)
	for {
		msg, err := from.Command("CLUSTER", "GETKEYSINSLOT", n, "1")
		keys, err2 := msg.AsStrSlice()
		if err != nil || err2 != nil {
			c.t.Fatalf("redistest: keys in slot %d: %v, %v", slot, err, err2)
		}
		if len(keys) == 0 {
			break
		}
		from.Do("MIGRATE", host, port, keys[0], "0", "10000")
		between()
	}
	for _, s := range []*Server{to, from} {
		s.Do("CLUSTER", "SETSLOT", n, "NODE", to.ID())
	}
}
