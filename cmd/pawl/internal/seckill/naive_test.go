package seckill

import (
	"net/url"
	"path/filepath"
	"testing"
	"time"
)

// naiveRules are what the lock of the blog post does: it is exclusive, it runs out, and anybody can delete it.
func naiveRules(t *testing.T, raw string, db *ledger) {
	ctx := t.Context()
	a, err := openNaive(raw, "k", db)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	b, err := openNaive(raw, "k", db)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	take := func(n naiveLock, ttl time.Duration) bool {
		t.Helper()
		ok, err := n.setNX(ctx, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !take(a, time.Hour) || take(b, time.Hour) || take(a, time.Hour) {
		t.Error("want the key to be set once")
	}
	if err := b.del(ctx); err != nil {
		t.Fatal(err)
	}
	if !take(b, time.Millisecond) {
		t.Error("want the key to be free after anybody's del")
	}
	time.Sleep(20 * time.Millisecond)
	if !take(a, time.Hour) {
		t.Error("want the key to have run out")
	}
	if err := a.del(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.del(ctx); err != nil {
		t.Errorf("del of a key that is not there: %v", err)
	}
}

func TestNaiveTable(t *testing.T) {
	raw := (&url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "locks 1.db")}).String()
	naiveRules(t, raw, nil)
	for range 2 {
		if err := dropNaive(t.Context(), raw); err != nil {
			t.Errorf("drop: %v", err)
		}
	}
	path, err := sqlitePath(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(place{File: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var n int
	if err := l.read.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables left, %v", n, err)
	}
}
