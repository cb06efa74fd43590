// Package zklock keeps pawl's locks in ZooKeeper, in the layout of Apache Curator's recipes: a Curator client of the same
// path contends for the same lock, in both directions.
//
//	InterProcessMutex          Exclusive and Fair (they are the same here: all are served in order of arrival)
//	InterProcessReadWriteLock  Read and Write
//	InterProcessSemaphoreV2    Permits
//	LeaderLatch                Leader
//
// A name is one path element below a root: the lock "stock:1001" of zookeeper://host/locks is Curator's path
// /locks/stock:1001. What a path cannot have is percent-encoded, "/" and "%" included.
//
// # What it promises
//
// Exclusion is kept by the ensemble for as long as the holder stops at its trust deadline, through any loss, delay or
// restart of servers, clients and connections. A hold is a node of a session. The session of a process that died ends a
// session timeout later, give or take a tick, and with it all its holds; the TTL of a hold that is longer or shorter does
// not change that. A living process that does not renew a hold loses it at its TTL: the driver deletes the node then.
//
// A grant is trusted for at most two thirds of the session timeout, from before the first of the requests that got it.
// Every renewal is a transaction that the leader carried out for the live session, so the deadline passes before the
// ensemble can end the session, also when a member hears of our requests before the leader does.
//
// # What it does not promise
//
// ZooKeeper stores no limit for a semaphore. pawl's clients find out that their limits differ, by the names of their
// nodes; a Curator client with another limit is not found out. Other clients of the family do not stop at a deadline: a
// Curator or kazoo holder whose session ended may go on working, and only fencing helps. kazoo's Lock is honoured, but
// honours nobody unless it is told to: see Stranger.
//
// The full story, with the facts of the layout and how it was measured, is in docs/zookeeper.md.
package zklock
