package seckill

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

// naiveLock is the lock of the first blog post: set a key unless it is there, with an expiry; delete it when done.
type naiveLock interface {
	setNX(ctx context.Context, ttl time.Duration) (bool, error)
	del(ctx context.Context) error // of anybody's key: nobody looks whose it is
	close()
}

// naiveOf is how to open one on stores of a scheme, or nil.
func naiveOf(scheme string) func(raw, key string) (naiveLock, error) {
	switch scheme {
	case "sqlite":
		return openNaiveTable
	case "redis", "rediss", "unix", "redis+unix":
		return openNaiveRedis
	}
	return nil
}

func openNaive(raw, key string) (naiveLock, error) {
	scheme, err := backend.Scheme(raw)
	if err != nil {
		return nil, err
	}
	open := naiveOf(scheme)
	if open == nil {
		return nil, errors.ErrUnsupported
	}
	return open(raw, key)
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

// naiveTable is the same in the SQLite file that has the locks: a row stands for the key, and one whose time is over
// counts as absent.
type naiveTable struct {
	db  *sql.DB
	key string
}

func openNaiveTable(raw, key string) (naiveLock, error) {
	path, err := sqlitePath(raw)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS " + naiveTableName + " (k TEXT PRIMARY KEY, until INTEGER NOT NULL)")
	if err != nil {
		db.Close()
		return nil, err
	}
	return &naiveTable{db, key}, nil
}

const naiveTableName = "pawl_seckill_setnx"

func (n *naiveTable) setNX(ctx context.Context, ttl time.Duration) (bool, error) {
	now := time.Now()
	var held bool
	if err := n.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+naiveTableName+" WHERE k = ? AND until > ?)", n.key, now.UnixMicro()).Scan(&held); err != nil || held {
		return false, err
	}
	r, err := n.db.ExecContext(ctx, "INSERT INTO "+naiveTableName+" AS t (k, until) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET until = excluded.until WHERE t.until <= ?",
		n.key, now.Add(ttl).UnixMicro(), now.UnixMicro())
	if err != nil {
		return false, err
	}
	rows, err := r.RowsAffected()
	return rows == 1, err
}

func (n *naiveTable) del(ctx context.Context) error {
	_, err := n.db.ExecContext(ctx, "DELETE FROM "+naiveTableName+" WHERE k = ?", n.key)
	return err
}

func (n *naiveTable) close() { n.db.Close() }

// dropNaive takes back what openNaiveTable put into a file that is the user's. Redis forgets the key by itself.
func dropNaive(ctx context.Context, raw string) error {
	if scheme, err := backend.Scheme(raw); err != nil || scheme != "sqlite" {
		return err
	}
	path, err := sqlitePath(raw)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "DROP TABLE IF EXISTS "+naiveTableName)
	return err
}
