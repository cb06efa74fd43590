package sqllock

import (
	"maps"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// known is what a driver remembers of rows and of the server's clock, so that a step on one name needs no reading: the driver
// guesses the row and the time, and the server writes only if the row has that version and its clock is within the guessed
// window. Nothing rests on the guess: if it is wrong, nothing is written, and the step is made on what was really there.
//
// A lock that nobody else wants is one statement this way, and its release another; and a waiter whom a notification has
// brought the row needs just one to take the name.
type known struct {
	mu    sync.Mutex
	rows  map[string]row // by stored name
	at    time.Time      // when the clock was read last; zero: never
	now   int64          // what it showed
	round time.Duration  // the round trip of that reading
}

// row is one version of a row.
type row struct {
	rev, changed int64
	kind         driver.Kind
	limit        int
	last         int64
	contents     contents
	shy          time.Time // no guesses until then
}

const (
	mostKnown = 2000
	clockGood = 10 * time.Second // for as long a reading of the server's clock can be counted on
	drift     = time.Millisecond // that two clocks may differ by after that
	leastSlack,
	mostSlack = 20 * time.Millisecond, 200 * time.Millisecond
	shyFor = 5 * time.Second // after a guess whose failure has cost a round trip
)

// window is what the server's clock must be between for a write to count, in microseconds. The zero window is all time.
type window struct{ from, to int64 }

// window is within which the guess of a sight holds. It is zero for what was read.
func (s *sight) window() window {
	if s.slack == 0 {
		return window{}
	}
	return window{s.now, s.now + s.slack}
}

// guess says what may be there of a single name; nil: not known well enough.
func (k *known) guess(names []string) *sight {
	if len(names) != 1 {
		return nil
	}
	k.mu.Lock()
	row, ok := k.rows[names[0]]
	at, round := k.at, k.round
	now := k.estimate()
	k.mu.Unlock()
	slack := max(leastSlack, 2*round)
	if !ok || time.Since(at) > clockGood || slack > mostSlack || time.Now().Before(row.shy) {
		return nil
	}
	r := &record{
		name: names[0], found: true, rev: row.rev, kind: row.kind, limit: row.limit, last: row.last, written: row.changed, contents: row.contents.clone(),
	}
	out := newSight(1)
	out.moment = moment{now: now, wall: now, slack: slack.Microseconds()}
	out.add(r)
	if r.changesIn(out.window()) {
		return nil
	}
	return out
}

// estimate is what the server's clock shows now, or a little less. The caller has mu.
func (k *known) estimate() int64 { return k.now + (time.Since(k.at) - drift).Microseconds() }

// changesIn reports whether a hold or a turn begins or ends within a window, so that it matters which instant it is.
func (r *record) changesIn(w window) bool {
	in := func(t int64) bool { return t > w.from && t <= w.to+1 }
	for _, h := range r.Holds {
		if in(h.Until) {
			return true
		}
	}
	for _, l := range r.Line {
		if in(l.At) || in(l.At+l.Turn) {
			return true
		}
	}
	return false
}

// saw remembers what was read in a request that was sent at an instant.
func (k *known) saw(s *sight, sent time.Time) {
	if s == nil || s.now == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.now = time.Now(), s.now
	k.round = k.at.Sub(sent)
	if len(s.order) == 1 {
		r := s.order[0]
		k.put(r.name, row{rev: r.rev, changed: r.written, kind: r.kind, limit: r.limit, last: r.last, contents: r.contents.clone()})
	}
}

// wrote remembers a row that was written.
func (k *known) wrote(w write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(string(w.name), row{rev: w.rev, changed: w.changed, kind: w.kind, limit: w.limit, last: w.last, contents: w.contents})
}

// heard remembers a row that another process has just written and told of, unless a later one is known.
func (k *known) heard(name string, r row) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows[name].changed <= r.changed {
		k.put(name, r)
		k.rows[name] = r // guesses are worth it where others tell
	}
	if time.Since(k.at) > clockGood || r.changed > k.estimate() {
		k.at, k.now = time.Now(), r.changed
	}
}

func (k *known) put(name string, r row) {
	if len(k.rows) >= mostKnown {
		clear(k.rows)
	}
	if k.rows == nil {
		k.rows = make(map[string]row)
	}
	r.shy = k.rows[name].shy
	k.rows[name] = r
}

// missed notes that a guess has cost a round trip, since others use the name as well.
func (k *known) missed(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.rows[name]; ok {
		r.shy = time.Now().Add(shyFor)
		k.rows[name] = r
	}
}

// forget is for rows of which nobody knows what became of them.
func (k *known) forget(ws []write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.rows, func(name string, _ row) bool {
		for _, w := range ws {
			if name == string(w.name) {
				return true
			}
		}
		return false
	})
}
