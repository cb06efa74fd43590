package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/child"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/join"
	"github.com/pawl-lock/pawl/driver"
)

// held is a lock that a command may run under: a lease, or a turn under the lock of the pawl run around this one.
type held interface {
	Token() int64
	Deadline() time.Time // the trust deadline
	Err() error          // nil while it is held and trusted
	Done() <-chan struct{}
}

// turn is a lock that was joined. The pawl run around this one renews it.
type turn struct {
	*join.Turn
	maxAt   driver.Instant // 0: none
	tooLong bool
}

var (
	errOuterLost  = errors.New("the lock is lost: the pawl run around this one has lost it, or has ended")
	errOuterStale = errors.New("the lock is lost: the pawl run around this one did not renew it in time")
)

func (t *turn) Token() int64          { return t.Facts.Token }
func (t *turn) Done() <-chan struct{} { return nil } // Err tells it at the next look
func (t *turn) Deadline() time.Time   { return time.Now().Add(time.Duration(t.Until() - child.Now())) }

func (t *turn) Err() error {
	switch until := t.Until(); {
	case until == 0:
		return errOuterLost
	case child.Now() >= until:
		return errOuterStale
	case t.tooLong || t.maxAt != 0 && driver.Now() >= t.maxAt:
		t.tooLong = true
		return &pawl.LostError{Reason: pawl.TooLong}
	}
	return nil
}

// join looks for the lock among those that this process runs under, and waits for a turn. Without one the answer is nil.
func (j *job) join(store string, signals <-chan os.Signal) (*turn, error) {
	if store == "" || j.permits > 0 { // permits never re-enter
		return nil, nil
	}
	found, err := join.Find(store, j.name)
	switch {
	case errors.Is(err, join.ErrOver):
		return nil, j.outerOver()
	case errors.Is(err, fs.ErrPermission):
		return nil, &failure{exitPermission, fmt.Sprintf("%q: it is held by the pawl run around this one, which another user runs: %v (exit %d)", j.name, err, exitPermission)}
	case err != nil:
		return nil, &failure{exitInternal, fmt.Sprintf("%q: %v: unset %s to take the lock anew (exit %d)", j.name, err, join.Variable, exitInternal)}
	case found == nil:
		return nil, nil
	}
	t := &turn{Turn: found}
	if err = j.joinable(found.Mode); err == nil {
		err = j.awaitTurn(t, signals)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	if j.maxHold > 0 {
		t.maxAt = driver.Now().Add(j.maxHold)
	}
	return t, nil
}

func (j *job) outerOver() error {
	return &failure{j.lostCode, fmt.Sprintf("%q: %v: the pawl run that took it has lost it or has ended. To take it anew, unset %s (exit %d)",
		j.name, join.ErrOver, join.Variable, j.lostCode)}
}

// joinable says why a lock that is held in one mode cannot be entered in the mode of j.
func (j *job) joinable(outer string) error {
	inner := j.mode()
	rw := func(mode string) bool { return mode == "read" || mode == "write" }
	switch {
	case outer == "read" && inner == "write":
		return usage("run: %q is held to read by the pawl run around this one, so it cannot be written under it: it would wait for itself", j.name)
	case rw(outer) != rw(inner):
		return usage("run: %q is held by the pawl run around this one as another kind of lock (%s, not %s)", j.name, outer, inner)
	}
	return nil
}

// awaitTurn waits for those who have joined before.
func (j *job) awaitTurn(t *turn, signals <-chan os.Signal) error {
	begin := driver.Now()
	said := j.skip || j.g.say.quiet
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		took := t.Take(j.shared)
		waited := driver.Now().Sub(begin)
		switch {
		case t.Err() != nil:
			return j.outerOver()
		case took:
			return nil
		case j.nonblock || j.wait > 0 && waited >= j.wait:
			if j.skip {
				return &failure{code: exitOK}
			}
			return &failure{j.conflict, fmt.Sprintf("%q: another command has its turn under the pawl run around this one (exit %d)", j.name, j.conflict)}
		case !said && waited > noticeAfter:
			said = true
			j.g.say.note("waiting for %q: another command has its turn under the pawl run around this one", j.name)
		}
		select {
		case s := <-signals:
			return j.interrupted(s)
		case <-tick.C:
		}
	}
}

// offer lets a pawl run inside the command join the lock.
func (j *job) offer(store, mode, hold string, h held) *join.Offer {
	if store == "" || mode == "permits" {
		return nil
	}
	o, err := join.New(store, j.name, join.Facts{Mode: mode, Hold: hold, Token: h.Token(), TTL: j.ttl.Milliseconds()}, instant(h.Deadline()))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		j.g.say.note("%q: a pawl run of this name inside the command will not be able to join the lock: %v", j.name, err)
		return nil
	}
	return o
}

// instant is a time on the clock that all processes of the machine share.
func instant(t time.Time) int64 { return child.Now() + int64(time.Until(t)) }

// waitsForItself reports whether the lock that c waits for is one that this process runs under, of a store that is called
// something else here.
func waitsForItself(info pawl.Info) bool {
	for _, h := range info.Holders {
		if h.ID != "" && join.Holds(h.ID) {
			return true
		}
	}
	return false
}
