// Package driver is the seam between pawl and a store.
//
// A [Driver] does one atomic step on one store, reports when a name may have changed, and translates the store's errors
// to the ones listed here. Everything else (validation, waiting, the local queue and hand-off, re-entry, renewal, the
// trust deadline, loss, events) lives above the seam, once. Package drivertest holds every rule below as a named test.
//
// # The contract
//
//   - Named before asked for. Hold.ID is fresh for every acquisition and chosen by the client. A driver derives every
//     store-side name from the Hold alone, so a request that is sent twice is one hold, and Release of a hold whose
//     acquisition had no answer undoes exactly that hold or nothing. IDs are never reused.
//   - Injective names. Two different (Name) values never meet in the store, whatever bytes they have: case, "/", braces,
//     NUL, length.
//   - One family a name. A name that is in use as another [Kind.Family], or as a semaphore with another limit, is
//     [ErrMismatch], decided in the store's atomic step where the layout allows.
//   - Concurrency. Methods of a Driver may be called concurrently. Calls on one Place never overlap.
//   - Retries. Only the client retries, except for redirections and conflicts that the store itself calls retryable
//     (NOSCRIPT, MOVED, a SQL deadlock).
//   - Bounds. ctx bounds the call and never a hold. Even when ctx has no end, a request is given up after Hold.TTL: an
//     answer that takes a TTL is worth nothing. A call returns promptly when ctx ends, whatever the store does.
//   - Unknown outcomes. An error of Try that matches none of [ErrHeld], [ErrDone], [ErrMismatch], [ErrInvalid],
//     [ErrNotDone] and [errors.ErrUnsupported] counts as UNKNOWN: the request may have arrived, or may still arrive. The
//     client then calls Leave until it succeeds or the TTL is over. A driver that says nothing is therefore safe.
//   - Tokens. A Grant's token is larger than that of every earlier conflicting hold of the name, across expiry, release,
//     clean-up and steal. A grant reserves Span consecutive tokens; Release tells the last one used. A store that cannot
//     order its holds grants token 0, always.
//   - Trust. The client trusts a hold from Grant.Sent for Grant.TTL, less a margin. A driver reports both such that this
//     ends before the store can give the name away.
//   - Secrets. No error text carries a password or a full URL.
package driver

import (
	"context"
	"iter"
	"time"
)

// Kind is what a name is used as.
type Kind uint8

const (
	Exclusive Kind = iota + 1 // one holder; the store may let a newcomer pass a waiter
	Fair                      // one holder, first come first served by the first Try of each waiting place, across processes
	Read                      // shared with other Reads; a waiting Write stops new Reads where the layout allows
	Write                     // excludes all
	Permits                   // at most Request.Limit permits, taken Hold.Permits at a time, all or none
	Leader                    // as Fair, and Request.Value is published with the hold
	Once                      // as Exclusive, and a name whose hold ended with End.Keep answers ErrDone until that is over
)

// Family is the kind that stands for all kinds which may share a name: Fair counts as Exclusive, Write as Read.
func (k Kind) Family() Kind {
	switch k {
	case Fair:
		return Exclusive
	case Write:
		return Read
	}
	return k
}

// Shared reports whether several holds of the kind may live at once.
func (k Kind) Shared() bool { return k == Read || k == Permits }

func (k Kind) String() string {
	names := [...]string{"none", "exclusive", "fair", "read", "write", "permits", "leader", "once"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Hold names one acquisition exactly. It is plain data: it can be stored, sent, and used from another process.
type Hold struct {
	Kind    Kind
	Name    string        // 1 to 4096 bytes, any bytes
	ID      string        // "<client uuid>:<decimal>", ASCII, unique for each acquisition
	Token   int64         // the Grant's; 0 while it is not known: then ID alone decides
	Permits int           // Permits: at least 1; other kinds: 1
	TTL     time.Duration // whole milliseconds
}

// Request asks for a Hold.
type Request struct {
	Hold
	Limit int    // Permits only: the capacity; a different one in the store is ErrMismatch
	Wait  bool   // the caller will wait: a Try that finds the name taken leaves the place in line
	Value []byte // Leader only: published with the hold
	Who   Holder // for people; a driver that shares another client's layout may drop parts of it

	// Notify, never nil, is told what the store reports by itself. It does not block, may be called from any goroutine
	// and before Try has returned, and is not called after Leave or Release has returned.
	Notify func(Signal)
}

// Signal is news about a place or a hold.
type Signal uint8

const (
	// Changed: the place may get in now. A hint: it may come late, twice, for nothing or, rarely, never.
	Changed Signal = iota + 1
	// Lost: the hold is gone (session ended, key deleted, stolen).
	Lost
	// Wanted: somebody else wants the name that this hold has. Optional, and only Exclusive holds of several tokens need to be
	// told: others do not linger.
	Wanted
)

// Holder describes the process behind a hold, for people. It decides nothing.
type Holder struct {
	Label, Host, Note string
	PID               int
}

// Grant is the answer to a request that got its hold.
type Grant struct {
	// Sent is an instant before the request (or the session ping) was sent whose answer started the TTL.
	Sent  Instant
	TTL   time.Duration // what the store really granted
	Token int64         // the first of the reserved tokens, or 0: this store has none
	Span  int           // tokens Token … Token+Span-1 belong to this hold; at least 1, at most what was asked for
}

// End says how a hold ends.
type End struct {
	Last  int64         // the last token used; 0: the Hold's own; beyond those reserved: all. Later grants may begin after it
	Keep  time.Duration // the name stays taken this much longer with nobody to renew it (minimum hold; Once: remembered)
	Value []byte        // Once: the result, remembered for Keep
}

// Driver is one store.
type Driver interface {
	// Enter makes a place for r. It may be lazy and do no I/O, so that an uncontended acquire is one round trip. A kind
	// that the store cannot carry is errors.ErrUnsupported, a name that it cannot carry is ErrInvalid.
	Enter(ctx context.Context, r Request) (Place, error)

	// Renew extends holds by their TTL, counted from now by the store, and answers one error each. nil means that the
	// store confirmed the hold after Renew was called. Only ErrNotHeld is final; any other error means "try again".
	// Holds of any kinds may be mixed; the slice stays the caller's. A renewal never shortens what is left, never
	// changes a token, and never revives a hold that ended.
	Renew(ctx context.Context, hs []Hold) []error

	// Release ends exactly h and wakes who may get in. ErrNotHeld means that there is no such hold (any more); repeating
	// a Release is harmless. With a Token of 0 the ID alone decides, and a request for that ID which arrives later may be
	// refused.
	Release(ctx context.Context, h Hold, end End) error

	// Close stops what New or Open started, and only that. It releases no hold: what nobody released runs out. Calls
	// that are under way end with an error. Close may be called twice.
	Close() error
}

// Place is a contender's place at one name: nothing yet, an entry in a queue, a node. It ends with a grant or with Leave.
type Place interface {
	// Try makes one attempt to get the hold, reserving span (at least 1) tokens, and never waits for another holder.
	//
	// When it answers a *HeldError to a request with Wait, the place is in line, counted from its first Try, and every
	// later change that may let it in is reported as Changed: a driver subscribes before it reads. A place without Wait
	// never queues, subscribes or disturbs others, and has nothing to leave once its Try was refused: the client then just
	// forgets it. After an unknown outcome the client calls Leave, never Try.
	Try(ctx context.Context, span int) (Grant, error)

	// Leave gives the place up, and whatever a late answer may have won with it: once it has returned nil, nothing of the
	// request is in the store and nothing of it can arrive there any more. It may be repeated, and follows a Try that
	// ended with ctx while its request was under way. It is not called after a grant: that is Release.
	Leave(ctx context.Context) error
}

// Inspector is optional: who holds, who waits. Stealing is Inspect, then Release of the Hold that it showed.
type Inspector interface {
	// Inspect says what the store knows of a name. A free name is a Record without Holds, and no error.
	Inspect(ctx context.Context, name string) (Record, error)
	// List yields the names in use that begin with prefix, in no order; a free name may be yielded, without Holds.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// Watcher is optional: "it may have changed". The subscription is live when Watch returns; ticks may coalesce. Without
// it, observers poll Inspect.
type Watcher interface {
	Watch(ctx context.Context, name string) (<-chan struct{}, error) // closed when ctx ends or the watch is lost
}

// Attacher is optional: the store's holds live by TTL alone, so another process can take one over.
type Attacher interface {
	// Attach confirms r.Hold, which some client got before, renews it, and reports Lost of it to r.Notify from now on.
	// ErrNotHeld if it is over.
	Attach(ctx context.Context, r Request) (Grant, error)
}

// Raiser is optional: a quorum over several stores writes back the largest token that its members proposed.
type Raiser interface {
	// Raise makes token the largest one that the store has given out for h.Name, if h still holds it (else ErrNotHeld):
	// every later grant is larger. A token that is not larger than the present one changes nothing.
	Raise(ctx context.Context, h Hold, token int64) error
}

// Joiner is optional: several names in one atomic step.
type Joiner interface {
	// TryAll makes one attempt to get the holds of all places, with one token each, or none of them, and answers their grants
	// in the same order. The places are this driver's, of kind Exclusive and without Wait, for different names, and no Try
	// was made of them before. A *HeldError says with By.Name which name was in the way. errors.ErrUnsupported says that
	// these names cannot be had in one step: nothing was asked, and each place may be tried alone. After an unknown outcome
	// the client calls Leave of each place.
	TryAll(ctx context.Context, ps []Place) ([]Grant, error)
}

// Named is optional: which store this is.
type Named interface {
	// Store names the store and the namespace in it, the same in every process that uses them and without secrets, such as
	// "redis 10.0.0.4:6379/0 app:". It orders the locks of several stores; it does no I/O.
	Store() string
}

// Record is what a store knows about a name.
type Record struct {
	Name    string
	Holds   []HeldBy
	Limit   int // Permits
	Waiters int // -1: not known
}

// HeldBy is one hold seen from outside.
type HeldBy struct {
	Hold                    // what Release needs to end it; a Token of 0 is not known
	Who       Holder        // zero: not known
	Since     time.Time     // zero: not known
	Remaining time.Duration // by the store's clock; 0: not known; negative: it never expires (a foreign key without TTL)
	Value     []byte        // Leader
}
