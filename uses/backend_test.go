package uses

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// ttl is that of leases whose end is waited for: the least that etcd grants. longTTL is that of the others, which a busy machine must not
// end.
const (
	ttl     = 2 * time.Second
	longTTL = time.Minute
)

// backend is one store that the programs run over.
type backend struct {
	name    string
	url     string
	memory  *memlock.Driver // instead of url: its processes are goroutines
	free    func() bool     // reports whether nobody has a file locked; nil: no file
	restart func()          // kills the server and starts it again, with its data; nil: there is none
	shopAt  *shop
}

// backends start each one for a test that runs it. Those that are forgetful cannot keep a record beyond a session, and so carry no
// Once and no Schedule.
var backends = []struct {
	name      string
	forgetful bool
	start     func(t *testing.T) *backend
}{
	{"memory", false, func(t *testing.T) *backend { return &backend{memory: memlock.New()} }},
	{"redis", false, func(t *testing.T) *backend {
		s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		return &backend{url: s.URL, restart: func() { s.Kill(); s.Restart() }}
	}},
	{"postgres", false, func(t *testing.T) *backend {
		s := sqltest.StartPostgres(t)
		return &backend{url: s.URL, restart: s.Restart}
	}},
	{"mariadb", false, func(t *testing.T) *backend {
		s := sqltest.StartMariaDB(t)
		return &backend{url: s.URL, restart: s.Restart}
	}},
	{"sqlite", false, func(t *testing.T) *backend {
		file := filepath.Join(t.TempDir(), "locks.db")
		return &backend{url: "sqlite://" + file, free: func() bool {
			db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(1000)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			tx, err := db.Begin()
			return err == nil && tx.Rollback() == nil
		}}
	}},
	{"zookeeper", true, func(t *testing.T) *backend {
		s := zktest.Start(t, zktest.Config{Sync: true})
		return &backend{url: "zookeeper://" + s.Addr, restart: func() {
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
		}}
	}},
	{"etcd", false, func(t *testing.T) *backend {
		m := etcdtest.Start(t, etcdtest.Options{}).Members[0]
		return &backend{url: "etcd://" + m.Addr, restart: m.Restart}
	}},
}

// programs run one after another over a backend; the backends run at once, since the programs wait more than they work.
var programs = []struct {
	name string
	run  func(t *testing.T, b *backend)
	not  func(t *testing.T, b *backend) // instead, over a forgetful backend; nil: run
}{
	{"Bank", bank, nil},
	{"Holder", holder, nil},
	{"Election", election, nil},
	{"Once", once, noOnce},
	{"Cron", cron, noSchedule},
	{"Wrapped", wrapped, nil},
	{"Guards", guards, nil},
}

func TestUses(t *testing.T) {
	shop := startShop(t)
	for _, x := range backends {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			var b *backend
			for _, p := range programs {
				t.Run(p.name, func(t2 *testing.T) {
					once.Do(func() { // only if one of its programs was asked for
						b = x.start(t)
						b.name = x.name
						b.shop(shop)
					})
					if b == nil {
						t2.Fatal("its server did not start")
					}
					run := p.run
					if x.forgetful && p.not != nil {
						run = p.not
					}
					run(t2, b)
				})
			}
		})
	}
}

// open makes the client of one process.
func open(store string, memory *memlock.Driver, o pawl.Options) (*pawl.Client, error) {
	var d driver.Driver
	u, err := url.Parse(store)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	switch {
	case memory != nil:
		d = memory.Share()
	case u.Scheme == "redis":
		d, err = redislock.Open(ctx, store, nil)
	case u.Scheme == "zookeeper":
		d, err = zklock.Open(ctx, store, &zklock.Options{SessionTimeout: cmp.Or(o.TTL, ttl)})
	case u.Scheme == "etcd":
		d, err = etcdlock.Open(ctx, store, nil)
	default:
		d, err = sqllock.Open(ctx, store, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Scheme, err)
	}
	return pawl.New(d).With(pawl.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)}).With(o), nil
}
