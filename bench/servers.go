package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// stage is where servers run: they are the tests' ones, which want a testing.TB. It ends them when it is closed.
type stage struct {
	testing.TB // nil: what is not below is not called

	mu  sync.Mutex
	end []func()
	err error
}

func (s *stage) Helper()                   {}
func (s *stage) Name() string              { return "bench" }
func (s *stage) Logf(string, ...any)       {}
func (s *stage) Log(...any)                {}
func (s *stage) Fatal(args ...any)         { s.fail(errors.New(strings.TrimSpace(fmt.Sprintln(args...)))) }
func (s *stage) Fatalf(f string, a ...any) { s.fail(fmt.Errorf(f, a...)) }
func (s *stage) Errorf(f string, a ...any) { s.mu.Lock(); s.err = fmt.Errorf(f, a...); s.mu.Unlock() }
func (s *stage) Cleanup(f func())          { s.mu.Lock(); s.end = append(s.end, f); s.mu.Unlock() }

func (s *stage) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	runtime.Goexit()
}

// try runs f, which may Fatal.
func (s *stage) try(f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = nil
	return err
}

func (s *stage) close() {
	for i := len(s.end) - 1; i >= 0; i-- {
		s.try(s.end[i])
	}
}

// store is a server, or several, that was started.
type store struct {
	kind     string
	url      string   // as pawl opens it
	hosts    []string // of each server
	settings string   // what it does to keep what it has confirmed
	version  string
}

// starters start a store of each kind, durable as one in use would be.
var starters = []struct {
	kind     string
	settings string
	start    func(s *stage) *store
}{
	{"redis", "no persistence: neither snapshots nor an append-only file", func(s *stage) *store { return redises(s, "redis", 1) }},
	{"redlock", "five servers without persistence", func(s *stage) *store { return redises(s, "redlock", 5) }},
	{"etcd", "one member; fsync before a write is confirmed (the default)", func(s *stage) *store {
		c := etcdtest.Start(s, etcdtest.Options{Durable: true})
		return &store{url: c.URL, hosts: []string{c.Members[0].Addr}}
	}},
	{"zk", "one server; forceSync=yes: fsync before a write is confirmed (the default); heap of 1 GB", func(s *stage) *store {
		z := zktest.Start(s, zktest.Config{Sync: true,
			Java: []string{"-Xmx1g", "-XX:TieredStopAtLevel=4", "-Dzookeeper.preAllocSize=65536"}}) // as in use, not as in tests
		return &store{url: "zk://" + z.Addr, hosts: []string{z.Addr}}
	}},
	{"mysql", "MariaDB; innodb_flush_log_at_trx_commit=1: fsync at each commit (the default)", func(s *stage) *store {
		m := sqltest.StartMariaDB(s, "--innodb-flush-log-at-trx-commit=1", "--max-connections=1200")
		return &store{url: m.URL, hosts: []string{m.Addr}}
	}},
	{"postgres", "fsync=on, synchronous_commit=on (the defaults); pg_stat_statements is loaded, to count", func(s *stage) *store {
		p := sqltest.StartPostgres(s, "-c", "fsync=on", "-c", "max_connections=1200", "-c", "shared_preload_libraries=pg_stat_statements")
		db := p.DB()
		if _, err := db.Exec("CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
			s.Fatal(err)
		}
		return &store{url: p.URL, hosts: []string{p.Addr}}
	}},
	{"sqlite", "a file, as pawl opens it", func(s *stage) *store {
		dir, err := os.MkdirTemp("", "pawl-bench-")
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { os.RemoveAll(dir) })
		return &store{url: "sqlite://" + filepath.Join(dir, "locks.db")}
	}},
	{"mem", "the memory of one process", func(s *stage) *store { return &store{url: "mem:"} }},
}

func redises(s *stage, scheme string, n int) *store {
	st := &store{}
	for range n {
		st.hosts = append(st.hosts, redistest.Start(s).Addr)
	}
	st.url = scheme + "://" + strings.Join(st.hosts, ",")
	return st
}

// launch starts the stores of those kinds. One that does not start is told, and missing.
func (s *stage) launch(kinds []string, note func(string)) []*store {
	var all []*store
	for _, st := range starters {
		if !slices.Contains(kinds, st.kind) {
			continue
		}
		note("start " + st.kind)
		err := s.try(func() {
			got := st.start(s)
			got.kind, got.settings = st.kind, st.settings
			all = append(all, got)
		})
		if err != nil {
			note(fmt.Sprintf("%s does not start: %v", st.kind, err))
		}
	}
	return all
}
