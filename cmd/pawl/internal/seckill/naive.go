package seckill

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/fence"
)

// naiveLock is the lock of the first blog post: set a key unless it is there, with an expiry; delete it when done.
type naiveLock interface {
	setNX(ctx context.Context, ttl time.Duration) (bool, error)
	del(ctx context.Context) error // of anybody's key: nobody looks whose it is
	close()
}

// hasNaive reports whether stores of a scheme have something like SET NX.
func hasNaive(scheme string) bool {
	switch scheme {
	case "sqlite", "redis", "rediss", "unix", "redis+unix":
		return true
	}
	return onServer(scheme)
}

// openNaive opens one in the lock store, which is the shop's database if that is on a server.
func openNaive(raw, key string, db *ledger) (naiveLock, error) {
	scheme, err := backend.Scheme(raw)
	switch {
	case err != nil:
		return nil, err
	case !hasNaive(scheme):
		return nil, errors.ErrUnsupported
	case onServer(scheme):
		return db.naive(key), nil
	case scheme == "sqlite":
		return openNaiveTable(raw, key)
	}
	return openNaiveRedis(raw, key)
}

func openNaiveRedis(raw, key string) (naiveLock, error) {
	o, err := rueidis.ParseURL(strings.TrimPrefix(raw, "redis+"))
	if err != nil {
		return nil, errors.New("the URL of the lock store is not one of Redis") // err may show it
	}
	o.DisableCache = true
	c, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	return &naiveRedis{c, key}, nil
}

type naiveRedis struct {
	c   rueidis.Client
	key string
}

func (n *naiveRedis) setNX(ctx context.Context, ttl time.Duration) (bool, error) {
	err := n.c.Do(ctx, n.c.B().Set().Key(n.key).Value("1").Nx().Px(ttl).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

func (n *naiveRedis) del(ctx context.Context) error {
	return n.c.Do(ctx, n.c.B().Del().Key(n.key).Build()).Error()
}

func (n *naiveRedis) close() { n.c.Close() }

// naiveTable is the same in a table: a row stands for the key, and one whose time is over counts as absent.
type naiveTable struct {
	db    *sql.DB
	key   string
	words func(string) string
	put   string
	own   bool // db is to be closed
}

const (
	naiveHeld = "SELECT EXISTS (SELECT 1 FROM {}setnx WHERE k = ? AND until > ?)"
	naivePut  = "INSERT INTO {}setnx AS t (k, until) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET until = excluded.until WHERE t.until <= ?"
	naiveDel  = "DELETE FROM {}setnx WHERE k = ?"

	// naivePutMySQL counts no row when it leaves it as it was.
	naivePutMySQL = "INSERT INTO {}setnx (k, until) VALUES (?, ?) ON DUPLICATE KEY UPDATE until = IF(until <= ?, VALUES(until), until)"
)

// naive is a table beside the shop's.
func (l *ledger) naive(key string) naiveLock {
	n := &naiveTable{db: l.write, key: key, words: l.words, put: naivePut}
	if l.dialect == fence.MySQL {
		n.put = naivePutMySQL
	}
	return n
}

// openNaiveTable is a table in the SQLite file that has the locks.
func openNaiveTable(raw, key string) (naiveLock, error) {
	path, err := sqlitePath(raw)
	if err != nil {
		return nil, err
	}
	l, err := openLedger(place{File: path, Tables: naiveTables})
	if err != nil {
		return nil, err
	}
	if _, err := l.write.Exec(l.words("CREATE TABLE IF NOT EXISTS {}setnx (k TEXT PRIMARY KEY, until INTEGER NOT NULL)")); err != nil {
		l.close()
		return nil, err
	}
	l.read.Close()
	return &naiveTable{db: l.write, key: key, words: l.words, put: naivePut, own: true}, nil
}

// naiveTables is what the table's name begins with in a file of the user's.
const naiveTables = "pawl_seckill_"

func (n *naiveTable) setNX(ctx context.Context, ttl time.Duration) (bool, error) {
	now := time.Now()
	var held bool
	if err := n.db.QueryRowContext(ctx, n.words(naiveHeld), n.key, now.UnixMicro()).Scan(&held); err != nil || held {
		return false, err
	}
	r, err := n.db.ExecContext(ctx, n.words(n.put), n.key, now.Add(ttl).UnixMicro(), now.UnixMicro())
	if err != nil {
		return false, err
	}
	rows, err := r.RowsAffected()
	return rows > 0, err
}

func (n *naiveTable) del(ctx context.Context) error {
	_, err := n.db.ExecContext(ctx, n.words(naiveDel), n.key)
	return err
}

func (n *naiveTable) close() {
	if n.own {
		n.db.Close()
	}
}

// dropNaive takes back what openNaiveTable put into a file that is the user's. Redis forgets the key by itself.
func dropNaive(ctx context.Context, raw string) error {
	if scheme, err := backend.Scheme(raw); err != nil || scheme != "sqlite" {
		return err
	}
	path, err := sqlitePath(raw)
	if err != nil {
		return err
	}
	l, err := openLedger(place{File: path})
	if err != nil {
		return err
	}
	defer l.close()
	_, err = l.write.ExecContext(ctx, "DROP TABLE IF EXISTS "+naiveTables+"setnx")
	return err
}
