// Package etcdlock keeps pawl's locks in etcd (3.4 or later), with the keys of etcd's own package concurrency and of the
// command etcdctl lock: whoever locks with those and whoever locks with pawl exclude one another, stand in one line, and
// wake one another. See docs/etcd.md for the layout and the reasons.
//
// What it guarantees. A name has one holder at a time by the cluster's own order, also across a change of leader, a crash
// and a restart: a write is in the quorum or nowhere. A holder that stops at its trust deadline (pawl's client does) never
// overlaps with the next one. All kinds are fair: contenders get in by the create revision of their keys. Tokens rise with
// the holds of a name.
//
// What it does not. A holder that goes on after its trust deadline (a process that was stopped for longer than its TTL)
// overlaps with the next one; only a check of the token at the resource helps. A cluster that is restored from a backup
// begins again at older revisions, and so do the tokens. A process that loses its session loses all locks with that TTL.
//
// All contenders of a driver with one TTL live by one lease, which the driver keeps alive. The cluster counts in whole
// seconds, and grants two at least with its default settings: TTLs are rounded up, and Grant.TTL says what was granted.
// Time is the cluster leader's monotonic clock and this process's driver.Now; wall clocks play no part.
package etcdlock
