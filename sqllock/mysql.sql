-- Every statement that pawl sends to MySQL and MariaDB. {lock}, {process} and {state} stand for the quoted table names.
--
-- All times are microseconds since 1970 on the server's clock: UTC_TIMESTAMP knows no session's time zone. Values are
-- written into the text by mysql.go, at the words in angle brackets, as numbers and as hexadecimal literals: so each
-- statement is one round trip whatever the pool's settings are, nothing is prepared in a session, and no SQL mode,
-- character set or collation can change what a value means.

-- name: schema
CREATE TABLE IF NOT EXISTS {lock} (
	k       VARBINARY(232) NOT NULL PRIMARY KEY, -- the name, or its first 200 bytes and its SHA-256
	name    LONGBLOB       NOT NULL,             -- exact bytes
	rev     BIGINT         NOT NULL,             -- another number after every change
	kind    INT            NOT NULL,             -- what the name is in use as: driver.Kind
	lim     BIGINT         NOT NULL,             -- of a semaphore
	last    BIGINT         NOT NULL,             -- the largest token reserved
	until   BIGINT         NOT NULL,             -- the last of the holds is over from then on
	changed BIGINT         NOT NULL,             -- when
	state   LONGTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL -- the holds and the waiters, as JSON
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {process} (
	id    VARBINARY(64) NOT NULL PRIMARY KEY,    -- of a driver that waits
	until BIGINT        NOT NULL                 -- it is dead from then on, and its waiters with it, unless it says otherwise
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {state} (
	one     INT    NOT NULL PRIMARY KEY,
	version INT    NOT NULL,                     -- of this layout
	floor   BIGINT NOT NULL                      -- the largest token of all deleted rows
) ENGINE = InnoDB;

INSERT IGNORE INTO {state} (one, version, floor) VALUES (1, 2, 0);

-- name: version
SELECT VERSION();

-- name: load
SELECT IF(@@autocommit, s.version, 0), s.floor, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
	l.name, l.rev, l.kind, l.lim, l.last, l.changed, l.state
FROM {state} AS s LEFT JOIN {lock} AS l ON l.k IN (<keys>) WHERE s.one = 1;

-- name: page
SELECT IF(@@autocommit, s.version, 0), s.floor, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
	l.name, l.rev, l.kind, l.lim, l.last, l.changed, l.state
FROM {state} AS s LEFT JOIN (
	SELECT * FROM {lock} WHERE k >= <from> AND k > <cursor> AND <below> ORDER BY k LIMIT <n>
) AS l ON TRUE
WHERE s.one = 1 ORDER BY l.k;

-- MariaDB can be told not to wait for a row. (Reading it FOR UPDATE SKIP LOCKED in a derived table of the UPDATE would do
-- the same, but crashes MariaDB 10.11 now and then.) On MySQL, and for several rows, "lock" says in a transaction which
-- rows may be written.

-- name: update
SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE {lock}
SET rev = <rev>, kind = <kind>, lim = <lim>, last = <last>, until = <until>, changed = <changed>, state = <state>
WHERE k = <k> AND rev = <was> AND <when>;

-- name: lock
SELECT k, rev FROM {lock} WHERE k IN (<keys>) AND <when> ORDER BY k FOR UPDATE SKIP LOCKED;

-- name: insert
INSERT IGNORE INTO {lock} (k, name, rev, kind, lim, last, until, changed, state) VALUES <rows>;

-- name: rewrite
INSERT INTO {lock} (k, name, rev, kind, lim, last, until, changed, state) VALUES <rows>
ON DUPLICATE KEY UPDATE rev = VALUES(rev), kind = VALUES(kind), lim = VALUES(lim), last = VALUES(last), until = VALUES(until),
	changed = VALUES(changed), state = VALUES(state);

-- name: revs
SELECT k, rev FROM {lock} WHERE k IN (<keys>);

-- name: living
SELECT id FROM {process} WHERE until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND id IN (<keys>);

-- name: beat
INSERT INTO {process} (id, until) VALUES (<k>, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + <n>)
ON DUPLICATE KEY UPDATE until = VALUES(until);

-- name: floor
UPDATE {state} SET floor = GREATEST(floor, <n>) WHERE one = 1;

-- name: sweep
DELETE FROM {lock} WHERE (k, rev) IN (<pairs>);

-- name: sweep_process
DELETE FROM {process} WHERE until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - <n>;

-- name: fields
SELECT column_name, data_type, is_nullable = 'NO', IF(column_key = 'PRI', 1, 0)
FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = <table> ORDER BY column_name;
