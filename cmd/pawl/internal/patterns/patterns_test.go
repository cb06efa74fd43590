package patterns

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
)

// The programs of docs/patterns.md: "wrong" and "right" for each trap. The page shows them word for word, and the tests beside this file
// run them.

// page: 1 wrong
func payCoarse(ctx context.Context, me, order string, work func(context.Context) error) error {
	ok, err := rdb.SetNX(ctx, "lock:order", me, 30*time.Second) // one lock for all orders
	if err != nil {
		return err
	}
	if !ok {
		return errBusy
	}
	defer rdb.Release(ctx, "lock:order", me)
	return work(ctx)
}

// page: 1 right
func pay(ctx context.Context, order string, work func(context.Context) error) error {
	return locks.Mutex("order:"+order).TryDo(ctx, work)
}

// page: 2 wrong
func reportShort(ctx context.Context, me string, work func(context.Context) error) error {
	ok, err := rdb.SetNX(ctx, "lock:report", me, 50*time.Millisecond) // some day the work takes longer
	if err != nil {
		return err
	}
	if !ok {
		return errBusy
	}
	defer rdb.Release(ctx, "lock:report", me)
	return work(ctx)
}

// page: 2 right
func report(ctx context.Context, work func(context.Context) error) error {
	short := locks.With(pawl.Options{TTL: 300 * time.Millisecond}) // renewed until Unlock all the same
	return short.Mutex("report").TryDo(ctx, work)                  // work's ctx ends when renewal fails
}

// page: 3 wrong
func importLeaky(ctx context.Context, me string, work func(context.Context) error) error {
	ok, err := rdb.SetNX(ctx, "lock:import", me, time.Hour)
	if err != nil {
		return err
	}
	if !ok {
		return errBusy
	}
	if err := work(ctx); err != nil {
		return err // and the lock stays; so it does when work panics
	}
	return rdb.Release(ctx, "lock:import", me)
}

// page: 3 right
func importAll(ctx context.Context, work func(context.Context) error) error {
	lease, err := locks.Mutex("import").TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock() // after an error, after a panic, and when ctx has ended
	return work(lease.Context(ctx))
}

// page: 4 wrong
func shipBlind(ctx context.Context, me string, work func(context.Context) error) error {
	rdb.SetNX(ctx, "lock:ship", me, 30*time.Second) // did we get it?
	defer rdb.Release(ctx, "lock:ship", me)
	return work(ctx)
}

// page: 4 right
func ship(ctx context.Context, work func(context.Context) error) error {
	lease, err := locks.Mutex("ship").TryLock(ctx)
	if errors.Is(err, pawl.ErrHeld) {
		return errBusy // somebody else ships
	} else if err != nil {
		return err // the store is in trouble: not the same
	}
	defer lease.Unlock()
	return work(lease.Context(ctx))
}

// page: 5 wrong
func syncRude(ctx context.Context, me string, work func(context.Context) error) error {
	ok, err := rdb.SetNX(ctx, "lock:sync", me, 50*time.Millisecond)
	if err != nil {
		return err
	}
	if !ok {
		return errBusy
	}
	defer rdb.Del(ctx, "lock:sync") // whose lock is it by now?
	return work(ctx)
}

// page: 5 right
func syncAll(ctx context.Context, work func(context.Context) error) error {
	lease, err := locks.Mutex("sync").TryLock(ctx)
	if err != nil {
		return err
	}
	err = work(lease.Context(ctx))
	return errors.Join(err, lease.Unlock()) // frees this very hold or nothing; ErrLost if it was lost
}

// page: 6 wrong
func withdrawTrusting(balance *int, n int) {
	*balance -= n // "I hold the lock, so nobody else is here"
}

// page: 6 right
func withdraw(gate *fence.Gate, lease fence.Lease, balance *int, n int) error {
	if err := gate.Claim("account:7", lease); err != nil { // before the balance is read
		return err
	}
	*balance -= n
	return nil
}

// page: 7 wrong
func migrateForever(ctx context.Context, me string, work func(context.Context) error) error {
	for {
		ok, err := rdb.SetNX(ctx, "lock:migrate", me, 0) // no expiry: a crash locks for ever
		if err != nil {
			return err
		}
		if ok {
			break
		}
		time.Sleep(20 * time.Millisecond) // no limit either: it waits for ever
	}
	defer rdb.Release(ctx, "lock:migrate", me)
	return work(ctx)
}

// page: 7 right
func migrate(ctx context.Context, work func(context.Context) error) error {
	patient := locks.With(pawl.Options{Wait: 5 * time.Second, MaxHold: time.Minute})
	return patient.Mutex("migrate").Do(ctx, work) // errors.Is(err, pawl.ErrHeld) after 5 s
}

// page: 8 wrong
func buildPolling(ctx context.Context, me string, work func(context.Context) error) error {
	for {
		ok, err := rdb.SetNX(ctx, "lock:build", me, 30*time.Second)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		time.Sleep(10 * time.Millisecond) // a hundred questions a second, for each that waits
	}
	defer rdb.Release(ctx, "lock:build", me)
	return work(ctx)
}

// page: 8 right
func build(ctx context.Context, work func(context.Context) error) error {
	return locks.Mutex("build").Do(ctx, work) // is woken; a process has one in line, however many wait
}

// page: 9 wrong
func sellUncommitted(ctx context.Context, db *shop) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Commit() // deferred first, so it runs last
	lease, err := locks.Mutex("stock").Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock() // the next holder reads before the commit
	n, err := tx.Stock(ctx)
	if err != nil {
		return err
	}
	return tx.SetStock(ctx, n-1)
}

// page: 9 right
func sell(ctx context.Context, db *shop) error {
	return locks.Mutex("stock").Do(ctx, func(ctx context.Context) error {
		tx, err := db.Begin(ctx) // ends with the lease: a lost lock rolls back
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := marks.Claim(ctx, tx.Tx, "stock", pawl.FromContext(ctx, "stock")); err != nil {
			return err
		}
		n, err := tx.Stock(ctx)
		if err != nil {
			return err
		}
		if err := tx.SetStock(ctx, n-1); err != nil {
			return err
		}
		return tx.Commit() // before Do unlocks
	})
}

// page: 10 wrong
func rotateDeaf(ctx context.Context, node *redis, me string, work func(context.Context) error) error {
	ok, err := node.SetNX(ctx, "lock:rotate", me, time.Hour)
	if err != nil || !ok {
		return errBusy // MOVED, ASK and TRYAGAIN are not "busy"
	}
	defer node.Release(ctx, "lock:rotate", me) // and an error here leaves the lock behind
	return work(ctx)
}

// page: 10 right
func rotate(ctx context.Context, cluster *pawl.Client, work func(context.Context) error) error {
	err := cluster.Mutex("rotate").TryDo(ctx, work)
	if errors.Is(err, pawl.ErrHeld) {
		return errBusy
	}
	return err // ErrUnknown, ErrLost: told, not guessed
}

// page: end
