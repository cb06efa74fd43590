-- Every statement that pawl sends to SQLite. {lock}, {line} and {state} stand for the quoted table names.
--
-- Times are microseconds: "until" and "call_at" on the machine's boot-time clock, "since" and "kept" on the wall clock.
-- All statements from "seize" on run in a transaction that holds the write lock, except those named "see_…". All but the
-- rare ones are kept prepared.

-- name: schema
CREATE TABLE IF NOT EXISTS {lock} (
	name  BLOB    NOT NULL PRIMARY KEY, -- exact bytes
	kind  INTEGER NOT NULL,             -- driver.Kind
	id    TEXT    NOT NULL,             -- of the hold; "kept/…" once it was released with a minimum hold
	token INTEGER NOT NULL,             -- the first token of the hold
	last  INTEGER NOT NULL,             -- the last one reserved
	least INTEGER NOT NULL,             -- a release does not set last below this
	until INTEGER NOT NULL,             -- the hold is over from then on
	since INTEGER NOT NULL,             -- when it was taken
	kept  INTEGER NOT NULL,             -- end of a minimum hold, which a reboot does not shorten; 0: none
	label TEXT    NOT NULL,             -- the holder, for people
	host  TEXT    NOT NULL,
	pid   INTEGER NOT NULL,
	note  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS {line} (
	seq     INTEGER PRIMARY KEY,        -- order of arrival
	name    BLOB    NOT NULL,
	id      TEXT    NOT NULL,           -- of the hold that is asked for
	process TEXT    NOT NULL,           -- of the driver that waits
	turn    INTEGER NOT NULL,           -- how long the name is kept for it once it is called
	call_at INTEGER                     -- its turn begins then; NULL: not yet known
) STRICT;

CREATE INDEX IF NOT EXISTS {line_name} ON {line} (name, seq);

CREATE INDEX IF NOT EXISTS {line_call} ON {line} (process, call_at);

CREATE TABLE IF NOT EXISTS {process} (
	id    TEXT    NOT NULL PRIMARY KEY, -- of a driver that waits
	until INTEGER NOT NULL              -- it is dead from then on, and its waiters with it, unless it says otherwise
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS {state} (
	one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
	version INTEGER NOT NULL,           -- of this layout
	boot    TEXT    NOT NULL,           -- the boot that "until" and "call_at" belong to
	floor   INTEGER NOT NULL,           -- the largest "last" of all deleted rows
	horizon INTEGER NOT NULL,           -- no token up to the last power loss was larger
	swept   INTEGER NOT NULL,           -- when dead rows were last looked for, and up to which name
	cursor  BLOB    NOT NULL
) STRICT;

-- name: seize
DELETE FROM {line} WHERE 0;

-- name: state
SELECT version, boot, floor, horizon, swept, cursor FROM {state} WHERE one = 1;

-- name: put_state
INSERT INTO {state} (one, version, boot, floor, horizon, swept, cursor) VALUES (1, ?, ?, ?, ?, ?, ?)
ON CONFLICT (one) DO UPDATE SET version = excluded.version, boot = excluded.boot, floor = excluded.floor,
	horizon = excluded.horizon, swept = excluded.swept, cursor = excluded.cursor;

-- name: last_of_all, rare
SELECT COALESCE(MAX(last), 0) FROM {lock};

-- name: reboot_kept, rare
UPDATE {lock} SET until = ?1 + MIN(kept - ?2, kept - since) WHERE kept > ?2;

-- name: reboot_locks, rare
DELETE FROM {lock} WHERE kept <= ?1;

-- name: reboot_line, rare
DELETE FROM {line};

-- name: lock
SELECT kind, id, token, last, least, until, since, kept, label, host, pid, note FROM {lock} WHERE name = ?1;

-- name: put_lock
INSERT INTO {lock} (name, kind, id, token, last, least, until, since, kept, label, host, pid, note)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (name) DO UPDATE SET kind = ?2, id = ?3, token = ?4, last = ?5, least = ?6, until = ?7, since = ?8, kept = ?9,
	label = ?10, host = ?11, pid = ?12, note = ?13;

-- name: delete_lock
DELETE FROM {lock} WHERE name = ?1;

-- name: renew
UPDATE {lock} SET until = MAX(until, ?5) WHERE name = ?1 AND id = ?2 AND (token = ?3 OR ?3 = 0) AND until > ?4;

-- name: raise, rare
UPDATE {lock} SET last = MAX(last, ?5), least = MAX(least, ?5)
WHERE name = ?1 AND id = ?2 AND (token = ?3 OR ?3 = 0) AND until > ?4;

-- name: join
INSERT INTO {line} (name, id, process, turn) VALUES (?1, ?2, ?3, ?4);

-- name: front
SELECT w.seq, w.id, w.process, w.turn, COALESCE(p.until, 0), w.call_at FROM {line} AS w LEFT JOIN {process} AS p ON p.id = w.process
WHERE w.name = ?1 ORDER BY w.seq LIMIT 2;

-- name: place
SELECT seq, call_at FROM {line} WHERE name = ?1 AND id = ?2;

-- name: ahead
SELECT COUNT(*) FROM {line} WHERE name = ?1 AND seq < ?2;

-- name: call
UPDATE {line} SET call_at = ?2 WHERE seq = ?1;

-- name: uncall
UPDATE {line} SET call_at = NULL WHERE name = ?1 AND call_at IS NOT NULL;

-- name: quit
DELETE FROM {line} WHERE seq = ?1;

-- name: beat
INSERT INTO {process} (id, until) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET until = ?2;

-- name: sweep_some, rare
SELECT name, until, last FROM {lock} WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: sweep_line, rare
DELETE FROM {line} WHERE process NOT IN (SELECT id FROM {process} WHERE until > ?1);

-- name: dead_processes, rare
SELECT id FROM {process} WHERE until <= ?1;

-- name: sweep_process, rare
DELETE FROM {process} WHERE until <= ?1;

-- name: see_calls
SELECT id, call_at FROM {line} WHERE process = ?1 AND call_at IS NOT NULL;

-- name: see_places
SELECT w.id, w.call_at, COALESCE(l.until, 0) FROM {line} AS w LEFT JOIN {lock} AS l ON l.name = w.name
WHERE w.process = ?1 ORDER BY w.seq;

-- name: see_lock, rare
SELECT COALESCE(l.kind, 0), COALESCE(l.id, ''), COALESCE(l.token, 0), COALESCE(l.last, 0), COALESCE(l.least, 0),
	COALESCE(l.until, 0), COALESCE(l.since, 0), COALESCE(l.kept, 0), COALESCE(l.label, ''), COALESCE(l.host, ''),
	COALESCE(l.pid, 0), COALESCE(l.note, ''),
	(SELECT COUNT(*) FROM {line} AS w JOIN {process} AS p ON p.id = w.process WHERE w.name = ?1 AND p.until > ?3)
FROM {state} AS s LEFT JOIN {lock} AS l ON l.name = ?1 AND l.until > ?3
WHERE s.one = 1 AND s.boot = ?2;

-- name: see_locks, rare
SELECT l.kind, l.id, l.token, l.last, l.least, l.until, l.since, l.kept, l.label, l.host, l.pid, l.note,
	(SELECT COUNT(*) FROM {line} AS w JOIN {process} AS p ON p.id = w.process WHERE w.name = l.name AND p.until > ?2), l.name
FROM {state} AS s JOIN {lock} AS l ON l.until > ?2
WHERE s.one = 1 AND s.boot = ?1 AND l.name >= ?3 AND l.name > ?4 AND (?5 IS NULL OR l.name < ?5)
ORDER BY l.name LIMIT ?6;
