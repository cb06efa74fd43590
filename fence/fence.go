// Package fence is the check at the resource: it refuses whoever is not the newest holder any more.
//
// A lock alone cannot protect a resource from a holder that was paused (by its garbage collector, its hypervisor, a slow
// network) until its lease had run out and somebody else worked: when it goes on, its late write arrives, and no store
// of locks can stop it. The resource can, if every holder shows its fencing token (a number that is larger for every
// later holder) and the resource remembers the largest that it has seen.
//
// The guards: [Table] in a SQL transaction, which is the strongest protection that pawl has, since claim and work are
// committed together or not at all; [Gate] in the process; [Transport] and [Handler] between an HTTP client and server;
// package redislock/redisfence on Redis. Package guardtest is the suite that they all pass, for guards of your own too.
//
// # Claim before the first read
//
// Claim raises the resource's mark to the caller's token. Claim before anything is read, and again in every later
// transaction or critical section of the same hold. A check at the write alone is not enough:
//
//	A reads 1 left        A is paused, its lease runs out
//	                      B takes the lock, reads 1 left
//	A writes 0 (token 1)  accepted, since nobody has shown a larger token yet
//	                      B writes 0 (token 2): sold twice
//
// When B claims before it reads, A's write is refused; when A's write comes before B's claim, B reads 0.
//
// # Exclusive and shared
//
// Claim is for those who write, under an exclusive lock. ClaimShared is for those who only read, under a read lock, and
// want no late write to change what they read: after it, writers older than the reader are refused. A shared claim must
// not be older than the newest exclusive one; an exclusive claim must not be older than any other. Whoever reads and can
// live with a late write to what it has read need not claim.
//
// A guard keeps the token and the hold that showed it. The hold may claim as often as it likes; the same token shown by
// another hold is refused, since then one of the two stores that numbered them has gone back.
//
// # What it does not do
//
// A semaphore's token orders nothing: it may not claim. A holder that does not claim (another program, a lock without
// tokens) is not fenced. Claim says nothing about who holds the lock now, only that nobody newer has claimed.
//
// The idea is from Kleppmann, "How to do distributed locking" (2016), with the claim moved from the write to the first access.
package fence
