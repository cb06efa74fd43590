package torture_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
)

// ledger keeps the books of both sides: what callers were told, and what was asked of the store. Whatever contradicts a
// promise is noted in bad.
type ledger struct {
	god   *memlock.Driver // sees the store as it is
	start time.Time
	store sync.Mutex // over a change of the store and its entry in the books

	mu       sync.Mutex
	ids      map[string]bool       // holds that were ever asked for
	undone   map[string]time.Time  // a Release or a Leave was sent for them; when
	byID     map[string]*hold      // what the store granted
	leases   []*lease              // that were not unlocked, or whose Unlock has not returned
	over     []*lease              // the others
	asks     map[*ask]bool         // calls of Lock and TryLock under way
	inLine   map[*place]bool       // places that the client has in a line of the store
	owed     map[*place]bool       // places whose Try had no answer: they must be left
	tops     map[string]*top       // by name
	grants   map[string]int        // by name: how many there were
	keptTill map[string]time.Time  // by name: MinHold
	free     map[string]*freeSince // by name
	bad      []string
	trace    []string
	n        int
}

// top are the largest tokens seen of a name.
type top struct{ any, alone int64 }

// hold is what the store granted.
type hold struct {
	driver.Hold
	span     int
	at       time.Time
	w        *wire
	robbed   time.Time // Expire or Steal; zero: no
	detached bool
	attached bool
}

// lease is one lease that a caller has.
type lease struct {
	n        int
	a        *ask
	l        *pawl.Lease
	hold     *hold
	parent   *lease
	token    int64
	at       time.Time
	ctx      context.Context // of it
	ending   bool            // Unlock or Detach was called
	unlocks  int             // how often
	unlocked bool            // by one of them, or detached
	lost     time.Time       // seen lost
}

// ask is one call of Lock or TryLock.
type ask struct {
	n      int
	p      *proc
	pol    *policy
	kind   driver.Kind
	name   string
	weight int
	try    bool
	in     *lease // whose context it carries
	multi  bool   // one of several taken together
	ctx    context.Context
	cancel context.CancelFunc

	floor top // before it was called
	done  bool
}

func (a *ask) String() string {
	s := fmt.Sprintf("#%d %s %s %q", a.n, a.p.name, a.kind, a.name)
	if a.weight > 1 {
		s += fmt.Sprintf(" weight %d", a.weight)
	}
	if a.try {
		s += " try"
	}
	if a.multi {
		s += " with others"
	}
	if a.in != nil {
		s += fmt.Sprintf(" in %d", a.in.n)
	}
	return s + " " + a.pol.name
}

type freeSince struct {
	at     time.Time
	grants int
}

func newLedger(store *memlock.Driver) *ledger {
	return &ledger{god: store.Share(), start: time.Now(), ids: map[string]bool{}, undone: map[string]time.Time{},
		byID: map[string]*hold{}, asks: map[*ask]bool{}, inLine: map[*place]bool{}, owed: map[*place]bool{},
		tops: map[string]*top{}, grants: map[string]int{}, keptTill: map[string]time.Time{}, free: map[string]*freeSince{}}
}

func (l *ledger) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log(format, args...)
}

func (l *ledger) log(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if i := strings.IndexByte(s, '-'); i > 0 { // the uuids of holds say nothing
		s = uuid.ReplaceAllStringFunc(s, func(id string) string { return id[:4] })
	}
	l.trace = append(l.trace, fmt.Sprintf("%12v  %s", time.Since(l.start), s))
}

func (l *ledger) badf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complain(format, args...)
}

func (l *ledger) complain(format string, args ...any) {
	l.log("WRONG: "+format, args...)
	l.bad = append(l.bad, l.trace[len(l.trace)-1])
}

// report is what went wrong and what led to it.
func (l *ledger) report(lines int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.bad) == 0 {
		return ""
	}
	return strings.Join(l.bad, "\n") + "\nhistory:\n" + strings.Join(l.trace[max(0, len(l.trace)-lines):], "\n")
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// alone reports whether a kind excludes all others.
func alone(k driver.Kind) bool { return !k.Shared() }

// The side of the store.

func (l *ledger) entered(w *wire, r driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids[r.ID] {
		l.complain("hold id %s is asked for twice", r.ID)
	}
	l.ids[r.ID] = true
}

func (l *ledger) granted(w *wire, r driver.Request, g driver.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &hold{Hold: r.Hold, w: w, span: g.Span, at: time.Now()}
	h.Token = g.Token
	l.byID[r.ID] = h
	l.grants[r.Name]++
	if till := l.keptTill[r.Name]; time.Now().Before(till) {
		l.complain("%s is granted %v before MinHold is over", r.ID, time.Until(till))
	}
	l.log("%s store grants %s %q token %d span %d", w.name, r.ID, r.Name, g.Token, g.Span)
}

func (l *ledger) tried(p *place, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case state == "in line" && p.r.Wait:
		l.inLine[p] = true
	case state != "":
		delete(l.inLine, p)
	}
	if state == "unknown" {
		l.owed[p] = true
	}
}

func (l *ledger) leaving(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inLine, p)
	delete(l.owed, p)
	l.end(p.r.ID)
}

func (l *ledger) end(id string) {
	if l.undone[id].IsZero() {
		l.undone[id] = time.Now()
	}
}

func (l *ledger) releasing(w *wire, h driver.Hold, steal bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if steal {
		return
	}
	l.end(h.ID)
	for _, x := range l.leases {
		if x.hold.ID == h.ID && !x.ending {
			l.complain("%s releases %s under lease %d", w.name, h.ID, x.n)
		}
	}
}

func (l *ledger) renewing(w *wire, hs []driver.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, h := range hs {
		// What happens within one instant of fake time may happen in any order.
		if at := l.undone[h.ID]; !at.IsZero() && at.Before(now) {
			l.complain("%s renews %s after it was given back", w.name, h.ID)
		}
		x := l.byID[h.ID]
		if x == nil {
			l.complain("%s renews %s, which it never got", w.name, h.ID)
			continue
		}
		if h.TTL == fixed.TTL && !x.attached {
			l.complain("%s renews %s in spite of NoKeepalive", w.name, h.ID)
		}
		for _, y := range l.leases {
			if y.hold == x && !y.lost.IsZero() && y.lost.Before(now) {
				l.complain("%s renews %s although lease %d was lost", w.name, h.ID, y.n)
			}
		}
	}
}

// rob notes that the store's holds of a name, or one of them, end without their holders, and lets them end.
func (l *ledger) rob(name, id string, how func()) {
	l.store.Lock()
	defer l.store.Unlock()
	r, err := l.god.Inspect(context.Background(), name)
	if err != nil {
		l.badf("inspect: %v", err)
	}
	l.mu.Lock()
	delete(l.keptTill, name)
	for _, h := range r.Holds {
		if x := l.byID[h.ID]; x != nil && (id == "" || id == h.ID) && x.robbed.IsZero() {
			x.robbed = time.Now()
			l.log("robbed of %s", h.ID)
		}
	}
	l.mu.Unlock()
	how()
}
