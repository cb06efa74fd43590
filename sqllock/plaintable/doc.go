// Package plaintable shares mutexes with programs that lock by a row in a plain table, the pattern of many teaching texts:
//
//	distributed_lock(lock_key, lock_value, expire_time)
//
// where INSERT takes a lock and DELETE by key and value frees it. Names of table and columns are [Options]. PostgreSQL,
// MySQL, MariaDB and SQLite:
//
//	store := plaintable.New(db, sqllock.MySQL, nil) // your *sql.DB; the others write NOW() + INTERVAL n SECOND
//	locks := pawl.New(store)
//
// What the pattern lacks, pawl adds for its own holds: they are renewed, told as lost, waited for, freed with an owner
// check, and their rows go away by themselves when a holder died.
//
// # What it promises
//
//   - Exclusion among all clients that take a lock by inserting the row, or by taking over one whose expire_time has passed on
//     condition that it still has. By the database's clock alone, in the zone of its sessions or in UTC: see [Options].UTC; in
//     SQLite, by the machine's.
//   - Only the holder renews, frees or keeps a row. lock_value is new for each hold: pawl's ID of it, then who has it, for
//     people. A hold that somebody else took over or deleted is told as lost at the next renewal.
//   - Times are rounded up to what the column can store, so that no hold ends early: in a column of whole seconds it ends up
//     to a second late. The others need a second of margin in such a column, too.
//   - Certain outcomes. A request without an answer is settled, see [driver.Place].Leave: it cannot come into force later.
//   - Renewals are one transaction for all holds of a client. A row that somebody else has locked delays no other's.
//   - Rows that dead holders of pawl's left are deleted ten minutes after their end. Rows of others stay until somebody
//     takes the lock or they clean up by themselves.
//
// # What it does not promise
//
//   - Safety from others that do not check: who deletes a row by its key alone, or takes over a row that has not expired,
//     ends pawl's hold, which learns it at its next renewal.
//   - Tokens, unless [Options].Tokens names a table for them. With it each hold of pawl's gets a larger token than every one of
//     pawl's before, raised in the transaction that takes the row. The others' holds have none: they are outside of the
//     order, and a guard at the resource does not see them.
//   - Once, Schedule, Election, fair locks, read-write locks and semaphores: the row has no room for them, and they are
//     [errors.ErrUnsupported].
//   - Order. Nobody queues: whoever asks first when the row is free gets it. Waiters look, all names of a client with one
//     statement, every 2 ms after a change and up to every 100 ms.
//   - Every name. The key takes as many characters as its column, all of them text; two names that its collation takes for the
//     same, such as Job and job in the usual tables of MySQL, are refused as [driver.ErrInvalid] while the other's row is
//     there.
package plaintable
