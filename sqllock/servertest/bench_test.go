package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock"
)

// both starts each product as it is in production: each commit reaches the disk.
func both(b *testing.B, f func(b *testing.B, s product)) {
	b.Run("MariaDB", func(b *testing.B) { f(b, mariadb(b, "--innodb-flush-log-at-trx-commit=1")) })
	b.Run("PostgreSQL", func(b *testing.B) { f(b, postgres(b, "-c", "fsync=on")) })
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkHotKey is one name that 1,000 goroutines of one process want: pawl's mutex, beside the table that people write
// by hand (INSERT, DELETE, and again after a short sleep) and the server's own locks on a connection.
func BenchmarkHotKey(b *testing.B) {
	const crowd = 1000
	both(b, func(b *testing.B, s product) {
		measure := func(name string, once func(ctx context.Context) error) float64 {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			var n, inside atomic.Int64
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() {
					for ctx.Err() == nil {
						err := once(context.WithValue(ctx, insideKey{}, &inside))
						if err == nil {
							n.Add(1)
						} else if ctx.Err() == nil {
							b.Errorf("%s: %v", name, err)
							return
						}
					}
				})
			}
			<-ctx.Done()
			rate := float64(n.Load()) / 3
			wg.Wait()
			b.ReportMetric(rate, name+"/s")
			return rate
		}
		locks := pawl.New(s.open(b))
		defer locks.Close()
		m := locks.Mutex("hot")
		ours := measure("pawl", func(ctx context.Context) error {
			l, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			visit(b, ctx)
			return l.Unlock()
		})

		db := s.DB()
		db.SetMaxOpenConns(50)
		s.exec(b, "CREATE TABLE plain (k VARCHAR(100) PRIMARY KEY)")
		insert := "INSERT IGNORE INTO plain VALUES ('hot')"
		if s.dialect == sqllock.PostgreSQL {
			insert = "INSERT INTO plain VALUES ('hot') ON CONFLICT DO NOTHING"
		}
		plain := measure("plain-table", func(ctx context.Context) error {
			for {
				r, err := db.ExecContext(ctx, insert)
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err == nil:
					if n, _ := r.RowsAffected(); n == 1 {
						visit(b, ctx)
						return s.unlockPlain(db)
					}
				case !deadlock(err):
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		own := measure("server-lock", func(ctx context.Context) error { return s.serverLock(ctx, db, func() { visit(b, ctx) }) })
		b.ReportMetric(ours/plain, "×plain")
		b.ReportMetric(ours/own, "×server-lock")
		b.ReportMetric(0, "ns/op")
	})
}

type insideKey struct{}

// visit is the critical section.
func visit(b *testing.B, ctx context.Context) {
	inside := ctx.Value(insideKey{}).(*atomic.Int64)
	if n := inside.Add(1); n != 1 {
		b.Errorf("%d holders at once", n)
	}
	inside.Add(-1)
}

// unlockPlain deletes the row, however often it takes: InnoDB makes a deadlock of many who insert and one who deletes.
func (s product) unlockPlain(db *sql.DB) error {
	for {
		if _, err := db.Exec("DELETE FROM plain WHERE k = 'hot'"); err == nil || !deadlock(err) {
			return err
		}
	}
}

func deadlock(err error) bool {
	var m *mysql.MySQLError
	return errors.As(err, &m) && m.Number == 1213
}

// serverLock is GET_LOCK, or an advisory lock.
func (s product) serverLock(ctx context.Context, db *sql.DB, f func()) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.dialect == sqllock.PostgreSQL {
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock(7)"); err != nil {
			return err
		}
		f()
		_, err = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock(7)")
		return err
	}
	var got int
	for got != 1 {
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('hot', 1)").Scan(&got); err != nil {
			return err
		}
	}
	f()
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK('hot')")
	return err
}

// BenchmarkCycle is the lock that nobody else wants, from one goroutine and from many.
func BenchmarkCycle(b *testing.B) {
	both(b, func(b *testing.B, s product) {
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
				d := s.open(b)
				var wg sync.WaitGroup
				for g := range goroutines {
					wg.Go(func() {
						for range b.N/goroutines + 1 {
							c, err := take(context.Background(), d, fmt.Sprint("cycle", g), time.Minute)
							if err == nil {
								err = d.Release(context.Background(), c.Hold, driver.End{})
							}
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			})
		}
	})
}
