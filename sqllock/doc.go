// Package sqllock keeps pawl's locks in a SQL database that a team already has: PostgreSQL, MySQL or MariaDB, or SQLite, one
// file that is shared by the processes of one machine. [New] uses the caller's own *sql.DB, [NewPgx] a pool of pgx; [Open]
// makes one.
//
// # On a server
//
//   - Exclusion. Among all clients that use the same tables and the same [Options], a name has one holder at a time, for as
//     long as its TTL, renewed in time, has not run out. Each step reads one row, or knows it, and writes it in one statement on
//     condition that nobody has written it since (optimistic locking). No transaction is open and no connection is pinned
//     while waiting or holding; isolation levels, poolers and session settings do not matter.
//   - One clock: the server's, as microseconds since 1970. No client's clock and no session's time zone decides anything. A
//     server clock that is set ahead ends holds early, so that two holders may overlap.
//   - Tokens rise: across release, expiry, steal, clean-up and a clock set back. They start at the server's clock.
//   - Order: as below. PostgreSQL tells a waiter that it is called, by LISTEN/NOTIFY on one connection a client, if the pool
//     allows at least three and no pooler is between; else, and on MySQL, the driver polls all its names with one statement,
//     every 2 ms after a change and up to every 100 ms: see [Driver.Waiting].
//   - Certain outcomes. A request whose connection was lost while it was under way is unknown; Leave then writes a new version
//     of the row, so that whatever arrives later does nothing.
//   - What it keeps is what the server keeps: a failover to a replica that lags forgets locks and tokens.
//
// Rows that nobody has used for a minute are deleted by the clients. docs/sql.md describes tables and rights.
//
// The rest of this page is about SQLite.
//
// # What it promises
//
//   - Exclusion. Among the processes of one machine that use the same file and the same [Options], a name has one holder at
//     a time, for as long as its TTL, renewed in time, has not run out. Each step is one SQLite transaction that has the
//     write lock from its beginning.
//   - One clock. Expiry is decided by CLOCK_BOOTTIME, which all processes of a machine share, which never steps, and which
//     goes on while the machine is suspended. It belongs to one boot, so the boot's id is stored with it: after a reboot
//     all holds and waiters of before are over at once, since their processes died with the machine. A minimum hold
//     (End.Keep) has no process that could have died; it goes on to its end on the wall clock.
//   - Tokens rise: a hold's token is larger than every token that was reserved for an earlier hold of the name, across
//     release, expiry, steal, clean-up, a wall clock set back, and a power loss. The row keeps the last number reserved;
//     when a row is deleted, the largest number of all deleted rows is kept. A new token is at least the wall clock's
//     microseconds since 1970, which is all that orders it if the file itself is lost.
//   - Order. Waiters stand in line, in order of arrival. A place may get in when there is room beside the holds and beside
//     all places ahead of it: so a waiting Write stops new Reads, and small requests for permits do not starve a large one.
//     Room that gets free is kept for the first in line: up to 3 s for a Fair or a Leader, 50 ms for others. Whoever lets
//     its turn pass, because it is dead or was stopped, loses its place to the next, which was told in advance when to
//     look. Newcomers do not pass, with or without Wait.
//   - A killed holder's name is taken when its TTL is over, and a few milliseconds. A release is noticed by another process
//     in well under a millisecond on an idle machine.
//   - Certain outcomes. A request that did not get the write lock before its ctx ended, or its TTL was over, was surely not
//     done, and says so. A request whose transaction was running is settled by Leave, which waits for that transaction.
//
// # What it does not promise
//
//   - Nothing across machines, and nothing on network file systems: their locks are unreliable and each machine has its own
//     boot-time clock. The same goes for a folder shared between a host and its virtual machines. When two boots are seen to
//     use one file, the driver that notices refuses every call. Containers of one kernel are one machine, also in time
//     namespaces of their own.
//   - Other systems than Linux have no such clock that this package knows: there the wall clock decides. A step ahead ends
//     holds early, so that two holders may overlap; a step back ends them late.
//   - A process that is stopped for longer than its TTL does not know it until it runs again. Only a token that the guarded
//     resource checks protects from that: see package fence.
//   - If the file is deleted or replaced while it is in use, all drivers that had it open refuse every call from then on, but
//     a holder among them goes on until its trust deadline, while others may lock in the new file. A file restored from a
//     copy knows the tokens of its copy only.
//   - More than two dead waiters at the head of a line can cost a second beyond their turns.
//   - A hold that somebody else ended (a steal) is noticed by its holder at the next renewal: Lost is never told.
//
// # How it waits
//
// Nobody polls the database. While places are in line, their driver has a bell: a file of one byte beside the database, on
// which one goroutine waits (inotify on Linux; where the system cannot report changes without opening the file, its time
// is looked at every 25 ms). Whoever calls a place rings the bell of its driver after the commit, so that a call costs one
// small read in the one process that it is for; renewals, and the locks of others, wake nobody. Once a second one read of
// all places of a driver finds the holds that ran out and the rings that were lost, and every two seconds one write says
// that the driver is alive. Without waiters there is no goroutine, no bell and no watch. No connection is used while waiting
// or holding, and at most two at any time. [Driver.Watch] is for observers, and has the database's own files watched.
//
// # What it writes
//
// Requests that meet while the write lock is busy share one transaction (group commit), in their order of arrival.
// An uncontended lock is one transaction, and so is its release, which deletes the row: the tables hold what is held, kept
// or waited for. What dead processes left is deleted by whoever writes next, at most 200 rows a second.
//
// Commits are not flushed to the disk one by one (WAL mode with synchronous=NORMAL, which [Open] sets). A killed process
// loses nothing by that. A power loss may undo the latest commits, but it ends all holds anyway; what must not be lost is
// flushed: a minimum hold of 5 s or more before Release returns, and a number ahead of all tokens once in several
// minutes, above which the tokens of the next boot begin. In a pool of the caller's, the caller's settings hold. Any
// journal mode will do; WAL is the fastest, and in the others a reader can delay a writer.
//
// The file is best a file of its own. A long transaction of anybody else in the same file stops every lock in it, and
// renewals too. The business database is never the right file.
//
// Names are stored as the exact bytes, whole, behind [Options].Prefix. To read the table by hand:
//
//	SELECT CAST(name AS TEXT), state FROM pawl_lock;
package sqllock
