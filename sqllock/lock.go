package sqllock

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// lockRow is a name's row: the hold, or what is left of it.
type lockRow struct {
	found bool
	kind  driver.Kind
	id    string
	token int64 // the first token
	last  int64 // the last one reserved
	least int64 // last is not written back below this
	until int64
	since int64
	kept  int64
	who   driver.Holder
}

// into is where a row is scanned to, in the order of the statements.
func (r *lockRow) into() []any {
	return []any{&r.kind, &r.id, &r.token, &r.last, &r.least, &r.until, &r.since, &r.kept,
		&r.who.Label, &r.who.Host, &r.who.PID, &r.who.Note}
}

func (r lockRow) span() int { return int(max(r.last-r.token+1, 1)) }

// held is what the row says of the hold, seen from outside.
func (r lockRow) held(m moment, name string) driver.HeldBy {
	return driver.HeldBy{
		Hold:      driver.Hold{Kind: r.kind, Name: name, ID: r.id, Token: r.token, Permits: 1},
		Who:       r.who,
		Since:     time.UnixMicro(r.since),
		Remaining: m.left(r.until),
	}
}

func (b *batch) lock(name []byte) (r lockRow, err error) {
	r.found, err = b.row("lock", []any{name}, r.into()...)
	return r, err
}

func (b *batch) put(name []byte, r lockRow) error {
	_, err := b.exec("put_lock", name, r.kind, r.id, r.token, r.last, r.least, r.until, r.since, r.kept,
		r.who.Label, r.who.Host, r.who.PID, r.who.Note)
	return err
}

func (b *batch) live(r lockRow) bool { return r.found && r.until > b.now }

// is reports whether the row is the hold h.
func (r lockRow) is(h driver.Hold) bool {
	return r.found && r.id == h.ID && (h.Token == 0 || h.Token == r.token)
}

// try gives the name to p, or says why not.
func (b *batch) try(p *place, span int) (lockRow, error) {
	row, err := b.lock(p.name)
	if err != nil {
		return row, err
	}
	end := b.after(wholeMillis(p.r.TTL))
	switch {
	case b.live(row) && row.id == p.r.ID: // asked twice: still one hold
		row.until = max(row.until, end)
		return row, b.put(p.name, row)
	case b.live(row) && row.kind.Family() != p.r.Kind.Family():
		return row, &driver.MismatchError{Have: row.kind, Want: p.r.Kind}
	case b.live(row):
		held := &driver.HeldError{By: row.held(b.moment, p.r.Name), Remaining: b.left(row.until)}
		return row, b.refuse(p, held)
	}
	next, nobody, err := b.next(p)
	if err != nil {
		return row, err
	}
	if next != nil {
		return row, b.refuse(p, &driver.HeldError{Remaining: b.left(next.callAt.Int64 + next.turn)})
	}
	token := max(row.last+1, b.state.floor+1, b.wall)
	if token > largestToken {
		return row, fmt.Errorf("sqllock: the tokens of %q are used up: somebody raised them: %w", p.r.Name, driver.ErrInvalid)
	}
	row = lockRow{
		found: true, kind: p.r.Kind, id: p.r.ID,
		token: token, last: token + int64(max(span, 1)) - 1, least: token,
		until: end, since: b.wall, who: readable(p.r.Who),
	}
	b.reserve(row.last)
	if err := b.put(p.name, row); err != nil || nobody {
		return row, err
	}
	return row, b.granted(p)
}

// Tokens are microseconds since 1970, or a little more. These bounds keep sums of them far from the end of an int64.
const (
	largestToken = 1 << 61
	widestSpan   = 1 << 40
)

// refuse puts p in line if it will wait, and completes the answer.
func (b *batch) refuse(p *place, held *driver.HeldError) error {
	ahead, err := b.join(p)
	if err != nil {
		return err
	}
	held.Ahead = ahead
	if p.r.Wait && p.r.Kind == driver.Exclusive {
		held.Again = lookAgain
	}
	return held
}

// lookAgain is for a waiter that hears nothing, which should not happen: the driver itself looks every second, for all of
// its waiters at once.
const lookAgain = time.Minute

func (b *batch) renew(h driver.Hold) (bool, error) {
	n, err := b.exec("renew", b.d.stored(h.Name), h.ID, h.Token, b.now, b.after(wholeMillis(min(h.TTL, longestTTL))))
	return n == 1, err
}

// release ends the hold h, if it is one, and calls the first in line.
func (b *batch) release(h driver.Hold, end driver.End) (bool, error) {
	name := b.d.stored(h.Name)
	row, err := b.lock(name)
	if err != nil || !row.is(h) {
		return false, err
	}
	lived := b.live(row)
	if lived {
		// Of a hold that had run out, nobody knows which numbers were used.
		row.last = min(row.last, max(end.Last, row.least))
	}
	if lived && end.Keep > 0 {
		return true, b.keep(name, row, end.Keep)
	}
	b.forget(row.last)
	if _, err := b.exec("delete_lock", name); err != nil {
		return false, err
	}
	return lived, b.call(name, b.now)
}

// keptID marks a name that stays taken after its hold has ended. No hold has such an ID.
const keptID = "kept/"

// survivesPowerLoss is the shortest minimum hold that is worth a flush: booting takes longer than that.
const survivesPowerLoss = 5 * time.Second

func (b *batch) keep(name []byte, row lockRow, keep time.Duration) error {
	keep = wholeMillis(min(keep, longestTTL))
	row.id = keptID + strings.TrimPrefix(row.id, keptID)
	row.until, row.kept = b.after(keep), b.wall+keep.Microseconds()
	if keep >= survivesPowerLoss {
		b.durable = true
	}
	if err := b.put(name, row); err != nil {
		return err
	}
	return b.call(name, row.until)
}

// readable makes what describes a holder fit for a text column, and short.
func readable(who driver.Holder) driver.Holder {
	for _, s := range []*string{&who.Label, &who.Host, &who.Note} {
		const most = 1024
		*s = strings.ReplaceAll(strings.ToValidUTF8((*s)[:min(len(*s), most)], "\uFFFD"), "\x00", "\uFFFD")
	}
	return who
}
