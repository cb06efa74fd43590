package fencetest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/sqllock"
)

// renewals: a transaction that takes longer than a TTL, with a claim in it, costs neither its own lease nor another. The locks are in
// the same database, through the same pool; on SQLite, where a writer has the whole file, in a file of their own.
func (d *database) renewals(t *testing.T) {
	var driver *sqllock.Driver
	switch d.Dialect {
	case fence.SQLite:
		var err error
		if driver, err = sqllock.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "locks.db"), nil); err != nil {
			t.Fatal(err)
		}
	case fence.MySQL:
		driver = sqllock.New(d.DB, sqllock.MySQL, nil)
	case fence.PostgreSQL:
		driver = sqllock.New(d.DB, sqllock.PostgreSQL, nil)
	}
	client := pawl.New(driver)
	defer client.Close()
	if err := driver.CreateSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	const ttl = 2 * time.Second
	d.exec(t, "INSERT INTO stock VALUES ('slow', 100)")
	locks := client.With(pawl.Options{TTL: ttl})
	var leases []*pawl.Lease
	for i := range 3 {
		l, err := locks.Mutex(fmt.Sprint("lock", i)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock()
		leases = append(leases, l)
	}
	tx := d.begin(t, sql.LevelDefault)
	d.sell(t, tx, "slow", leases[0], 99)
	time.Sleep(ttl + ttl/2)
	for _, l := range leases {
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v", l.Name(), err)
		}
	}
	if l, err := locks.Mutex("one more").TryLock(t.Context()); err != nil {
		t.Errorf("a new lock meanwhile: %v", err)
	} else {
		l.Unlock()
	}
	if err := d.Claim(t.Context(), tx, "slow", leases[0]); err != nil {
		t.Errorf("the second claim of the transaction: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := d.stock(t, "slow"); n != 99 {
		t.Errorf("stock: got %d, want 99", n)
	}
}
