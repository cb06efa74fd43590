package oncetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/record"
)

const day = 24 * time.Hour

func TestSQLite(t *testing.T) {
	t.Parallel()
	d := openSQLite(t, "immediate")
	d.rules(t)
	t.Run("deferred", func(t *testing.T) {
		d := openSQLite(t, "deferred")
		t.Run("paused", d.paused)
		t.Run("paused for longer than the window", d.late)
		t.Run("without locks", d.lockless)
	})
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	d := openMariaDB(t)
	d.rules(t)
	d.serverRules(t)
	t.Run("changes a table", func(t *testing.T) { d.endsItself(t, "CREATE TABLE other (n INT)") })
	t.Run("flags", func(t *testing.T) { // that change what the driver counts
		db, err := sql.Open("mysql", d.dsn+"?clientFoundRows=true&interpolateParams=true")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		e := &database{DB: db, Table: d.Table, server: d.server}
		t.Run("paused", e.paused)
		t.Run("duplicates", e.duplicates)
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	d := openPostgres(t)
	d.rules(t)
	d.serverRules(t)
	t.Run("commit", d.slowCommit)
}

// rules are true of every database.
func (d *database) rules(t *testing.T) {
	t.Run("duplicates", d.duplicates)
	t.Run("without locks", d.lockless)
	t.Run("errors", d.errors)
	t.Run("keys", d.keys)
	t.Run("window", d.windows)
	t.Run("sweep", d.sweep)
	t.Run("conflicts", d.conflicts)
	t.Run("cancelled", d.cancelled)
	t.Run("lost", d.lost)
	t.Run("ends itself", func(t *testing.T) { d.endsItself(t, "ROLLBACK") })
	t.Run("wrong use", d.wrong)
	t.Run("processes", d.processes)
}

func (d *database) serverRules(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			e := *d
			e.Isolation = level
			t.Run("paused", e.paused)
			t.Run("paused for longer than the window", e.late)
			t.Run("without locks", e.lockless)
			t.Run("together", e.together)
			t.Run("conflicts", e.conflicts)
		})
	}
	t.Run("restart", d.restart)
}

// clients are several over one store of locks, as processes have them.
func clients(t *testing.T, n int, o pawl.Options) (*memlock.Driver, []*pawl.Client) {
	store := memlock.New()
	var all []*pawl.Client
	for range n {
		c := pawl.New(store.Share())
		t.Cleanup(func() { c.Close() })
		all = append(all, c.With(o))
	}
	return store, all
}

// duplicates: of a hundred requests one makes an order, and all get it.
func (d *database) duplicates(t *testing.T) {
	_, locks := clients(t, 4, pawl.Options{})
	key := t.Name()
	var runs atomic.Int64
	var wg sync.WaitGroup
	for k := range 100 {
		wg.Go(func() {
			o, err := record.OnceInTx(t.Context(), locks[k%4], d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
				runs.Add(1)
				if pawl.FromContext(ctx, key).Token() == 0 {
					t.Error("the function has no lease")
				}
				return d.insert(ctx, tx, key, "the first")
			})
			if err != nil || o.Who != "the first" {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
	wg.Wait()
	if n, r := d.orders(t, key), runs.Load(); n != 1 || r != 1 {
		t.Errorf("%d orders by %d runs, want one", n, r)
	}
}

// lockless: the table alone sees to it that there is one order; the lock only saves work.
func (d *database) lockless(t *testing.T) {
	const n = 8
	for round := range 5 {
		key := fmt.Sprint(t.Name(), round)
		var wg sync.WaitGroup
		answers := make([]order, n)
		for k := range n {
			wg.Go(func() {
				o, err := record.OnceInTx(t.Context(), nil, d.DB, d.Table, key, day, d.making(key, fmt.Sprint(k)))
				if err != nil {
					t.Error(err)
				}
				answers[k] = o
			})
		}
		wg.Wait()
		for _, o := range answers {
			if o != answers[0] || o.Item != key {
				t.Errorf("answers differ: %v", answers)
				break
			}
		}
		if n := d.orders(t, key); n != 1 {
			t.Errorf("%d orders, want one", n)
		}
		if n := d.number(t, "SELECT COUNT(*) FROM orders WHERE item = ? AND who = ?", key, answers[0].Who); n != 1 {
			t.Errorf("the order is not the one that was answered, %+v", answers[0])
		}
	}
}

// together: runs that record the same key within the same millisecond are a conflict like any other. Nothing else of the record
// may collide.
func (d *database) together(t *testing.T) {
	const n = 8
	for round := range 25 {
		key := fmt.Sprint(t.Name(), round)
		var wg, ready sync.WaitGroup
		ready.Add(n)
		for k := range n {
			first := sync.OnceFunc(func() {
				ready.Done()
				ready.Wait()
			})
			wg.Go(func() {
				_, err := record.OnceInTx(t.Context(), nil, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
					o, err := d.insert(ctx, tx, key, fmt.Sprint(k))
					first()
					return o, err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := d.orders(t, key); n != 1 {
			t.Errorf("%d orders, want one", n)
		}
	}
}

// errors: after an error or a panic nothing is left, and the next caller runs.
func (d *database) errors(t *testing.T) {
	_, locks := clients(t, 1, pawl.Options{})
	key, bad := t.Name(), errors.New("no card")
	once := func(f func(ctx context.Context, tx *sql.Tx) (any, error)) (any, error) {
		return record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, f)
	}
	_, err := once(func(ctx context.Context, tx *sql.Tx) (any, error) {
		d.insert(ctx, tx, key, "refused")
		return "refused", bad
	})
	if !errors.Is(err, bad) {
		t.Errorf("got %v, want its error", err)
	}
	func() {
		defer func() {
			if recover() != "out of paper" {
				t.Error("the panic is gone")
			}
		}()
		once(func(ctx context.Context, tx *sql.Tx) (any, error) {
			d.insert(ctx, tx, key, "panicked")
			panic("out of paper")
		})
	}()
	_, err = once(func(ctx context.Context, tx *sql.Tx) (any, error) {
		d.insert(ctx, tx, key, "no JSON")
		return func() {}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "cannot be recorded") {
		t.Errorf("a result that is no JSON: %v", err)
	}
	if n := d.orders(t, key); n != 0 {
		t.Errorf("%d orders are left", n)
	}
	if v, err := once(func(ctx context.Context, tx *sql.Tx) (any, error) { return "yes \x00 \xff ü", nil }); err != nil || v != "yes \x00 \xff ü" {
		t.Errorf("the next: got %q, %v", v, err)
	}
	if v, err := once(nil); err != nil || v != "yes \x00 � ü" { // as JSON has it
		t.Errorf("the one after: got %q, %v", v, err)
	}
	if _, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, func(context.Context, *sql.Tx) (int, error) { return 0, nil }); err == nil {
		t.Error("a result of another type: no error")
	}
}

// keys: keys are compared byte by byte.
func (d *database) keys(t *testing.T) {
	_, locks := clients(t, 1, pawl.Options{})
	keys := []string{"k", "K", "k ", " k", "ä", "a\u0308", "k\x00", "\x00", "\xff", "\xfe\xff", "'; DROP TABLE orders; --", "%", "$1", "?",
		strings.Repeat("x", 1024), strings.Repeat("x", 1023)}
	for i := range 2 {
		for k, key := range keys {
			got, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, func(context.Context, *sql.Tx) (int, error) {
				return 100*i + k, nil
			})
			if err != nil || got != k {
				t.Errorf("%.20q: got %d, %v, want %d", key, got, err, k)
			}
		}
	}
}

// over makes the record of a key end at some time before now.
func (d *database) over(t *testing.T, key string, by time.Duration) {
	t.Helper()
	d.exec(t, "UPDATE pawl_once SET ends = ? WHERE name = ?", time.Now().Add(-by).UnixMilli(), []byte(key))
}

// windows: a record counts for the window, and no longer.
func (d *database) windows(t *testing.T) {
	_, locks := clients(t, 1, pawl.Options{})
	key, n := t.Name(), 0
	call := func(window time.Duration) int {
		t.Helper()
		v, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, window, func(context.Context, *sql.Tx) (int, error) {
			n++
			return n, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := call(day); v != 1 {
		t.Errorf("got %d, want 1", v)
	}
	if v := call(time.Millisecond); v != 1 { // the window is the first one's
		t.Errorf("got %d, want 1", v)
	}
	var ends int64
	if err := d.QueryRow(d.q("SELECT ends FROM pawl_once WHERE name = ?"), []byte(key)).Scan(&ends); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.UnixMilli(ends)); left < day-time.Minute || left > day+time.Minute {
		t.Errorf("the record ends in %v, want a day", left)
	}
	d.over(t, key, 0)
	if v := call(50 * time.Millisecond); v != 2 {
		t.Errorf("after the window: got %d, want 2", v)
	}
	for begin := time.Now(); call(day) == 2; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("a window of 50 ms does not end")
		}
	}
}

// sweep: what has been over for an hour goes, in batches.
func (d *database) sweep(t *testing.T) {
	insert := func(n int, ends time.Time) {
		for k := range n {
			d.exec(t, fmt.Sprintf("INSERT INTO pawl_once (name, ends, run, hold, token, result) VALUES (?, ?, 'r%d', '', 0, ?)", k), []byte(fmt.Sprint("old", ends.Unix(), k)), ends.UnixMilli(), []byte("1"))
		}
	}
	d.exec(t, "DELETE FROM pawl_once")
	insert(250, time.Now().Add(-2*time.Hour))
	insert(20, time.Now().Add(-time.Minute))
	insert(10, time.Now().Add(time.Minute))
	for _, want := range []int64{100, 100, 50, 0} {
		if n, err := d.Sweep(t.Context(), d.DB); err != nil || n != want {
			t.Errorf("swept %d, %v, want %d", n, err, want)
		}
	}
	if n := d.number(t, "SELECT COUNT(*) FROM pawl_once"); n != 30 {
		t.Errorf("%d records are left, want 30", n)
	}
	// In use, it happens by itself.
	_, locks := clients(t, 1, pawl.Options{})
	insert(50, time.Now().Add(-3*time.Hour))
	for n := 0; d.number(t, "SELECT COUNT(*) FROM pawl_once WHERE ends < ?", time.Now().Add(-time.Hour).UnixMilli()) > 0; n++ {
		if n > 1000 {
			t.Fatal("a thousand runs swept nothing")
		}
		if _, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, fmt.Sprint(t.Name(), n), day, d.making("swept", "")); err != nil {
			t.Fatal(err)
		}
	}
}

// conflicts: work that the database undoes is done again, and every key is done once.
func (d *database) conflicts(t *testing.T) {
	d.exec(t, "UPDATE counter SET n = 0")
	_, locks := clients(t, 1, pawl.Options{})
	const keys = 4
	level := d.Table
	if level.Isolation == sql.LevelDefault || level.Isolation == sql.LevelReadCommitted {
		level.Isolation = sql.LevelSerializable // else nothing conflicts
	}
	if d.server != nil && level.Isolation == sql.LevelRepeatableRead && d.Dialect == fence.MySQL {
		level.Isolation = sql.LevelSerializable
	}
	if d.server == nil {
		level.Isolation = sql.LevelDefault // SQLite knows no other
	}
	var runs atomic.Int64
	var both sync.WaitGroup
	both.Add(keys)
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			first := true
			v, err := record.OnceInTx(t.Context(), locks[0], d.DB, level, fmt.Sprint(t.Name(), k), day, func(ctx context.Context, tx *sql.Tx) (n int, err error) {
				runs.Add(1)
				if err := tx.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
					return 0, err
				}
				if first && d.server != nil { // all have read before the first writes
					first = false
					both.Done()
					both.Wait()
				}
				_, err = tx.ExecContext(ctx, d.q("UPDATE counter SET n = ?"), n+1)
				return n, err
			})
			if err != nil {
				t.Errorf("key %d: %d, %v", k, v, err)
			}
		})
	}
	wg.Wait()
	if n := d.number(t, "SELECT n FROM counter"); n != keys {
		t.Errorf("the counter is at %d, want %d", n, keys)
	}
	if runs.Load() == keys && d.server != nil {
		t.Error("nothing was undone: this shows nothing")
	}
}

// cancelled: when ctx ends in the work, nothing is done.
func (d *database) cancelled(t *testing.T) {
	_, locks := clients(t, 1, pawl.Options{})
	key := t.Name()
	for _, c := range []*pawl.Client{nil, locks[0]} {
		ctx, stop := context.WithCancel(t.Context())
		_, err := record.OnceInTx(ctx, c, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
			o, err := d.insert(ctx, tx, key, "cancelled")
			stop()
			return o, err
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, pawl.ErrUnknown) {
			t.Errorf("got %v, want its cause, and no doubt", err)
		}
		if n := d.orders(t, key); n != 0 {
			t.Errorf("%d orders", n)
		}
	}
	o, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, d.making(key, "next"))
	if err != nil || o.Who != "next" {
		t.Errorf("the next: got %+v, %v", o, err)
	}
}

// lost: when the lease is lost, the work is rolled back and the call begins again; not when it was lost because it took too long.
func (d *database) lost(t *testing.T) {
	store, locks := clients(t, 1, pawl.Options{})
	key, runs := t.Name(), 0
	o, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
		runs++
		o, err := d.insert(ctx, tx, key, fmt.Sprint(runs))
		if runs == 1 {
			store.Expire(key)
			<-ctx.Done()
		}
		return o, err
	})
	if err != nil || o.Who != "2" || d.orders(t, key) != 1 {
		t.Errorf("got %+v, %v and %d orders, want the second run's", o, err, d.orders(t, key))
	}
	key += " too long"
	brief := locks[0].With(pawl.Options{MaxHold: time.Second}) // enough to begin a transaction on a busy machine
	runs = 0
	_, err = record.OnceInTx(t.Context(), brief, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
		runs++
		<-ctx.Done()
		return order{}, ctx.Err()
	})
	if !errors.Is(err, pawl.ErrLost) || runs != 1 {
		t.Errorf("got %v after %d runs, want ErrLost after one", err, runs)
	}
}

// endsItself: work whose transaction is not the same any more is not recorded, and that is said.
func (d *database) endsItself(t *testing.T, how string) {
	_, locks := clients(t, 1, pawl.Options{})
	key := t.Name()
	o, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
		if d.Dialect == fence.PostgreSQL {
			return order{}, tx.Rollback()
		}
		tx.ExecContext(ctx, how) // as the database does by itself
		return order{}, nil
	})
	if err == nil {
		t.Errorf("got %+v, want an error", o)
	}
	if n := d.number(t, "SELECT COUNT(*) FROM pawl_once WHERE name = ?", []byte(key)); n != 0 {
		t.Error("it is recorded")
	}
}

func (d *database) wrong(t *testing.T) {
	_, locks := clients(t, 1, pawl.Options{})
	none := func(context.Context, *sql.Tx) (int, error) { t.Error("it ran"); return 0, nil }
	for _, c := range []struct {
		db     *sql.DB
		key    string
		window time.Duration
	}{{nil, "k", day}, {d.DB, "", day}, {d.DB, strings.Repeat("k", 1025), day}, {d.DB, "k", 0}, {d.DB, "k", -day}} {
		if _, err := record.OnceInTx(t.Context(), locks[0], c.db, d.Table, c.key, c.window, none); !errors.Is(err, pawl.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", c, err)
		}
	}
	_, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, t.Name(), day, func(ctx context.Context, _ *sql.Tx) (int, error) {
		return record.OnceInTx(ctx, locks[0], d.DB, d.Table, t.Name(), day, none)
	})
	if !errors.Is(err, pawl.ErrInvalid) {
		t.Errorf("inside of itself: got %v, want ErrInvalid", err)
	}
	missing := d.Table
	missing.Name = "missing"
	if _, err := record.OnceInTx(t.Context(), locks[0], d.DB, missing, "k", day, none); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a missing table: got %v", err)
	}
	if _, err := missing.Sweep(t.Context(), d.DB); err == nil {
		t.Error("a missing table is swept")
	}
	locks[0].Close()
	if _, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, "k2", day, none); !errors.Is(err, pawl.ErrClosed) {
		t.Errorf("a closed client: got %v, want ErrClosed", err)
	}
}

// paused: a run that is paused, with its work done but not committed, until another has been recorded commits nothing and answers the
// other's result. Its lease was lost meanwhile, and it does not know.
func (d *database) paused(t *testing.T) {
	key := t.Name()
	runs := 0
	o, err := record.OnceInTx(t.Context(), nil, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (o order, err error) {
		if runs++; runs > 1 {
			t.Error("it ran again")
		}
		if d.server != nil {
			if o, err = d.insert(ctx, tx, key, "slow"); err != nil {
				return o, err
			}
		}
		quick, err := record.OnceInTx(context.WithoutCancel(t.Context()), nil, d.DB, d.Table, key, day, d.making(key, "quick"))
		if err != nil || quick.Who != "quick" {
			t.Errorf("the other: got %+v, %v", quick, err)
		}
		if d.server == nil { // where a writer has the whole file
			o, err = d.insert(ctx, tx, key, "slow")
		}
		return o, err
	})
	if err != nil || o.Who != "quick" || d.orders(t, key) != 1 {
		t.Errorf("got %+v, %v and %d orders, want one by the other", o, err, d.orders(t, key))
	}
}

// late: a run that is paused for so long that the other's record is over by now is not committed either: it begins anew, as any call
// does in a new window.
func (d *database) late(t *testing.T) {
	key := t.Name()
	runs := 0
	o, err := record.OnceInTx(t.Context(), nil, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (o order, err error) {
		if runs++; runs > 1 {
			return d.insert(ctx, tx, key, "anew")
		}
		if _, err := record.OnceInTx(t.Context(), nil, d.DB, d.Table, key, day, d.making(key, "quick")); err != nil {
			t.Error(err)
		}
		end := time.Now()
		time.Sleep(20 * time.Millisecond)
		d.exec(t, "UPDATE pawl_once SET ends = ? WHERE name = ?", end.Add(10*time.Millisecond).UnixMilli(), []byte(key)) // over, but after this run began
		return d.insert(ctx, tx, key, "late")
	})
	if err != nil || o.Who != "anew" {
		t.Errorf("got %+v, %v, want a run of a new window", o, err)
	}
	if n := d.number(t, "SELECT COUNT(*) FROM orders WHERE item = ? AND who = 'late'", key); n != 0 {
		t.Error("the late run was committed")
	}
	if n := d.orders(t, key); n != 2 || runs != 2 {
		t.Errorf("%d orders in %d runs, want two in two windows", n, runs)
	}
}

// slowCommit: a commit that was sent is not cut by ctx for three seconds. One that takes longer is an unknown outcome, and the
// next call tells.
func (d *database) slowCommit(t *testing.T) {
	d.exec(t, "CREATE TABLE naps (s FLOAT)")
	d.exec(t, "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(NEW.s); RETURN NEW; END'")
	d.exec(t, "CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON naps DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap()")
	call := func(key, who string, nap float64, cancel time.Duration) (order, error) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		return record.OnceInTx(ctx, nil, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
			if _, err := tx.ExecContext(ctx, "INSERT INTO naps VALUES ($1)", nap); err != nil {
				return order{}, err
			}
			o, err := d.insert(ctx, tx, key, who)
			if cancel > 0 {
				time.AfterFunc(cancel, stop)
			}
			return o, err
		})
	}
	t.Run("outlives ctx", func(t *testing.T) {
		key := t.Name()
		if o, err := call(key, "first", 1, 300*time.Millisecond); err != nil || o.Who != "first" || d.orders(t, key) != 1 {
			t.Errorf("got %+v, %v and %d orders", o, err, d.orders(t, key))
		}
	})
	t.Run("too slow", func(t *testing.T) {
		key := t.Name()
		if o, err := call(key, "first", 5, 300*time.Millisecond); !errors.Is(err, pawl.ErrUnknown) {
			t.Errorf("got %+v, %v, want ErrUnknown", o, err)
		}
		o, err := call(key, "second", 0, 0)
		if err != nil || d.orders(t, key) != 1 {
			t.Errorf("the next: got %+v, %v and %d orders, want one", o, err, d.orders(t, key))
		}
		if n := d.number(t, "SELECT COUNT(*) FROM orders WHERE item = ? AND who = ?", key, o.Who); n != 1 {
			t.Errorf("it answers %+v, which was not committed", o)
		}
	})
	t.Run("refused", func(t *testing.T) { // by what the database looks at in the end
		d.exec(t, "CREATE TABLE parent (n INT PRIMARY KEY)")
		d.exec(t, "CREATE TABLE child (n INT REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
		key, runs := t.Name(), 0
		_, err := record.OnceInTx(t.Context(), nil, d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
			runs++
			if _, err := tx.ExecContext(ctx, "INSERT INTO child VALUES (1)"); err != nil {
				return order{}, err
			}
			return d.insert(ctx, tx, key, "refused")
		})
		if err == nil || errors.Is(err, pawl.ErrUnknown) || runs != 1 || d.orders(t, key) != 0 {
			t.Errorf("got %v after %d runs, and %d orders", err, runs, d.orders(t, key))
		}
	})
}

// restart: the server is killed under the calls, again and again; in the end every key has one order, and everybody was told of that one.
func (d *database) restart(t *testing.T) {
	const keys, callers = 12, 3
	prefix := t.Name()
	var mu sync.Mutex
	told := map[string]map[order]bool{}
	var wg sync.WaitGroup
	for c := range callers {
		_, locks := clients(t, 1, pawl.Options{})
		wg.Go(func() {
			for k := range keys {
				key := fmt.Sprint(prefix, k)
				for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
					o, err := record.OnceInTx(t.Context(), locks[0], d.DB, d.Table, key, day, func(ctx context.Context, tx *sql.Tx) (order, error) {
						o, err := d.insert(ctx, tx, key, fmt.Sprint(c))
						time.Sleep(100 * time.Millisecond)
						return o, err
					})
					if err == nil {
						mu.Lock()
						if told[key] == nil {
							told[key] = map[order]bool{}
						}
						told[key][o] = true
						mu.Unlock()
						break
					}
					if time.Since(begin) > time.Minute {
						t.Errorf("%s: %v", key, err)
						return
					}
				}
			}
		})
	}
	for range 2 {
		time.Sleep(400 * time.Millisecond)
		d.server.Kill()
		d.server.Restart()
	}
	wg.Wait()
	for k := range keys {
		key := fmt.Sprint(prefix, k)
		if n := d.orders(t, key); n != 1 || len(told[key]) != 1 {
			t.Errorf("%s: %d orders, and answers %v", key, n, told[key])
		}
	}
}
