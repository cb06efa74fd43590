package record

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
)

// OnceInTx runs fn for key in a transaction of db, and commits what fn has done together with the record of it, unless a run of
// it was recorded within the last window, here or in another process; then it answers what that run answered (T goes through
// encoding/json). The key is 1 to 1024 bytes of any kind, compared byte by byte.
//
// Callers of one key come one after another under the Mutex of that name of locks: OnceInTx waits for it as Mutex.Lock does.
// With nil for locks they do not wait for each other, and all but one of those that run at once have worked in vain. An error of
// the locks' store is answered as it is; nil is a way to go on without that store.
//
// fn must do its work through tx, must not end tx, must return the errors of the database, and may run more than once: OnceInTx
// begins again, up to ten times, when the database reports a deadlock or a serialization failure, when another run was recorded
// meanwhile, and when the lock was lost (but not after its MaxHold, or Close). fn's context ends with ctx and with the lock, and tx
// is rolled back then. An error of fn is not recorded and answered as it is; it rolls back, and so does a panic.
//
// When OnceInTx answers an error, nothing was done, unless the error matches pawl.ErrUnknown: then the commit was under way and its
// answer did not come. The next call finds the record, or does the work. To keep such cases rare, ctx does not cut a commit
// that was sent: it has three more seconds (if the driver lets a commit be cut at all: MySQL's goes by the readTimeout of its DSN).
//
// On SQLite let transactions begin as writers (with modernc's driver: _txlock=immediate), and keep the locks in another file.
func OnceInTx[T any](ctx context.Context, locks *pawl.Client, db *sql.DB, t Table, key string, window time.Duration,
	fn func(ctx context.Context, tx *sql.Tx) (T, error)) (v T, err error) {
	c := &call{locks: locks, db: db, t: t, key: key, window: window}
	c.work = func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		if v, err = fn(ctx, tx); err != nil {
			return nil, err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("pawl: once %q: its result cannot be recorded, so nothing was done: %w", key, err)
		}
		return b, nil
	}
	var zero T
	stored, mine, err := c.once(ctx)
	switch {
	case err != nil:
		return zero, err
	case mine:
		return v, nil
	}
	v = zero
	if err := json.Unmarshal(stored, &v); err != nil {
		return zero, fmt.Errorf("pawl: once %q: the recorded result is no %T: %w", key, v, err)
	}
	return v, nil
}

const (
	attempts    = 10
	commitLimit = 3 * time.Second // for a commit whose context has ended, and for the look after it
	sweepOneIn  = 16              // recorded runs; each sweep takes away more than as many have come
	sweepLimit  = time.Second
)

type call struct {
	locks  *pawl.Client
	db     *sql.DB
	t      Table
	table  string
	key    string
	window time.Duration
	work   func(ctx context.Context, tx *sql.Tx) ([]byte, error)
}

// again is a reason to begin again: nothing was done.
type again struct{ error }

func (a again) Unwrap() error { return a.error }

// within is the stack of calls that a context is inside of.
type within struct {
	c  *call
	up *within
}

type withinKey struct{}

func (c *call) once(ctx context.Context) (stored []byte, mine bool, err error) {
	if c.table, err = c.t.quoted(); err != nil {
		return nil, false, err
	}
	up, _ := ctx.Value(withinKey{}).(*within)
	for w := up; w != nil; w = w.up {
		if w.c.key == c.key && w.c.db == c.db && w.c.table == c.table {
			return nil, false, c.invalid("called by its own function")
		}
	}
	switch {
	case c.db == nil:
		return nil, false, c.invalid("no database")
	case c.key == "" || len(c.key) > maxKey:
		return nil, false, c.invalid("a key of %d bytes: 1 to %d", len(c.key), maxKey)
	case c.window < time.Millisecond:
		return nil, false, c.invalid("a window of %v: at least 1ms", c.window)
	}
	ctx = context.WithValue(ctx, withinKey{}, &within{c, up})
	for n := range attempts {
		stored, mine, err = c.attempt(ctx)
		if _, ok := errors.AsType[again](err); !ok {
			break
		}
		if n == attempts-1 {
			return nil, false, c.wrap("given up, nothing was done", err)
		}
		if !sleep(ctx, time.Millisecond<<n) {
			return nil, false, errors.Join(context.Cause(ctx), err)
		}
	}
	if mine && mathrand.N(sweepOneIn) == 0 {
		ctx, stop := context.WithTimeout(ctx, sweepLimit)
		defer stop()
		c.t.Sweep(ctx, c.db) // the next one sweeps what this one could not
	}
	return stored, mine, err
}

func (c *call) invalid(format string, args ...any) error {
	return fmt.Errorf("pawl: once %.80q: "+format+" (%w)", append(append([]any{c.key}, args...), pawl.ErrInvalid)...)
}

func (c *call) wrap(what string, err error) error {
	return fmt.Errorf("pawl: once %q: %s: %w", c.key, what, err)
}

// attempt takes the lock, and runs the work unless it has been done.
func (c *call) attempt(ctx context.Context) (stored []byte, mine bool, err error) {
	if c.locks == nil {
		return c.run(ctx, nil)
	}
	l, err := c.locks.Mutex(c.key).Lock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer l.Unlock() // what it answers does not matter any more
	stored, mine, err = c.run(l.Context(ctx), l)
	if err == nil || ctx.Err() != nil || errors.Is(err, pawl.ErrUnknown) {
		return stored, mine, err
	}
	if lost, ok := errors.AsType[*pawl.LostError](l.Err()); ok {
		if err = errors.Join(err, lost); lost.Reason == pawl.Expired || lost.Reason == pawl.Revoked {
			err = again{err} // somebody else may have done it
		}
	}
	return nil, false, err
}

// run does the work in a transaction, unless it has been done.
func (c *call) run(ctx context.Context, l *pawl.Lease) (stored []byte, mine bool, err error) {
	// Outside of the transaction, so that what the work reads, or claims, comes first in it.
	before, err := c.look(ctx)
	if err != nil || before.live {
		return before.result, false, err
	}

	// The transaction lives as long as ctx does, but for its commit.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	bound := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer bound()
	tx, err := c.db.BeginTx(life, &sql.TxOptions{Isolation: c.t.Isolation})
	if err != nil {
		return nil, false, c.failed("begin", err)
	}
	defer tx.Rollback()
	if err := c.savepoint(ctx, tx, "SAVEPOINT pawl_once"); err != nil {
		return nil, false, c.failed("begin", err)
	}
	result, err := c.work(ctx, tx)
	if err != nil {
		if c.t.conflict(err) {
			err = again{err}
		}
		return nil, false, err
	}
	if err := c.savepoint(ctx, tx, "RELEASE SAVEPOINT pawl_once"); err != nil {
		return nil, false, c.failed("the transaction is not the same any more, so that its work is not recorded: did the function end it, or go on after a deadlock?", err)
	}
	id := rand.Text()
	first, err := c.insert(ctx, tx, row{run: id, hold: l.ID(), token: l.Token(), result: result}, before.at)
	if err != nil {
		return nil, false, c.failed("record", err)
	}
	if !first {
		return nil, false, again{c.wrap("record", errors.New("another run was recorded meanwhile"))}
	}
	if !bound() {
		return nil, false, c.wrap("commit", context.Cause(ctx))
	}
	limit := context.AfterFunc(ctx, func() { time.AfterFunc(commitLimit, func() { end(context.Cause(ctx)) }) })
	defer limit()
	if err := tx.Commit(); err != nil {
		return c.settle(ctx, id, err)
	}
	return nil, true, nil
}

// settle finds out what came of a commit that answered an error.
func (c *call) settle(ctx context.Context, id string, failure error) (stored []byte, mine bool, err error) {
	if c.t.conflict(failure) {
		return nil, false, again{c.wrap("commit", failure)}
	}
	brief, stop := context.WithTimeout(context.WithoutCancel(ctx), commitLimit)
	defer stop()
	after, err := c.look(brief)
	switch {
	case err == nil && after.live && after.run == id:
		return nil, true, nil
	case err == nil && after.live:
		return after.result, false, nil
	case c.t.refused(failure): // by a deferred constraint perhaps
		return nil, false, c.wrap("commit", failure)
	case err == nil && ctx.Err() == nil: // if it comes through late, the next attempt cannot
		return nil, false, again{c.wrap("commit", failure)}
	}
	return nil, false, fmt.Errorf("pawl: once %q: the commit was not confirmed (%w), the next call will tell: %w", c.key, pawl.ErrUnknown,
		errors.Join(failure, err))
}

// failed wraps an error of the database.
func (c *call) failed(what string, err error) error {
	if c.t.conflict(err) {
		return again{c.wrap(what, err)}
	}
	return c.wrap(what, err)
}

// savepoint marks the transaction where that can be asked for later. MySQL and SQLite end a transaction by themselves after some
// errors (and MySQL before any change of a table), and go on without one: what follows would be committed by itself.
func (c *call) savepoint(ctx context.Context, tx *sql.Tx, q string) error {
	if c.t.Dialect == fence.PostgreSQL {
		return nil // a transaction that has failed stays so
	}
	_, err := tx.ExecContext(ctx, q)
	return err
}

// row is what the table has of a key.
type row struct {
	run    string // of the run that was recorded
	hold   string // under which it ran, for people
	token  int64
	result []byte
	live   bool
	at     int64 // when it was looked at
}

func (c *call) look(ctx context.Context) (r row, err error) {
	q := c.t.place("SELECT n.ms, r.ends, r.run, r.result FROM (SELECT " + c.t.now() + " AS ms) n LEFT JOIN " + c.table + " r ON r.name = $1")
	var ends sql.NullInt64
	var run sql.NullString
	if err := c.db.QueryRowContext(ctx, q, []byte(c.key)).Scan(&r.at, &ends, &run, &r.result); err != nil {
		return row{}, c.failed("look for the record", err)
	}
	r.run, r.live = run.String, ends.Valid && ends.Int64 > r.at
	return r, nil
}

// insert writes the record into tx, and reports whether it is the first since the given time. While another transaction has written one, it
// waits for that one's end.
func (c *call) insert(ctx context.Context, tx *sql.Tx, r row, since int64) (bool, error) {
	into := "INSERT INTO " + c.table
	values := " (name, ends, run, hold, token, result) VALUES ($1, " + c.t.now() + " + $2, $3, $4, $5, $6) "
	args := []any{[]byte(c.key), (c.window + time.Millisecond - 1).Milliseconds(), r.run, r.hold, r.token, r.result}
	if c.t.Dialect != fence.MySQL {
		q := into + " AS old" + values + "ON CONFLICT (name) DO UPDATE SET ends = excluded.ends, run = excluded.run, hold = excluded.hold, " +
			"token = excluded.token, result = excluded.result WHERE old.ends <= $7"
		done, err := tx.ExecContext(ctx, c.t.place(q), append(args, since)...)
		if err != nil {
			return false, err
		}
		n, err := done.RowsAffected()
		return n > 0, err
	}
	// Assignments see those before them, so that of ends is the last. Whether they were made is not told by the count of rows,
	// which depends on how the driver was opened.
	set := func(column string) string {
		return fmt.Sprintf("%s = IF(ends <= %d, VALUES(%[1]s), %[1]s)", column, since)
	}
	q := into + values + "ON DUPLICATE KEY UPDATE " + set("run") + ", " + set("hold") + ", " + set("token") + ", " + set("result") + ", " + set("ends")
	if _, err := tx.ExecContext(ctx, c.t.place(q), args...); err != nil {
		return false, err
	}
	var run string
	err := tx.QueryRowContext(ctx, "SELECT run FROM "+c.table+" WHERE name = ?", []byte(c.key)).Scan(&run)
	if errors.Is(err, sql.ErrNoRows) { // another one, behind our snapshot
		return false, nil
	}
	return run == r.run, err
}

// sleep waits for about d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + mathrand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
