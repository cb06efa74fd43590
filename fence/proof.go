package fence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Lease is what a guard needs to know of a lock that is held; a *pawl.Lease is one. A type that also has the method
// ID() string (unique to the hold, as that of *pawl.Lease is) tells holds with equal tokens apart by it; without it they
// are told apart by Name.
//
// A value that was sent from another process (a name and a number) can implement it with an Err that answers nil.
type Lease interface {
	Name() string
	Token() int64
	Err() error // nil while the lease is held
}

// Proof is what a lease shows to a guard. It is plain data.
type Proof struct {
	Token int64  // positive
	Hold  string // 1 to MaxHold bytes of UTF-8 without NUL
}

// MaxHold bounds Proof.Hold, in bytes, so that every store takes it as text. A longer one is replaced by its hash.
const MaxHold = 255

// Show checks what can be checked without the resource and answers what l shows. It is for those who write a guard of
// their own. It does not block. It answers ErrStale for a nil lease and one that has ended, ErrNoToken for one without a
// token.
func Show(resource string, l Lease) (Proof, error) {
	if l == nil {
		return Proof{}, fmt.Errorf("fence: %q: %w: no lease", resource, ErrStale)
	}
	token := l.Token()
	if err := l.Err(); err != nil {
		return Proof{}, fmt.Errorf("fence: %q: %w: the lease has ended: %w", resource, ErrStale, err)
	}
	if token <= 0 {
		return Proof{}, fmt.Errorf("fence: %q: %w: %q", resource, ErrNoToken, l.Name())
	}
	hold := l.Name()
	if h, ok := l.(interface{ ID() string }); ok {
		hold = h.ID()
	}
	if hold == "" || len(hold) > MaxHold || !utf8.ValidString(hold) || strings.ContainsRune(hold, 0) {
		hold = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(hold)))
	}
	return Proof{token, hold}, nil
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

// mark is what a resource remembers: the newest exclusive claim, and the largest token of the shared ones.
type mark struct {
	Proof
	shared int64
}

// raise answers the mark after the claim p, or a *StaleError.
func (m mark) raise(resource string, p Proof, shared bool) (mark, error) {
	newer := p.Token > m.Token || p == m.Proof
	switch {
	case shared && newer:
		m.shared = max(m.shared, p.Token)
	case shared:
		return m, &StaleError{Resource: resource, Token: p.Token, Seen: m.Token}
	case newer && p.Token >= m.shared:
		m.Proof = p
	default:
		return m, &StaleError{Resource: resource, Token: p.Token, Seen: max(m.Token, m.shared)}
	}
	return m, nil
}
