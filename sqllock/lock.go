package sqllock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// errNeedLiving says that a request can be answered only by one who knows which waiting processes live. Nothing was
// changed yet.
var errNeedLiving = errors.New("it is not known who lives")

// try gives the name to p, or says why not.
func (b *batch) try(r *record, p *place, span int) (hold, error) {
	want := &p.r
	free := len(r.Holds) == 0 || r.end() <= b.now
	if b.living == nil && len(r.Line) > 0 && r.inLine(want.ID) < 0 &&
		(free && r.kind.Family() != want.Kind.Family() || r.room(b.now).fits(r, want.Kind, want.Permits)) {
		// Only waiters are in the way: are they alive?
		return hold{}, errNeedLiving
	}
	r.purge(b.now)
	if b.living != nil {
		r.bury(b.living)
	}
	r.lapse(b.now)
	if h := r.hold(driver.Hold{ID: want.ID}); h != nil { // asked twice: still one hold
		h.Until, r.changed = max(h.Until, b.after(wholeMillis(want.TTL))), true
		return *h, nil
	}
	if r.free() {
		r.kind, r.limit = want.Kind.Family(), want.Limit
	}
	switch {
	case r.kind.Family() != want.Kind.Family():
		return hold{}, &driver.MismatchError{Have: r.kind, Want: want.Kind}
	case want.Kind == driver.Permits && r.limit != want.Limit:
		return hold{}, &driver.MismatchError{Have: r.kind, Want: want.Kind, HaveLimit: r.limit, WantLimit: want.Limit}
	}
	if h := r.done(); h != nil {
		if i := r.inLine(want.ID); i >= 0 {
			r.quit(i)
		}
		return hold{}, &driver.DoneError{Value: h.Value, Remaining: b.left(h.Until)}
	}
	if !r.mayEnter(want.ID, want.Kind, want.Permits, b.now) {
		return hold{}, b.refuse(r, p)
	}
	token := max(r.last+1, b.floor+1, b.wall)
	if token > largestToken {
		return hold{}, fmt.Errorf("sqllock: the tokens of %q are used up: somebody raised them: %w", want.Name, driver.ErrInvalid)
	}
	who := readable(want.Who)
	h := hold{
		Kind: want.Kind, ID: want.ID, Token: token, Top: token + int64(max(span, 1)) - 1, Permits: max(want.Permits, 1),
		Until: b.after(wholeMillis(want.TTL)), Since: b.wall,
		Label: who.Label, Host: who.Host, PID: who.PID, Note: who.Note, Process: b.d.ears(),
	}
	if want.Kind == driver.Leader {
		h.Value = want.Value
	}
	r.last, r.changed = h.Top, true
	r.Holds = append(r.Holds, h)
	if i := r.inLine(want.ID); i >= 0 {
		r.quit(i)
	}
	r.settle(b.now)
	return h, nil
}

func (h hold) span() int { return int(max(h.Top-h.Token+1, 1)) }

// Tokens are microseconds since 1970, or a little more. These bounds keep sums of them far from the end of an int64.
const (
	largestToken = 1 << 61
	widestSpan   = 1 << 40
)

// refuse puts p in line if it will wait, and says by whom it was kept out.
func (b *batch) refuse(r *record, p *place) error {
	held := &driver.HeldError{}
	if !r.room(b.now).fits(r, p.r.Kind, p.r.Permits) {
		// A writer needs every reader to be gone, everybody else the first that goes.
		var by *hold
		for i := range r.Holds {
			if h := &r.Holds[i]; by == nil || (h.Until < by.Until) != (p.r.Kind == driver.Write) {
				by = h
			}
		}
		held.By = by.shown(b.moment, p.r.Name)
		held.Remaining = held.By.Remaining
	}
	at := r.inLine(p.r.ID)
	if at < 0 {
		at = len(r.Line)
		if p.r.Wait {
			if err := b.tx.beat(); err != nil {
				return err
			}
			r.Line = append(r.Line, waiter{ID: p.r.ID, Process: b.d.process, Kind: p.r.Kind, Permits: max(p.r.Permits, 1), Turn: p.turn.Microseconds()})
			r.changed = true
			if len(r.Holds) == 1 && r.Holds[0].Process != "" { // or its release would guess wrong
				r.calls = append(r.calls, call{process: r.Holds[0].Process, at: b.now})
			}
		}
	}
	r.settle(b.now)
	held.Ahead = at
	if held.Remaining == 0 { // the name is kept for others
		held.Remaining = b.left(r.turnsEnd(at))
	}
	if p.r.Wait && p.turn < time.Second {
		held.Again = lookAgain
	}
	return held
}

// lookAgain is for a waiter that hears nothing, which should not happen: the driver itself looks every second, for all of
// its waiters at once.
const lookAgain = time.Minute

func (b *batch) renew(r *record, want driver.Hold) bool {
	h := r.hold(want)
	if h == nil || h.Until <= b.now || h.kept() {
		return false
	}
	h.Until, r.changed = max(h.Until, b.after(wholeMillis(min(want.TTL, longestTTL)))), true
	h.Process = b.d.ears()
	return true
}

// release ends a hold, if there is one, and calls whoever may get in.
func (b *batch) release(r *record, want driver.Hold, end driver.End) bool {
	h := r.hold(want)
	if h == nil {
		return false
	}
	lived := h.Until > b.now
	r.light = !r.changed && lived && end.Keep <= 0 && b.left(h.Until) <= lightest
	if lived && r.last == h.Top && !h.kept() { // nothing was given out or raised since
		r.last = min(r.last, max(end.Last, h.Token))
	} // Of a hold that had run out, nobody knows which numbers were used.
	if lived && end.Keep > 0 {
		b.keep(h, end)
		r.changed = true
	} else {
		r.drop(h.ID)
	}
	r.purge(b.now)
	r.lapse(b.now)
	r.settle(b.now)
	return lived
}

// lightest is for how long a name may stay taken in vain after a crash of the database. Whoever takes it in the meantime has his commit
// flushed, and with it the release before.
const lightest = time.Minute

// survivesPowerLoss is the shortest minimum hold that is worth a flush: booting takes longer than that.
const survivesPowerLoss = 5 * time.Second

func (b *batch) keep(h *hold, end driver.End) {
	keep := wholeMillis(min(end.Keep, longestTTL))
	h.ID = keptID + strings.TrimPrefix(h.ID, keptID)
	h.Until, h.Kept = b.after(keep), b.wall+keep.Microseconds()
	if h.Kind == driver.Once {
		h.Value = end.Value
	}
	if keep >= survivesPowerLoss {
		b.durable = true
	}
}

// raise makes token the largest number given out, if want is held.
func (b *batch) raise(r *record, want driver.Hold, token int64) bool {
	h := r.hold(want)
	if h == nil || h.Until <= b.now || h.kept() {
		return false
	}
	if token > r.last {
		r.last, r.changed = token, true
	}
	return true
}

// leave undoes all that p may have in the database.
func (b *batch) leave(r *record, p *place) {
	if i := r.inLine(p.r.ID); i >= 0 {
		r.quit(i)
	}
	if r.hold(driver.Hold{ID: p.r.ID}) != nil {
		b.release(r, driver.Hold{ID: p.r.ID}, driver.End{})
		return
	}
	r.purge(b.now)
	r.settle(b.now)
	if p.unsure { // a late request finds another version of the row, and fails
		r.changed = true
	}
}
