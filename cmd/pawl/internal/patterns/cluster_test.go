package patterns

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func port(s *redistest.Server) string { return strconv.Itoa(s.Port()) }

// calls adds up the calls of an answer to INFO commandstats.
func calls(info string) (n int64) {
	for line := range strings.Lines(info) {
		_, after, ok := strings.Cut(line, ":calls=")
		if !ok || strings.HasPrefix(line, "cmdstat_config") || strings.HasPrefix(line, "cmdstat_info") {
			continue
		}
		digits, _, _ := strings.Cut(after, ",")
		one, _ := strconv.ParseInt(digits, 10, 64)
		n += one
	}
	return n
}

// moving is a cluster of two, and one of its slots on the way from the first to the second.
type moving struct {
	from, to *redistest.Server
	a, b     *redis
	aID, bID string
	slot     string
}

func startCluster(t *testing.T) *moving {
	t.Helper()
	m := &moving{from: redistest.Start(t, "--cluster-enabled", "yes"), to: redistest.Start(t, "--cluster-enabled", "yes")}
	m.a, m.b = dial(t, m.from), dial(t, m.to)
	words := []string{"CLUSTER", "ADDSLOTS"}
	for i := range 16384 {
		words = append(words, strconv.Itoa(i))
	}
	m.a.do(t, words...)
	m.a.do(t, "CLUSTER", "MEET", "127.0.0.1", port(m.to))
	m.aID, _ = m.a.do(t, "CLUSTER", "MYID").ToString()
	m.bID, _ = m.b.do(t, "CLUSTER", "MYID").ToString()
	for _, r := range []*redis{m.a, m.b} {
		soon(t, "the cluster comes up", func() error {
			s, _ := r.do(t, "CLUSTER", "INFO").ToString()
			nodes, _ := r.do(t, "CLUSTER", "NODES").ToString()
			if !strings.Contains(s, "cluster_state:ok") || !strings.Contains(s, "cluster_known_nodes:2") || strings.Contains(nodes, "handshake") {
				return errors.New(s)
			}
			return nil
		})
	}
	return m
}

// begin lets the slot of key move: what is asked for and not there is on the other node.
func (m *moving) begin(t *testing.T, key string) {
	t.Helper()
	n, _ := m.a.do(t, "CLUSTER", "KEYSLOT", key).AsInt64()
	m.slot = strconv.FormatInt(n, 10)
	m.b.do(t, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.aID)
	m.a.do(t, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.bID)
}

// carry moves the keys that the slot has now.
func (m *moving) carry(t *testing.T) {
	t.Helper()
	keys, err := m.a.do(t, "CLUSTER", "GETKEYSINSLOT", m.slot, "100").AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		m.a.do(t, "MIGRATE", "127.0.0.1", port(m.to), k, "0", "5000")
	}
}

// finish gives the slot to the second node.
func (m *moving) finish(t *testing.T) {
	t.Helper()
	m.b.do(t, "CLUSTER", "SETSLOT", m.slot, "NODE", m.bID)
	m.a.do(t, "CLUSTER", "SETSLOT", m.slot, "NODE", m.bID)
}

func TestTrap10ClusterMoves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := startCluster(t)
	_, err := during(t, func(w work) error { return rotateDeaf(ctx, m.a, "a", w) }, func() error {
		m.begin(t, "lock:rotate")
		m.carry(t)
		return nil
	})
	is(t, "wrong: the holder hears", err, nil)
	is(t, "wrong: the next hears", rotateDeaf(ctx, m.a, "b", nothing), errBusy)
	m.finish(t)
	if !m.b.there(t, "lock:rotate") {
		t.Error("wrong: the lock was given back, which it should not have been")
	}

	if _, err := redislock.Open(ctx, m.from.URL, nil); err == nil || !strings.Contains(err.Error(), "redis+cluster:") {
		t.Errorf("right: one node opened as if it were all: got %v, want an error that says what to do", err)
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{m.from.Addr, m.to.Addr}, DisableCache: true})
	is(t, "dial", err, nil)
	t.Cleanup(c.Close)
	cluster := pawl.New(redislock.New(c, nil))
	defer cluster.Close()
	second, err := during(t, func(w work) error { return rotate(ctx, cluster, w) }, func() error {
		m.begin(t, "rotate")
		m.carry(t)
		return rotate(ctx, cluster, nothing)
	})
	is(t, "right: the second, while the slot moves", second, errBusy)
	is(t, "right: the first", err, nil)
	m.carry(t)
	m.finish(t)
	soon(t, "right: the next, after the move", func() error { return rotate(ctx, cluster, nothing) })
}
