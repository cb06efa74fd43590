-- Every statement that pawl sends to PostgreSQL. {lock}, {process} and {state} stand for the quoted table names.
--
-- Each is a transaction of its own. All times are microseconds since 1970 on the server's clock, which has no time zone
-- and which no session can change. Several rows are passed as one text of JSON, so that the statements need no array types
-- of a certain Go driver and their text never changes.

-- name: schema
CREATE TABLE IF NOT EXISTS {lock} (
	k       BYTEA   NOT NULL PRIMARY KEY, -- the name, or its first 200 bytes and its SHA-256
	name    BYTEA   NOT NULL,             -- exact bytes
	rev     BIGINT  NOT NULL,             -- another number after every change
	kind    INTEGER NOT NULL,             -- what the name is in use as: driver.Kind
	lim     BIGINT  NOT NULL,             -- of a semaphore
	last    BIGINT  NOT NULL,             -- the largest token reserved
	until   BIGINT  NOT NULL,             -- the last of the holds is over from then on
	changed BIGINT  NOT NULL,             -- when
	state   TEXT    NOT NULL              -- the holds and the waiters, as JSON
);

CREATE TABLE IF NOT EXISTS {process} (
	id    TEXT   NOT NULL PRIMARY KEY,    -- of a driver that waits
	until BIGINT NOT NULL                 -- it is dead from then on, and its waiters with it, unless it says otherwise
);

CREATE TABLE IF NOT EXISTS {state} (
	one     INTEGER NOT NULL PRIMARY KEY,
	version INTEGER NOT NULL,             -- of this layout
	floor   BIGINT  NOT NULL              -- the largest token of all deleted rows
);

INSERT INTO {state} (one, version, floor) VALUES (1, 2, 0) ON CONFLICT (one) DO NOTHING;

-- name: load
SELECT s.version, s.floor, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint,
	l.name, l.rev, l.kind, l.lim, l.last, l.changed, l.state
FROM {state} AS s LEFT JOIN {lock} AS l ON l.k = ANY (ARRAY(SELECT decode(x, 'hex') FROM json_array_elements_text($1::json) AS x))
WHERE s.one = 1;

-- name: load_one
SELECT s.version, s.floor, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint,
	l.name, l.rev, l.kind, l.lim, l.last, l.changed, l.state
FROM {state} AS s LEFT JOIN {lock} AS l ON l.k = $1::bytea WHERE s.one = 1;

-- name: page
SELECT s.version, s.floor, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint,
	l.name, l.rev, l.kind, l.lim, l.last, l.changed, l.state
FROM {state} AS s LEFT JOIN (
	SELECT * FROM {lock} WHERE k >= decode($1, 'hex') AND k > decode($2, 'hex') AND ($3 = '' OR k < decode($3, 'hex')) ORDER BY k LIMIT $4
) AS l ON TRUE
WHERE s.one = 1 ORDER BY l.k;

-- One row, if the server's clock is within $10 and $11 (0: whenever). $12 is what synchronous_commit is to be for it, '': as it is.

-- name: update
UPDATE {lock} SET rev = $3::bigint, kind = $4::bigint, lim = $5::bigint, last = $6::bigint, until = $7::bigint, changed = $8::bigint, state = $9::text
WHERE k = (
	SELECT k FROM {lock} WHERE k = $1::bytea AND rev = $2::bigint
		AND ($11::bigint = 0 OR (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint BETWEEN $10::bigint AND $11::bigint)
		AND ($12::text = '' OR set_config('synchronous_commit', $12::text, true) <> '')
	FOR UPDATE SKIP LOCKED
);

-- The same, and a notification with it. If the row cannot be written, what is there instead is answered, and else nothing.

-- name: write
WITH w AS (
	UPDATE {lock} SET rev = $3::bigint, kind = $4::bigint, lim = $5::bigint, last = $6::bigint, until = $7::bigint, changed = $8::bigint, state = $9::text
	WHERE k = (
		SELECT k FROM {lock} WHERE k = $1::bytea AND rev = $2::bigint
			AND ($11::bigint = 0 OR (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint BETWEEN $10::bigint AND $11::bigint)
			AND ($12::text = '' OR set_config('synchronous_commit', $12::text, true) <> '')
		FOR UPDATE SKIP LOCKED
	) RETURNING CASE WHEN $13::text <> '' THEN pg_notify($13::text, $14::text) END
)
SELECT s.version, s.floor, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint,
	l.name, l.rev, l.kind, l.lim, l.last, l.changed, l.state
FROM {state} AS s LEFT JOIN {lock} AS l ON l.k = $1::bytea WHERE s.one = 1 AND NOT EXISTS (SELECT FROM w);

-- name: save
WITH v AS (
	SELECT decode(x.k, 'hex') AS k, decode(x.name, 'hex') AS name, x.was, x.rev, x.kind, x.lim, x.last, x.until, x.changed, x.state
	FROM json_to_recordset($1::json) AS x(k text, name text, was bigint, rev bigint, kind int, lim bigint, last bigint, until bigint, changed bigint, state text)
), u AS (
	SELECT l.k FROM {lock} AS l JOIN v ON v.k = l.k WHERE l.rev = v.was AND v.was <> 0 ORDER BY l.k FOR UPDATE OF l SKIP LOCKED
), w AS (
	UPDATE {lock} AS l SET rev = v.rev, kind = v.kind, lim = v.lim, last = v.last, until = v.until, changed = v.changed, state = v.state
	FROM u JOIN v ON v.k = u.k WHERE l.k = u.k AND l.rev = v.was RETURNING l.k
), i AS (
	INSERT INTO {lock} (k, name, rev, kind, lim, last, until, changed, state)
	SELECT k, name, rev, kind, lim, last, until, changed, state FROM v WHERE was = 0
	ON CONFLICT (k) DO NOTHING RETURNING k
)
SELECT d.k, (
	SELECT COUNT(pg_notify(x.c, x.p)) FROM json_to_recordset($2::json) AS x(k text, c text, p text) WHERE decode(x.k, 'hex') = d.k
) FROM (SELECT k FROM w UNION ALL SELECT k FROM i) AS d;

-- name: living
SELECT id FROM {process}
WHERE until > (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint AND id = ANY (ARRAY(SELECT json_array_elements_text($1::json)));

-- name: beat
INSERT INTO {process} (id, until) VALUES ($1, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint + $2)
ON CONFLICT (id) DO UPDATE SET until = excluded.until;

-- name: floor
UPDATE {state} SET floor = GREATEST(floor, $1) WHERE one = 1;

-- name: sweep
DELETE FROM {lock} AS l USING (
	SELECT l.k FROM json_to_recordset($1::json) AS x(k text, rev bigint) JOIN {lock} AS l ON l.k = decode(x.k, 'hex') AND l.rev = x.rev
	FOR UPDATE OF l SKIP LOCKED
) AS d WHERE l.k = d.k;

-- name: sweep_process
DELETE FROM {process} WHERE until < (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint - $1;

-- name: fields
SELECT a.attname, format_type(a.atttypid, NULL), a.attnotnull, COALESCE(array_position(i.indkey::int2[], a.attnum) + 1, 0)
FROM pg_attribute AS a LEFT JOIN pg_index AS i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attname;
