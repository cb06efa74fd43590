package zklock_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// server is shared by the tests of this package that do not harm it.
var server *zktest.Server

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "12") // the tests hardly compute; they wait
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" || flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(m.Run()) // they need no server
	}
	os.Exit(func() int {
		var err error
		if server, err = zktest.New(zktest.Config{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		return m.Run()
	}())
}

// session is the session timeout of most tests: as short as a busy machine allows.
const session = 5 * time.Second

var everyKind = []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, zktest.Config{})
	raw := connect(t, s.Addr, 20*time.Second)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			return open(t, "zookeeper://"+s.Addr+"/locks", &zklock.Options{SessionTimeout: session})
		},
		Kinds:       everyKind,
		MinTTL:      time.Second,
		WriterFirst: true,
		Delete: func(t testing.TB, name string) {
			if !deleteAll(t, raw, "/locks/"+name) {
				t.Fatalf("nothing to delete of %q", name)
			}
		},
		Stall: func(testing.TB) func() {
			s.Stop()
			return s.Cont
		},
	})
}

// connect makes a connection that knows nothing of pawl.
func connect(t testing.TB, addr string, session time.Duration) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, session, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func open(t testing.TB, url string, opts *zklock.Options) *zklock.Driver {
	t.Helper()
	d, err := zklock.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// deleteAll deletes a node and all below it.
func deleteAll(t testing.TB, conn *zk.Conn, path string) bool {
	t.Helper()
	for {
		children, _, err := conn.Children(path)
		if err == zk.ErrNoNode {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range children {
			deleteAll(t, conn, path+"/"+c)
		}
		switch err := conn.Delete(path, -1); err {
		case nil, zk.ErrNoNode:
			return true
		case zk.ErrNotEmpty:
		default:
			t.Fatal(err)
		}
	}
}
