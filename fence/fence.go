// Package fence is the check at the resource: it refuses whoever is not the newest holder any more.
//
// A lock alone cannot protect a resource from a holder that was paused (by its garbage collector, its hypervisor, a slow
// network) until its lease had run out and somebody else worked: when it goes on, its late write arrives, and no store
// of locks can stop it. The resource can, if every holder shows its fencing token (a number that is larger for every
// later holder) and the resource remembers the largest that it has seen.
//
// # Claim before the first read
//
// [Table.Claim] and [Gate.Claim] raise the resource's mark to the caller's token. Claim before anything is read, and
// again in every later transaction or critical section of the same hold. A check at the write alone is not enough:
//
//	A reads 1 left        A is paused, its lease runs out
//	                      B takes the lock, reads 1 left
//	A writes 0 (token 1)  accepted, since nobody has shown a larger token yet
//	                      B writes 0 (token 2): sold twice
//
// When B claims before it reads, A's write is refused; when A's write comes before B's claim, B reads 0.
//
// # What it does not do
//
// The order is that of exclusive holds. Read leases share one token and a semaphore's token orders nothing: neither may
// claim. A holder that does not claim (another program, a lock without tokens) is not fenced. Claim says nothing about
// who holds the lock now, only that nobody newer has claimed.
//
// The guard keeps the token and the hold that showed it: the same token shown by another hold is refused too, since then
// one of the two stores that numbered them has gone back.
//
// The idea is from Kleppmann, "How to do distributed locking" (2016), with the claim moved from the write to the first access.
package fence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Lease is what a guard needs to know of a lock that is held; a *pawl.Lease is one. A type that also has the method
// ID() string (unique to the hold) tells holds with equal tokens apart by it; without it they are told apart by Name.
//
// A value that was sent from another process (a name and a number) can implement it with an Err that answers nil.
type Lease interface {
	Name() string
	Token() int64
	Err() error // nil while the lease is held
}

// ErrStale says that the lease is not the resource's newest: nothing may be read for writing, and nothing written. A
// *StaleError carries the numbers. An ended or nil lease matches it too.
var ErrStale = errors.New("stale token")

// ErrNoToken says that the lease carries no token (its store cannot order its holds), so that nothing can be guarded.
var ErrNoToken = errors.New("lease without a fencing token")

// StaleError says which token was refused, and which one the resource had seen. It matches ErrStale.
type StaleError struct {
	Resource string
	Token    int64 // what the caller showed
	Seen     int64 // the mark; equal to Token when another hold has shown the same number
}

func (e *StaleError) Error() string {
	if e.Token == e.Seen {
		return fmt.Sprintf("fence: %q: stale token %d: another hold has shown the same number", e.Resource, e.Token)
	}
	return fmt.Sprintf("fence: %q: stale token %d: %d has been here", e.Resource, e.Token, e.Seen)
}

// Is makes the error match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// claim is what a lease shows.
type claim struct {
	token int64
	hold  string
}

// show checks what can be checked without the resource.
func show(resource string, l Lease) (claim, error) {
	if l == nil {
		return claim{}, fmt.Errorf("fence: %q: %w: no lease", resource, ErrStale)
	}
	token := l.Token()
	if err := l.Err(); err != nil {
		return claim{}, fmt.Errorf("fence: %q: %w: the lease has ended: %w", resource, ErrStale, err)
	}
	if token <= 0 {
		return claim{}, fmt.Errorf("fence: %q: %w: %q", resource, ErrNoToken, l.Name())
	}
	hold := l.Name()
	if h, ok := l.(interface{ ID() string }); ok {
		hold = h.ID()
	}
	if len(hold) > maxHold || !utf8.ValidString(hold) || strings.ContainsRune(hold, 0) {
		hold = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(hold)))
	}
	return claim{token, hold}, nil
}

// maxHold bounds what is stored of a hold, in bytes; databases take it as text. The rest is hashed.
const maxHold = 255

// passes reports whether the claim c may follow the mark m.
func (c claim) passes(m claim) bool {
	return c.token > m.token || c == m
}
