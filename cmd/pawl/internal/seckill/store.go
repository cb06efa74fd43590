package seckill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
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
	for _, s := range chosen {
		if s.naive && naiveOf(scheme) == nil {
			return fmt.Errorf("--backend: %s has no SET NX: leave %s out, or choose a store that begins with redis:// or sqlite://", scheme, s.name)
		}
	}
	return nil
}

// tryStore takes and gives back a lock, so that a store that cannot be used is an error before anything starts.
func (r *run) tryStore(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, r.timeout)
	defer stop()
	d, err := backend.Open(ctx, r.backend, r.prefix)
	if err != nil {
		return err
	}
	locks := pawl.New(d)
	l, err := locks.Mutex(r.lock("probe")).TryLock(ctx)
	if err == nil {
		err = l.Unlock()
	}
	return errors.Join(err, locks.Close())
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
