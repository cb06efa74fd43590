// Package shedlock shares mutexes with ShedLock, the scheduler lock of Spring and other Java services, in its table
//
//	shedlock(name, lock_until, locked_at, locked_by)
//
// so that of a Go service and a Java service only one runs a job at a time:
//
//	store := shedlock.New(db, sqllock.PostgreSQL, nil) // your *sql.DB; the Java side says usingDbTime()
//	locks := pawl.New(store).With(pawl.Options{MinHold: time.Minute})
//	err := locks.Mutex("nightly-report").TryDo(ctx, report)
//
// PostgreSQL, MySQL and MariaDB are shared by both clocks of ShedLock; an SQLite file as sqlite-jdbc has it.
//
// # What it promises
//
//   - Exclusion among all clients of the table, ShedLock's and pawl's, by the clock that they have agreed on: see
//     [Options].ClientClock. With the database's clock, no client's clock and no session's time zone decides anything. With
//     the clients' clocks, whatever those differ by is missing from, or added to, every hold, and all must write the same
//     zone; a zone with summer time ends or prolongs holds by an hour twice a year.
//   - A row is taken when lock_until has come, by one statement on condition that it is still as it was read; it is freed by
//     setting lock_until to now, or to the end of pawl's MinHold, which is ShedLock's lockAtLeastFor. It is never deleted:
//     processes of ShedLock remember which rows they have seen, and would not find the lock again.
//   - Only the holder renews, frees or keeps a row. locked_by is new for each hold: pawl's ID of it, then who has it, for
//     people. A hold that somebody else took over is told as lost at the next renewal.
//   - Certain outcomes. A request without an answer is settled, see [driver.Place].Leave: it cannot come into force later.
//   - Renewals are one transaction for all holds of a client. A row that somebody else has locked delays no other's.
//
// # What it does not promise
//
//   - Tokens, unless [Options].Tokens names a table for them, since the row has no number that every client raises (locked_at
//     is a clock's reading). With that table each hold of pawl's gets a larger token than every one of pawl's before, raised in
//     the transaction that takes the row. ShedLock's holds have none: they are outside of the order, and a guard at the
//     resource does not see them.
//   - Once, Schedule, Election, fair locks, read-write locks and semaphores: the row has no room for them, and they are
//     [errors.ErrUnsupported]. A periodic job is TryDo at each tick, with a MinHold; docs/sql-layouts.md says what that
//     trusts.
//   - Order. Nobody queues: whoever asks first when the row is free gets it. Waiters look, all names of a client with one
//     statement, every 2 ms after a change and up to every 100 ms.
//   - Safety from ShedLock's own releases. Before its version 7, with the clients' clocks, it frees by the name alone: a job
//     that overran its lockAtMostFor then ends the hold of whoever has the lock by then, which its holder learns at its next
//     renewal.
//   - Every name. The column takes 64 characters, all of them text; two names that its collation takes for the same, such as
//     Job and job in the usual tables of MySQL, are refused as [driver.ErrInvalid], whichever comes second.
package shedlock
