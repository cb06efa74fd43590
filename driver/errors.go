package driver

import (
	"errors"
	"fmt"
	"time"
)

// The errors that a driver answers with. Anything else is "unknown" for Try and "try again" for Renew, Release and Leave.
var (
	ErrHeld     = errors.New("held by another")
	ErrNotHeld  = errors.New("not held")
	ErrDone     = errors.New("already done")
	ErrMismatch = errors.New("name is in use as another kind of lock or with another limit")
	ErrInvalid  = errors.New("invalid")          // the request can never work here: a name, a TTL, an option
	ErrNotDone  = errors.New("nothing was done") // the request surely had no effect (refused, never sent); another may work
	ErrClosed   = errors.New("closed")           // with ErrNotDone: the driver was closed
)

// HeldError says that a name is taken, with what the store told about the holder. It matches ErrHeld.
type HeldError struct {
	By        HeldBy        // zero: not known
	Remaining time.Duration // until the name may get free by itself; 0: not known; negative: never
	Ahead     int           // waiters in front of this place; -1: not known
	Again     time.Duration // look again after this even without Changed; 0: the client decides by Remaining
}

func (e *HeldError) Error() string        { return ErrHeld.Error() }
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// DoneError is the answer to a Once that has finished. It matches ErrDone.
type DoneError struct {
	Value     []byte
	Remaining time.Duration // how long it stays remembered
}

func (e *DoneError) Error() string        { return ErrDone.Error() }
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// MismatchError says what the name is in use as, and what was asked for. It matches ErrMismatch.
type MismatchError struct {
	Have, Want           Kind // zero: not known
	HaveLimit, WantLimit int  // Permits
}

func (e *MismatchError) Error() string {
	switch {
	case e.HaveLimit != e.WantLimit && e.HaveLimit != 0 && e.WantLimit != 0:
		return fmt.Sprintf("name is in use as a semaphore of %d permits, not %d", e.HaveLimit, e.WantLimit)
	case e.Have != 0 && e.Want != 0:
		return fmt.Sprintf("name is in use as %s, not %s", e.Have.Family().noun(), e.Want.Family().noun())
	}
	return ErrMismatch.Error()
}

func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

func (k Kind) noun() string {
	switch k {
	case Exclusive:
		return "a mutex"
	case Read:
		return "a read-write lock"
	case Permits:
		return "a semaphore"
	case Leader:
		return "an election"
	case Once:
		return "a once"
	}
	return "another kind"
}
