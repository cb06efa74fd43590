package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// openConcurrency is etcd's own concurrency.Mutex. Two who want one key need a session each: with a session in common both
// would have it. So each that waits takes a session from a pool, unless the keys are all different.
func openConcurrency(ctx context.Context, url string, c bench.Case) (*bench.Session, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: hostsOf(url), Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	session := func() (*concurrency.Session, error) {
		return concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
	}
	var mu sync.Mutex
	var pool []*concurrency.Session
	take := func() (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(pool); n > 0 {
			s := pool[n-1]
			if !c.Own && c.Kind != bench.Held {
				pool = pool[:n-1]
			}
			return s, nil
		}
		s, err := session()
		if err == nil && (c.Own || c.Kind == bench.Held) {
			pool = append(pool, s)
		}
		return s, err
	}
	give := func(s *concurrency.Session) {
		if c.Own || c.Kind == bench.Held {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		pool = append(pool, s)
	}
	// As many sessions as there are going to be, beforehand: they are not what is measured.
	if !c.Own && c.Kind != bench.Held {
		for range max(c.Goroutines/max(c.Processes, 1), 1) {
			s, err := session()
			if err != nil {
				return nil, err
			}
			pool = append(pool, s)
		}
	}
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			s, err := take()
			if err != nil {
				return nil, err
			}
			m := concurrency.NewMutex(s, key)
			if err := m.Lock(ctx); err != nil {
				give(s)
				return nil, err
			}
			return unlock(func(ctx context.Context) error {
				defer give(s)
				return m.Unlock(ctx)
			}), nil
		},
		Close: client.Close,
	}, nil
}

// openZooLock is the Lock of go-zookeeper/zk. It knows no context: it ends with the connection.
func openZooLock(ctx context.Context, url string, _ bench.Case) (*bench.Session, error) {
	conn, events, err := zk.Connect(hostsOf(url), ttl, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	for ok := false; !ok; {
		select {
		case e := <-events:
			ok = e.State == zk.StateHasSession
		case <-ctx.Done():
			conn.Close()
			return nil, ctx.Err()
		}
	}
	go func() {
		for range events { // else it may block
		}
	}()
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			l := zk.NewLock(conn, "/"+key, zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return nil, err
			}
			return unlock(func(context.Context) error { return l.Unlock() }), nil
		},
		Close: func() error { conn.Close(); return nil },
	}, nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// openDB opens the database at a URL as pawl knows it.
func openDB(raw string) (db *sql.DB, isMySQL bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, false, errors.New("the URL cannot be read")
	}
	if u.Scheme != "mysql" {
		db, err = sql.Open("pgx", raw)
		return db, false, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName, cfg.InterpolateParams = u.User.Username(), "tcp", u.Host, strings.Trim(u.Path, "/"), true
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, true, err
	}
	return sql.OpenDB(connector), true, nil
}

// openTable is a table with the names of the locks that are held: INSERT, DELETE, and a new try every 10 ms.
func openTable(ctx context.Context, url string, _ bench.Case) (*bench.Session, error) {
	db, isMySQL, err := openDB(url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS bench_lock (name varchar(200) PRIMARY KEY)"); err != nil && !duplicate(err) {
		db.Close()
		return nil, err
	}
	insert, remove := "INSERT INTO bench_lock VALUES ($1)", "DELETE FROM bench_lock WHERE name = $1"
	if isMySQL {
		insert, remove = "INSERT INTO bench_lock VALUES (?)", "DELETE FROM bench_lock WHERE name = ?"
	}
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			err := polled(ctx, func() (bool, error) {
				_, err := db.ExecContext(ctx, insert, key)
				if err == nil {
					return true, nil
				}
				if duplicate(err) {
					return false, nil
				}
				return false, err
			})
			if err != nil {
				return nil, err
			}
			return unlock(func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, remove, key)
				return err
			}), nil
		},
		Close: db.Close,
	}, nil
}

// duplicate reports that a row is there already, or that the database undid the statement since another one was in its way.
func duplicate(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == 1062 || e.Number == 1213 || e.Number == 1205
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "23505" || e.Code == "40P01" || e.Code == "42P07"
	}
	return false
}

// openGetLock is MySQL's GET_LOCK, which wants a connection for each that waits.
func openGetLock(ctx context.Context, url string, c bench.Case) (*bench.Session, error) {
	return openSessionLock(ctx, url, c, "SELECT GET_LOCK(?, 100000)", "SELECT RELEASE_LOCK(?)")
}

// openAdvisory is PostgreSQL's pg_advisory_lock, likewise. Its keys are numbers.
func openAdvisory(ctx context.Context, url string, c bench.Case) (*bench.Session, error) {
	return openSessionLock(ctx, url, c, "SELECT 1 FROM (SELECT pg_advisory_lock(hashtextextended($1, 0))) AS l",
		"SELECT pg_advisory_unlock(hashtextextended($1, 0))::int")
}

func openSessionLock(ctx context.Context, url string, c bench.Case, lock, free string) (*bench.Session, error) {
	db, _, err := openDB(url)
	if err != nil {
		return nil, err
	}
	n := max(c.Goroutines/max(c.Processes, 1), 2)
	if n > 1100 {
		return nil, fmt.Errorf("it would need %d connections", n)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	// The connections beforehand: they are not what is measured.
	if c.Kind != bench.Cycles {
		n = 1
	}
	conns := make([]*sql.Conn, n)
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := g; i < n; i += 16 {
				conn, err := db.Conn(ctx)
				if err != nil {
					errs <- err
					return
				}
				conns[i] = conn
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		db.Close()
		return nil, err
	default:
	}
	for _, conn := range conns {
		conn.Close()
	}
	return &bench.Session{
		Lock: func(ctx context.Context, key string) (bench.Unlocker, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			var got int
			if err := conn.QueryRowContext(ctx, lock, key).Scan(&got); err != nil || got != 1 {
				conn.Close()
				return nil, errors.Join(err, ctx.Err())
			}
			return unlock(func(ctx context.Context) error {
				defer conn.Close()
				var done int
				err := conn.QueryRowContext(ctx, free, key).Scan(&done)
				if err == nil && done != 1 {
					err = errNotOurs
				}
				return err
			}), nil
		},
		Close: func() error { return db.Close() },
	}, nil
}
