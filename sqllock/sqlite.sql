-- Every statement that pawl sends to SQLite. {lock}, {process} and {state} stand for the quoted table names.
--
-- Times are microseconds on the machine's boot-time clock, except those in "state" that record.go says otherwise of. All
-- statements from "seize" on run in a transaction that holds the write lock, except those named "see…". All but the rare
-- ones are kept prepared.

-- name: schema
CREATE TABLE IF NOT EXISTS {lock} (
	name  BLOB    NOT NULL PRIMARY KEY, -- exact bytes
	kind  INTEGER NOT NULL,             -- what the name is in use as: driver.Kind
	lim   INTEGER NOT NULL,             -- of a semaphore
	last  INTEGER NOT NULL,             -- the largest token reserved
	until INTEGER NOT NULL,             -- the last of the holds is over from then on
	state TEXT    NOT NULL              -- the holds and the waiters, as JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS {process} (
	id    TEXT    NOT NULL PRIMARY KEY, -- of a driver that waits
	until INTEGER NOT NULL              -- it is dead from then on, and its waiters with it, unless it says otherwise
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS {state} (
	one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
	version INTEGER NOT NULL,           -- of this layout
	boot    TEXT    NOT NULL,           -- the boot that all times belong to
	floor   INTEGER NOT NULL,           -- the largest "last" of all deleted rows
	horizon INTEGER NOT NULL,           -- no token up to the last power loss was larger
	swept   INTEGER NOT NULL,           -- when dead rows were last looked for, and up to which name
	cursor  BLOB    NOT NULL
) STRICT;

-- name: seize
DELETE FROM {process} WHERE 0;

-- name: state
SELECT version, boot, floor, horizon, swept, cursor FROM {state} WHERE one = 1;

-- name: put_state
INSERT INTO {state} (one, version, boot, floor, horizon, swept, cursor) VALUES (1, ?, ?, ?, ?, ?, ?)
ON CONFLICT (one) DO UPDATE SET version = excluded.version, boot = excluded.boot, floor = excluded.floor,
	horizon = excluded.horizon, swept = excluded.swept, cursor = excluded.cursor;

-- name: all, rare
SELECT name, kind, lim, last, state FROM {lock};

-- name: lock
SELECT kind, lim, last, state FROM {lock} WHERE name = ?1;

-- name: put_lock
INSERT INTO {lock} (name, kind, lim, last, until, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (name) DO UPDATE SET kind = ?2, lim = ?3, last = ?4, until = ?5, state = ?6;

-- name: delete_lock
DELETE FROM {lock} WHERE name = ?1;

-- name: beat
INSERT INTO {process} (id, until) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET until = ?2;

-- name: living
SELECT id FROM {process} WHERE until > ?1;

-- name: sweep_some, rare
SELECT name, kind, lim, last, state FROM {lock} WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: dead_processes, rare
SELECT id FROM {process} WHERE until <= ?1;

-- name: sweep_process, rare
DELETE FROM {process} WHERE until <= ?1;

-- name: see
SELECT l.name, l.kind, l.lim, l.last, l.state FROM {state} AS s JOIN {lock} AS l
WHERE s.one = 1 AND s.boot = ?2 AND l.name IN (SELECT unhex(value) FROM json_each(?1));

-- name: see_some, rare
SELECT l.name, l.kind, l.lim, l.last, l.state FROM {state} AS s JOIN {lock} AS l
WHERE s.one = 1 AND s.boot = ?1 AND l.name >= ?2 AND l.name > ?3 AND (?4 IS NULL OR l.name < ?4)
ORDER BY l.name LIMIT ?5;
