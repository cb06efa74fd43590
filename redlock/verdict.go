package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// QuorumError says that too few members did what they were asked to. It matches driver.ErrNotDone only if surely nothing
// of the request is at any member.
type QuorumError struct {
	Op      string
	OK      int     // members that did it
	Need    int     // that would have been enough
	Members []error // by member, in the order of New: why it did not; nil: it did, or it was not waited for

	sure bool
}

func (e *QuorumError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "redlock: %s: %d of %d members did it, %d are needed", e.Op, e.OK, len(e.Members), e.Need)
	for i, err := range e.Members {
		if err != nil {
			// One line: joined errors print one each.
			fmt.Fprintf(&s, "; member %d: %s", i+1, strings.ReplaceAll(plain(err).Error(), "\n", ": "))
		}
	}
	return s.String()
}

func (e *QuorumError) Is(target error) bool { return e.sure && target == driver.ErrNotDone }

// plain turns a request that ran into its own limit into words.
func plain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return err
}

// verdict says why a ballot was lost. why, if not nil, ended it early.
func (b *ballot) verdict(why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.votes)
	e := &QuorumError{Op: "lock", Need: b.c.need, Members: make([]error, n), sure: true}
	var refused []*driver.HeldError
	var mismatch, done error
	mismatches, could := 0, 0 // could: members that would vote if the name were free
	for i, v := range b.votes {
		switch v.state {
		case cast, counted:
			e.OK++
			could++
			e.sure = false
			continue
		case open:
			could++
			e.sure = false
			e.Members[i] = errors.New("no answer yet")
			continue
		}
		e.Members[i] = v.err
		var held *driver.HeldError
		switch {
		case errors.Is(v.err, driver.ErrInvalid), errors.Is(v.err, errors.ErrUnsupported):
			return b.c.d.members[i].wrap(v.err)
		case errors.Is(v.err, errUnknown):
			e.sure = false
		case errors.As(v.err, &held):
			refused = append(refused, held)
			could++
		case errors.Is(v.err, driver.ErrHeld):
			refused = append(refused, &driver.HeldError{})
			could++
		case errors.Is(v.err, driver.ErrDone):
			done = longest(done, v.err)
		case errors.Is(v.err, driver.ErrMismatch):
			mismatch = v.err
			mismatches++
			could++
		case v.err == errUnasked:
			could++
		case v.err == errSpent, v.err == errBusy:
			e.sure = false
		}
	}
	switch {
	case done != nil:
		// Only a holder that has finished leaves a result, and even one member's memory of it is true.
		return done
	case why != nil:
		return fmt.Errorf("redlock: %w (%s)", why, e)
	case mismatches > n-b.c.need:
		return mismatch
	case len(refused)+mismatches > 0 && could >= b.c.need:
		return b.refusal(refused, e.OK)
	}
	return e
}

func longest(a, b error) error {
	var x, y *driver.DoneError
	if errors.As(a, &x) && errors.As(b, &y) && x.Remaining >= y.Remaining {
		return a
	}
	return b
}

// refusal puts together what the members said of who is in the way.
func (b *ballot) refusal(refused []*driver.HeldError, granted int) *driver.HeldError {
	e := &driver.HeldError{Ahead: -1}
	count := map[string]int{}
	for _, r := range refused {
		if id := r.By.ID; id != "" {
			count[id]++
			if count[id] >= b.c.d.majority && e.By.ID == "" {
				e.By = b.c.d.known(r.By)
			}
		}
	}
	// The name may get free when as many members as are missing do.
	if k := b.c.need - granted - 1; k >= 0 && k < len(refused) {
		slices.SortFunc(refused, func(x, y *driver.HeldError) int { return cmp.Compare(forever(x.Remaining), forever(y.Remaining)) })
		e.Remaining = refused[k].Remaining
		if refused[0].Remaining == 0 {
			e.Remaining = 0
		}
	}
	return e
}

// divided reports whether contenders were in one another's way rather than a holder.
func (b *ballot) divided(held *driver.HeldError) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.votes {
		if v.state == cast || v.state == counted || errors.Is(v.err, errVoid) {
			return true
		}
	}
	return held.By.ID == "" && !b.c.r.Kind.Shared()
}

// forever sorts a time that never ends last.
func forever(t time.Duration) time.Duration {
	if t < 0 {
		return 1<<63 - 1
	}
	return t
}

// known gives a hold that was got here the token that the quorum agreed on, instead of one member's own.
func (d *Driver) known(h driver.HeldBy) driver.HeldBy {
	h.Token = 0
	if c := d.find(h.ID); c != nil {
		c.mu.Lock()
		h.Token = c.token
		c.mu.Unlock()
	}
	return h
}
