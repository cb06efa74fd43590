package seckill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/sqllock"
)

// checkStore refuses a lock store that the servers of the shop cannot share. No error shows the URL.
func checkStore(raw string, chosen []strategy) error {
	scheme, err := backend.Scheme(raw)
	if err != nil {
		return fmt.Errorf("--backend: %w", err)
	}
	if scheme == "mem" {
		return errors.New("--backend: mem lives in one process, and the servers of the shop are several: leave --backend out for a SQLite file")
	}
	_, query, _ := strings.Cut(raw, "?")
	if q, _ := url.ParseQuery(query); q.Has("layout") && (onServer(scheme) || scheme == "sqlite") {
		return errors.New("--backend: a sale has tables of its own in a database: leave layout= out")
	}
	for _, s := range chosen {
		if s.naive && !hasNaive(scheme) {
			return fmt.Errorf("--backend: %s cannot be shown on %s: leave it out, or choose redis:// without Sentinels or cluster, or a database", s.name, scheme)
		}
	}
	return nil
}

// onServer reports whether stores of a scheme are database servers, where the shop is too.
func onServer(scheme string) bool {
	kind := backend.Kind(scheme + "://")
	return kind == "postgres" || kind == "mysql"
}

// openStore opens the lock store: on a database server, in a table of its own beside the shop's.
func openStore(ctx context.Context, raw, prefix string, db *ledger) (driver.Driver, error) {
	if scheme, err := backend.Scheme(raw); err != nil || !onServer(scheme) {
		return backend.Open(ctx, raw, prefix)
	}
	kind := sqllock.MySQL
	if db.dialect == fence.PostgreSQL {
		kind = sqllock.PostgreSQL
	}
	d := sqllock.New(db.write, kind, &sqllock.Options{Table: db.tables + "lock", Prefix: prefix})
	if err := d.CreateSchema(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// shortSession is the URL of a lock store for holders that are paused past the end of their lease: ZooKeeper, where a lease
// lives as long as a session, is asked for a short one, unless the URL says how long.
func shortSession(raw string) string {
	_, query, has := strings.Cut(raw, "?")
	if q, err := url.ParseQuery(query); backend.Kind(raw) != "zk" || err != nil || q.Has("timeout") {
		return raw
	}
	if has {
		return raw + "&timeout=4s"
	}
	return raw + "?timeout=4s"
}

// openServer makes the shop's tables on the database server that has the locks. leave drops them, and says on stderr when
// it cannot.
func (r *run) openServer(ctx context.Context, stderr io.Writer) (leave func(), err error) {
	db, err := openLedger(r.place())
	if err != nil {
		return nil, err
	}
	leave = func() { // also after Ctrl-C
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		if err := db.drop(ctx); err != nil && r.server != nil {
			fmt.Fprintf(stderr, "seckill: tables named %s… may be left in the database: %v\n", db.tables, err)
		}
		db.close()
	}
	within, stop := context.WithTimeout(ctx, r.timeout)
	defer stop()
	if err := db.create(within); err != nil {
		leave()
		return nil, err
	}
	r.server = db
	return leave, nil
}

// tryStore takes and gives back a lock, so that a store that cannot be used is an error before anything starts, and tells
// whether it has tokens.
func (r *run) tryStore(ctx context.Context) (tokens bool, err error) {
	ctx, stop := context.WithTimeout(ctx, r.timeout)
	defer stop()
	d, err := openStore(ctx, r.backend, r.prefix, r.server)
	if err != nil {
		return false, err
	}
	locks := pawl.New(d)
	l, err := locks.Mutex(r.lock("probe")).TryLock(ctx)
	if err == nil {
		tokens = l.Token() != 0
		err = l.Unlock()
	}
	return tokens, errors.Join(err, locks.Close())
}

// lock is the name of one strategy's lock.
func (r *run) lock(strategy string) string { return "pawl-seckill:" + r.id + ":" + strategy }

// storeCode is the exit code for a store that cannot be used.
func storeCode(err error) int {
	switch {
	case errors.Is(err, pawl.ErrInvalid), errors.Is(err, pawl.ErrMismatch), errors.Is(err, errors.ErrUnsupported):
		return codeUsage
	case errors.Is(err, fs.ErrPermission):
		return codePermission
	}
	return codeUnavailable
}

// sqlitePath is the file of a sqlite URL: sqlite:///full/path or sqlite:relative.
func sqlitePath(raw string) (string, error) {
	_, rest, _ := strings.Cut(raw, ":")
	path, err := url.PathUnescape(strings.TrimPrefix(rest, "//"))
	if err != nil || path == "" {
		return "", errors.New("the URL of the lock store names no file")
	}
	return path, nil
}
