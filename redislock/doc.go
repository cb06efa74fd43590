// Package redislock keeps pawl's locks on a Redis or Valkey server, in the layout of Redisson 3.x and 4.x, so that Go and
// Java processes share them: a mutex is an RLock (or, with Options.Fenced, an RFencedLock), a fair mutex an RFairLock, a
// read-write lock an RReadWriteLock, and a semaphore an RPermitExpirableSemaphore. Each side sees the other's holders,
// waits for them, and is woken by their releases. Elections and onces are pawl's own.
//
// # Guarantees
//
//   - Exclusion holds as long as the server keeps its data and its clock, and every holder stops at its trust deadline:
//     holds live by TTL, counted by the server from a moment after Grant.Sent.
//   - Tokens rise: the first of a grant is above the last one given out for the name and not below the server's clock in
//     microseconds. So they rise over release, expiry, steal and FLUSHALL, and over a step back of the clock for a day.
//   - A release that returned nil has freed the name and woken the next. A hold that ended is never revived.
//   - Waiting costs nothing: one pub/sub connection for all, and no command, except that places for fair and read-write
//     locks say every few seconds that they are alive. A lost message or subscription costs at most one re-check.
//   - Exclusive waiters of pawl's get in by arrival. The next one has 30 ms to come, one whose process is gone has none;
//     then the one behind it may. Clients that know nothing of pawl's line get about every fourth release.
//   - A mutex that is kept for others of the same process (pawl's hand-off, Linger) is told, by a message to that process, when
//     another one begins to wait.
//   - A waiting writer stops pawl's later readers. Permits are given by arrival, so that a large request is not starved.
//
// # Non-guarantees
//
//   - A server that loses writes (a crash without appendfsync always, a fail-over to a replica that lags, FLUSHALL,
//     eviction) may give a name to two holders. Use the token at the resource. maxmemory-policy must be noeviction.
//   - A step of the server's clock by more than a TTL ends holds early. A fail-over and a step back at once may repeat
//     tokens.
//   - Java clients do not know pawl's line, reservations and waiting writers, and take a lock that they find free.
//   - Holds of other clients have no pawl token, and are outside the order, unless both sides use Redisson's counter.
//   - Redisson's renewal of a read lock may shorten the TTL that it shares with longer holds (spec of RReadWriteLock).
//   - The same name must be used as the same kind on both sides. pawl refuses another kind, Redisson does not always.
//   - Redisson cannot tell the fair queue and the permits of "{x}" from those of "x"; pawl can, so it shares fair locks and
//     semaphores with Redisson under no name that is wholly in braces.
//
// # Keys
//
// N is the name, behind Options.Prefix. [N] is {N}, or N if it contains a brace; [[N]] is {N}, or :N if it contains a brace.
//
//	N                              hash      lock, fair lock, read-write lock                 Redisson (see below)
//	N                              string    free permits of a semaphore                      Redisson
//	[N]:timeout                    zset      permits that are out, by expiry                  Redisson
//	[N]:<owner>:rwlock_timeout:1   string    one read hold                                    Redisson
//	redisson_lock_queue:[N]        list      fair queue                                       Redisson
//	redisson_lock_timeout:[N]      zset      until when each in it waits                      Redisson
//	redisson_lock_token:[N]        string    counter of the fenced lock                       Redisson
//	pawl_token:[[N]]               string    last token reserved; kept for a day past it      pawl
//	pawl_clock:                    string    highest token stamped on any name; likewise      pawl
//	pawl_line:[[N]]                zset      waiting places by arrival                        pawl
//	pawl_due:[[N]]                 zset      until when each counts as alive; undone requests pawl
//	pawl_lock:[[N]]                hash      election or once                                 pawl
//	pawl_held:[[N]]                hash      tokens of read holds and permits                 pawl
//	pawl_permits:[[N]]             zset      pawl's permits by owner                          pawl
//	pawl_who:<client uuid>         string    who that client is, in JSON                      pawl
//
// The field of a hold has Redisson's re-entry count, which no client but the holder reads. A mutex or fair lock that was taken for
// one token on one server has its token there instead ("stamped"), above all of pawl_clock: and of pawl_token:[[N]], which is then
// removed: such a name leaves nothing behind when it is free. A hold for several tokens, of another kind, or in a cluster,
// has the count 1, and its tokens in pawl_token:[[N]].
//
// All keys of pawl's own have a TTL. A semaphore that pawl made is kept for a day after its last use, one that Redisson
// made for ever. Channels are Redisson's redisson_lock__channel:[N], redisson_rwlock:[N], redisson_sc:[N], with Redisson's
// payloads, and pawl's pawl_wake:<client uuid> and pawl_watch:[[N]].
//
// # Sentinel and Cluster
//
// Over Sentinels, connections are dropped as soon as the Sentinels name another primary. A fail-over keeps what the new
// primary has got; a lock that it has not got is lost, and may be given to another while the first holder still trusts it.
// Then the second token is larger, as long as the servers' clocks agree, and a resource that checks tokens is safe.
//
// In a cluster all keys and channels of a name are in its slot. A name with braces that gives no slot ("{}a", "a}b{") is
// ErrInvalid. MOVED and ASK are followed, and TRYAGAIN is for as long as a request may take (a TTL, 5 s at most): while the
// keys of a slot move, renewals of mutexes go on and most other requests wait for the end of the move. pawl's waiters are
// called by plain messages, which reach every node, and Redisson's by plain and by sharded ones. A script cannot see whether
// a process listens at another node. So a waiting place whose process is gone costs 30 ms each time, and a writer that died
// while it waited stops new readers for its TTL (3 s at least, 30 s at most).
//
// # Plain strings
//
// A [Plain] keeps mutexes in the other layout that is widely used, one string key set if absent, and shares nothing with the
// one above: a name must be used in one of them only.
//
// # The server
//
// Redis 6.2 or later, or Valkey; RESP2 or RESP3. A server that allows no pub/sub, or no Lua scripts, is used in a slower way,
// of which [Mode] tells. An ACL that is enough for every kind:
//
//	ACL SETUSER pawl on >… ~* &redisson_* &pawl_* -@all +hello +ping +evalsha +eval +get +set +scan +subscribe +unsubscribe
//	  +time +info +exists +type +del +pexpire +pttl +incr +incrby +decrby +publish +pubsub|numsub
//	  +hset +hget +hdel +hlen +hkeys +hexists +hgetall +lindex +lpos +lpop +lrem +llen +lrange +rpush
//	  +zadd +zrem +zscore +zrank +zrange +zcard +zcount +zrangebyscore +zremrangebyscore
//
// And besides:
//
//	behind Sentinels       +role
//	in a cluster           +asking +cluster|slots +cluster|shards +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub
//	with Options.Replicas  +wait
//	in database 1 and on   +select
//
// Without pub/sub the three commands with "subscribe" and "publish" and the channels can be left out. Without scripts there are
// mutexes only, and this is enough:
//
//	ACL SETUSER pawl on >… ~* &redisson_* &pawl_* -@all +hello +ping +watch +unwatch +multi +exec +time +get +set +scan
//	  +exists +type +del +pexpire +pttl +incr +hset +hget +hdel +hexists +hgetall +zadd +zscore +zrange +lindex
//	  +publish +subscribe +unsubscribe
//
// With a Prefix p without braces, ~* can be ~p* ~{p* ~pawl_* ~redisson_*.
package redislock
