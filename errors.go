package pawl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// The outcomes, to be matched with errors.Is. A wait that ends also matches context.Cause of its ctx (or
// context.DeadlineExceeded, after Options.Wait). A store that lacks a power answers errors.ErrUnsupported. Any other
// error is the store's own, wrapped.
var (
	ErrHeld     = driver.ErrHeld                // acquiring: another holds it; nothing was taken
	ErrMismatch = driver.ErrMismatch            // acquiring: the name is another kind of lock, or has another limit
	ErrInvalid  = driver.ErrInvalid             // acquiring: a name or an option that can never work
	ErrNotHeld  = driver.ErrNotHeld             // the lease was unlocked before, or was never taken
	ErrLost     = errors.New("lost")            // the lease ended without Unlock; others may have worked meanwhile
	ErrUnknown  = errors.New("outcome unknown") // the store did not answer: it may have happened
	ErrClosed   = driver.ErrClosed              // the client was closed
)

// HeldError says who holds a lock, as far as the store knows. It matches ErrHeld, and what ended the wait.
type HeldError struct {
	Name      string
	Holder    Holder        // zero: not known
	Remaining time.Duration // until it runs out unless it is renewed; 0: not known; negative: never
	Waiters   int           // in front of us, as far as known; -1: not known
	Here      bool          // a lease of this very client holds it
	cause     error         // why the wait ended; nil for TryLock
}

func (e *HeldError) Error() string {
	s := fmt.Sprintf("pawl: %q: held by %v", e.Name, e.Holder)
	if e.Here {
		s = fmt.Sprintf("pawl: %q: held by another lease of this client (to re-enter, pass the ctx of Lease.Context)", e.Name)
	}
	if e.cause != nil {
		s += ": gave up: " + e.cause.Error()
	}
	return s
}

// Is makes the error match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap is what ended the wait.
func (e *HeldError) Unwrap() error { return e.cause }

// LostError says why a lease ended. It matches ErrLost and is the context.Cause of the lease's contexts.
type LostError struct {
	Name   string
	Token  int64
	Reason Reason
	Err    error // the last error of the store, if any
}

// Reason is why a lease was lost.
type Reason string

// The reasons.
const (
	Expired Reason = "expired"  // the store did not confirm it before the trust deadline
	Revoked Reason = "revoked"  // the store says that it is gone: deleted, stolen, session ended
	TooLong Reason = "max hold" // Options.MaxHold, or the limit of Election.Drain, is over
	Closing Reason = "closing"  // Client.Close
)

func (e *LostError) Error() string {
	s := fmt.Sprintf("pawl: %q: lost: %s", e.Name, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes the error match ErrLost, and ErrClosed when Close was the reason.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Reason == Closing && target == ErrClosed
}

// Unwrap is the last error of the store, if any.
func (e *LostError) Unwrap() error { return e.Err }

// UnknownError is a Lock or an Unlock whose request the store may or may not have carried out. pawl goes on undoing it in
// the background; the name is free of it by FreeBy at the latest. It matches ErrUnknown.
type UnknownError struct {
	Op     string // "lock" or "unlock"
	Name   string
	FreeBy time.Time
	Err    error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("pawl: %s %q: outcome unknown (given back by %s at the latest): %v",
		e.Op, e.Name, e.FreeBy.UTC().Format("15:04:05.000Z"), e.Err)
}

// Is makes the error match ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unwrap is the error of the store.
func (e *UnknownError) Unwrap() error { return e.Err }

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pawl: %s %q: %w", op, name, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("pawl: "+format+" (%w)", append(args, ErrInvalid)...)
}

// both joins what the store said with what ended ctx, so that each stays matchable.
func both(err error, ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return errors.Join(cause, err)
	}
	return err
}
