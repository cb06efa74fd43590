package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// Sentinel is a primary with two replicas, watched by three Sentinels that call it "mymaster", find it dead after a second
// and then promote a replica. Its methods are for one goroutine.
type Sentinel struct {
	URL       string // "redis+sentinel://…/mymaster"
	Servers   []*Server
	Sentinels []*Server

	t testing.TB
}

// NewSentinel starts all six and waits until they know each other. args are added to the servers' command lines.
func NewSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	primary := Start(t, args...)
	s.Servers = append(s.Servers, primary)
	host, port, _ := net.SplitHostPort(primary.Addr)
	for range 2 {
		s.Servers = append(s.Servers, Start(t, append([]string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"}, args...)...))
	}
	eventually(t, "two replicas in step", func() bool {
		return strings.Count(primary.Do("INFO", "replication"), "state=online") == 2
	})
	conf := fmt.Sprintf("sentinel monitor mymaster %s %s 2\nsentinel down-after-milliseconds mymaster 1000\n"+
		"sentinel failover-timeout mymaster 5000\nsentinel parallel-syncs mymaster 2\n", host, port)
	var hosts []string
	for range 3 {
		x := start(t, conf, "--sentinel")
		s.Sentinels = append(s.Sentinels, x)
		hosts = append(hosts, x.Addr)
	}
	s.URL = "redis+sentinel://" + strings.Join(hosts, ",") + "/mymaster"
	for _, x := range s.Sentinels {
		eventually(t, "a Sentinel that knows all", func() bool {
			msg, err := x.Command("SENTINEL", "MASTER", "mymaster")
			facts, err2 := msg.AsStrMap()
			return err == nil && err2 == nil && facts["num-slaves"] == "2" && facts["num-other-sentinels"] == "2" && facts["flags"] == "master"
		})
	}
	return s
}

// Primary is the server that all Sentinels call the primary, and that agrees. It waits for that.
func (s *Sentinel) Primary() *Server {
	s.t.Helper()
	var found *Server
	eventually(s.t, "a primary that all Sentinels agree about", func() bool {
		addr := ""
		for _, x := range s.Sentinels {
			msg, err := x.Command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
			pair, err2 := msg.AsStrSlice()
			if err != nil || err2 != nil || len(pair) != 2 {
				return false
			}
			a := net.JoinHostPort(pair[0], pair[1])
			if addr != "" && a != addr {
				return false
			}
			addr = a
		}
		for _, x := range s.Servers {
			if x.Addr == addr && x.cmd != nil && !x.frozen && strings.Contains(x.Do("INFO", "replication"), "role:master") {
				found = x
				return true
			}
		}
		return false
	})
	return found
}

// CutOff keeps the replicas from the primary's writes from now on; all else goes on as before.
func (s *Sentinel) CutOff(primary *Server) {
	s.t.Helper()
	primary.Do("ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
	primary.Do("CLIENT", "KILL", "TYPE", "REPLICA")
	eventually(s.t, "no replica in step", func() bool {
		return !strings.Contains(primary.Do("INFO", "replication"), "state=online")
	})
}
