package seckill

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/fence"
)

// The SQL guard of package fence, on a real database. (Its module has no driver to test it with.)

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l, err := openLedger(place{File: filepath.Join(t.TempDir(), "a b%20?#.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close() })
	if err := errors.Join(l.create(t.Context()), l.fill(t.Context(), 5, 1)); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *ledger) claim(ctx context.Context, tb fence.Table, resource string, lease fence.Lease) error {
	return l.inTx(ctx, func(tx *sql.Tx) error { return tb.Claim(ctx, tx, resource, lease) })
}

func TestClaim(t *testing.T) {
	l, ctx := newLedger(t), t.Context()
	for i, c := range []struct {
		resource string
		lease    message
		seen     int64 // of the StaleError; 0: passes
	}{
		{"a", message{"k", "h:1", 10}, 0},
		{"a", message{"k", "h:1", 10}, 0},
		{"a", message{"k", "h:2", 10}, 10},
		{"a", message{"k", "h:2", 9}, 10},
		{"a", message{"k", "h:3", 1 << 62}, 0},
		{"a", message{"k", "h:1", 10}, 1 << 62},
		{"A", message{"k", "h:1", 1}, 0},
		{"a ", message{"k", "h:1", 1}, 0},
		{"ä'\"`;--", message{"k", "h:1", 1}, 0},
		{"ä'\"`;--", message{"k", "h:1", 1}, 0},
	} {
		err := l.claim(ctx, l.marks, c.resource, c.lease)
		s, stale := errors.AsType[*fence.StaleError](err)
		switch {
		case c.seen == 0 && err != nil:
			t.Errorf("claim %d: got %v, want nil", i, err)
		case c.seen != 0 && (!stale || !errors.Is(err, fence.ErrStale) || s.Token != c.lease.token || s.Seen != c.seen || s.Resource != c.resource):
			t.Errorf("claim %d: got %v, want stale, %d seen", i, err, c.seen)
		}
	}
}

func TestClaimGoesWithItsTransaction(t *testing.T) {
	l, ctx := newLedger(t), t.Context()
	undo := errors.New("undo")
	if err := l.inTx(ctx, func(tx *sql.Tx) error {
		if err := l.marks.Claim(ctx, tx, "r", message{"k", "h:9", 9}); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		return undo
	}); err != undo {
		t.Fatal(err)
	}
	if err := l.claim(ctx, l.marks, "r", message{"k", "h:1", 1}); err != nil {
		t.Errorf("a claim that was rolled back counts: %v", err)
	}
	if err := l.claim(ctx, fence.Table{Dialect: fence.SQLite, Name: "missing"}, "r", message{"k", "h:1", 1}); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a missing table: got %v, want an error that is not ErrStale", err)
	}
}

func TestClaimInATableOfAnyName(t *testing.T) {
	l, ctx := newLedger(t), t.Context()
	for _, name := range []string{"main.Order", "select"} {
		tb := fence.Table{Dialect: fence.SQLite, Name: name}
		q, err := tb.CreateTable()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := l.write.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.claim(ctx, tb, "r", message{"k", "h:2", 2}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.claim(ctx, tb, "r", message{"k", "h:1", 1}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: got %v, want ErrStale", name, err)
		}
	}
}

// Another transaction's claim has to wait until the first one ends, and ctx ends the wait.
func TestClaimWaitsForTheTransactionBefore(t *testing.T) {
	l, ctx := newLedger(t), t.Context()
	other, err := openLedgerOf(t, l)
	if err != nil {
		t.Fatal(err)
	}
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- l.inTx(ctx, func(tx *sql.Tx) error {
			err := l.marks.Claim(ctx, tx, "r", message{"k", "h:2", 2})
			close(entered)
			<-leave
			return err
		})
	}()
	<-entered
	second := make(chan error, 1)
	go func() { second <- other.claim(ctx, l.marks, "r", message{"k", "h:1", 1}) }()
	select {
	case err := <-second:
		t.Errorf("the second claim did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("the first claim: %v", err)
	}
	if err := <-second; !errors.Is(err, fence.ErrStale) {
		t.Errorf("the second claim, with a smaller token: got %v, want ErrStale", err)
	}
}

func openLedgerOf(t *testing.T, l *ledger) (*ledger, error) {
	var seq int
	var name, file string
	if err := l.read.QueryRow("PRAGMA database_list").Scan(&seq, &name, &file); err != nil {
		return nil, err
	}
	o, err := openLedger(place{File: file})
	if err == nil {
		t.Cleanup(func() { o.close() })
	}
	return o, err
}

// The sale of one holder that is paused between its read and its write while another sells, in the two ways: with the
// claim before the read, and with a check at the write alone, which lets the late write in.
func TestClaimBeforeTheRead(t *testing.T) {
	for _, before := range []bool{true, false} {
		l, ctx := newLedger(t), t.Context()
		old, young := message{"k", "h:1", 1}, message{"k", "h:2", 2}
		read := func(m message) (left int) {
			if err := l.inTx(ctx, func(tx *sql.Tx) (err error) {
				if before {
					if err := l.marks.Claim(ctx, tx, resource, m); err != nil {
						return err
					}
				}
				left, _, err = l.look(ctx, tx, whole, 1)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return left
		}
		write := func(m message, left int) error {
			return l.inTx(ctx, func(tx *sql.Tx) error {
				if err := l.marks.Claim(ctx, tx, resource, m); err != nil {
					return err
				}
				return errors.Join(l.set(ctx, tx, whole, left), l.order(ctx, tx, uint32(m.token), 1))
			})
		}
		a := read(old)
		b := read(young)
		late := write(old, a-1) // after its pause, and before the other one writes
		if err := write(young, b-1); err != nil {
			t.Errorf("claim before the read %v: the new holder: %v", before, err)
		}
		n, err := l.count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		left, _, err := l.look(ctx, l.read, whole, 1)
		if err != nil {
			t.Fatal(err)
		}
		consistent := n.orders == 5-left
		if before && (!errors.Is(late, fence.ErrStale) || !consistent) {
			t.Errorf("with a claim before the read: late write %v, %d orders, %d left; want it refused", late, n.orders, left)
		}
		if !before && (late != nil || consistent) {
			t.Errorf("with a check at the write alone: late write %v, %d orders, %d left; want it let in and the stock wrong", late, n.orders, left)
		}
	}
}

func TestPathsAreEscaped(t *testing.T) {
	if s := dsn("/tmp/a b?c#d%20.db"); !strings.HasPrefix(s, "file:/tmp/a%20b%3Fc%23d%2520.db?") {
		t.Errorf("got %s", s)
	}
}
