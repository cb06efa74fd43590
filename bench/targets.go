package main

import (
	"context"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/zklock"
)

// limit is no lock: what the store can do at most.
const limit = "limit: raw socket"

// openers are all clients, by the name that results have.
var openers = map[string]bench.Opener{
	"pawl":                   bench.Pawl(openStore),
	"SET NX PX, every 10 ms": openPolling,
	"redsync":                openRedsync,
	"bsm/redislock":          openBSM,
	"rueidislock":            openRueidislock,
	limit:                    openRaw,
	"concurrency.Mutex":      openConcurrency,
	"go-zookeeper Lock":      openZooLock,
	"table, every 10 ms":     openTable,
	"GET_LOCK":               openGetLock,
	"pg_advisory_lock":       openAdvisory,
}

func openStore(ctx context.Context, url string) (driver.Driver, error) {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "etcd":
		return etcdlock.Open(ctx, url, nil)
	case "zk":
		return zklock.Open(ctx, url, nil)
	}
	return bench.OpenStore(ctx, url)
}

// clients are those of each kind of store, pawl first.
var clients = map[string][]string{
	"redis":    {"pawl", "rueidislock", "bsm/redislock", "redsync", "SET NX PX, every 10 ms", limit},
	"redlock":  {"pawl", "redsync"},
	"etcd":     {"pawl", "concurrency.Mutex"},
	"zk":       {"pawl", "go-zookeeper Lock"},
	"mysql":    {"pawl", "GET_LOCK", "table, every 10 ms"},
	"postgres": {"pawl", "pg_advisory_lock", "table, every 10 ms"},
	"sqlite":   {"pawl"},
	"mem":      {"pawl"},
}

// limitOnly are the cases that the limit is measured in; the others are for locks.
var limitOnly = []string{"uncontended-1", "uncontended-16", "uncontended-256", "uncontended-1000"}

// pawlOnly are the cases that no peer has anything for.
var pawlOnly = []string{"read-mostly", "sem", "linger"}

// unrenewed do not keep their leases alive: they cost nothing while they are held, and are lost.
var unrenewed = []string{"bsm/redislock", "redsync", "SET NX PX, every 10 ms", "table, every 10 ms"}

// setters send SET by themselves; the others call it in scripts only.
var setters = []string{"redsync", "SET NX PX, every 10 ms", limit}

func targets(st *store, wanted []string) []bench.Target {
	var all []bench.Target
	for _, name := range clients[st.kind] {
		short, _, _ := strings.Cut(name, ",") // the flag has commas between names
		if len(wanted) > 0 && !slices.Contains(wanted, name) && !slices.Contains(wanted, short) {
			continue
		}
		t := bench.Target{Client: name, Backend: st.kind, URL: st.url, Count: st.count()}
		if name != "pawl" {
			if strings.HasPrefix(st.kind, "red") {
				t.URL = "redis://" + strings.Join(st.hosts, ",")
				if slices.Contains(setters, name) {
					t.Sends = []string{"set"}
				}
			}
			t.Skip = slices.Clone(pawlOnly)
			if slices.Contains(unrenewed, name) {
				t.Skip = append(t.Skip, "held")
			}
			if name == limit {
				for _, c := range bench.Cases() {
					if !slices.Contains(limitOnly, c.Name) {
						t.Skip = append(t.Skip, c.Name)
					}
				}
			}
		}
		all = append(all, t)
	}
	return all
}

// count is whose counters tell what a client sends.
func (st *store) count() []string {
	if !strings.HasPrefix(st.kind, "red") {
		return nil
	}
	var urls []string
	for _, h := range st.hosts {
		urls = append(urls, "redis://"+h)
	}
	return urls
}
