package sqllock

import (
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// waker tells the waiting places of this driver when to try again. One goroutine does it for all of them; it lives while
// somebody waits and a little longer.
//
// Whoever calls a place rings the bell of its driver, a small file beside the database, after the commit. So a call costs
// one look at the calls of one driver, however many wait here or elsewhere, and no other write to the database costs
// anything. (Watching the -wal file instead was tried: every waiting process looked at every commit, and more than once,
// since the system reports the first bytes of a transaction, which can be read only later. 20 processes in line for one name
// took 20 times as long.) Once a second one look at all places finds what no bell tells: holders that died, and rings that
// went astray.
//
// Observers, who wait for no call, have the database's own files watched.
type waker struct {
	d    *Driver
	kick chan struct{}
	wg   sync.WaitGroup    // the goroutine
	saw  map[string]uint64 // the goroutine's: what was seen of a name last

	mu      sync.Mutex
	places  map[string]*place // by the ID of the hold
	watches map[*watch]struct{}
	hears   time.Time // until then the store listens even if nobody waits here
	running bool
	closed  bool
}

const (
	lookAllEvery = time.Second            // jittered
	lookAllGap   = 20 * time.Millisecond  // between two looks at all places, at least
	seeGap       = 10 * time.Millisecond  // from a write to the look of observers: a transaction has been committed by then
	seeEvery     = 100 * time.Millisecond // of observers, where nobody tells of changes
	wakerLingers = 2 * time.Second        // with nobody to report to: waiters come and go
	hearsFor     = 10 * time.Second       // after others came to wait for what is held here
)

// add begins to report to a place that is in line. Being called is a fact in the database and not an event, so nothing that
// happened between the refusal and this is missed.
func (w *waker) add(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.places == nil {
		w.places = make(map[string]*place)
	}
	w.places[p.r.ID] = p
	w.start()
}

// remove ends all reports to a place: none is under way when it returns.
func (w *waker) remove(p *place) {
	w.mu.Lock()
	if w.places[p.r.ID] == p {
		delete(w.places, p.r.ID)
	}
	w.mu.Unlock()
	p.silence()
}

// start begins to look, or to look anew. The caller has mu.
func (w *waker) start() {
	if !w.running {
		w.running = true
		w.saw = make(map[string]uint64)
		w.wg.Go(w.work)
	}
	w.look()
}

// hear has the store listen for a while: others wait for what is held here.
func (w *waker) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.hears = time.Now().Add(hearsFor); !w.running {
		w.start()
	}
}

// look has the goroutine look, if there is one.
func (w *waker) look() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *waker) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}

// work is the goroutine.
func (w *waker) work() {
	_, files := w.d.store.(*fileStore)
	var writes *watchfile // for observers of a file
	unwait := func() {    // before rest: the next goroutine may begin at once
		w.d.store.unwait()
		writes.close()
		writes = nil
	}
	now := time.Now()
	never := now.Add(farAway)
	nextAll, nextCall, nextSee, nextBeat := now, never, never, now.Add(beatEvery)
	var idle time.Time
	var poll poll
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now = time.Now()
		places, watches, hears, stop := w.wanted(now, &idle)
		if stop {
			unwait()
			if w.rest() {
				return
			}
			continue // somebody has come in the meantime
		}
		// Whatever happens after the store listens is heard, and what happened before is seen by the next look.
		news, anew := w.d.store.wait(places || hears)
		if anew {
			nextAll = now
		}
		polls := places && w.d.store.polls()
		next := earliest(nextAll, nextCall, nextBeat)
		switch {
		case !watches:
		case !files:
			nextSee = earliest(nextSee, now.Add(jitter(seeEvery)))
		case writes == nil:
			file := w.d.store.(*fileStore).path()
			writes = watchFiles(filepath.Dir(file), file, file+"-wal")
		}
		if watches {
			next = earliest(next, nextSee)
		}
		if polls {
			next = earliest(next, poll.next(now))
		}
		if !places && !watches {
			next = now.Add(wakerLingers)
		}
		timer.Reset(next.Sub(now))
		rung := false
		select {
		case <-news:
			rung = true
		case <-w.kick:
			rung = true
			poll.hurry(time.Now())
		case <-writes.heard():
			nextSee = earliest(nextSee, time.Now().Add(seeGap))
		case <-timer.C:
		case <-w.d.ctx.Done():
			unwait()
			w.end()
			return
		}
		if now = time.Now(); !places && !watches {
			continue
		}
		v := view{nextCall: farAway, nextEnd: farAway}
		switch whole := !now.Before(nextAll); {
		case whole, rung, !now.Before(nextCall), polls && !now.Before(poll.next(now)):
			w.lookAll(&v, whole)
			poll.looked(now, v.changed)
			nextCall = now.Add(v.nextCall)
			if whole {
				w.lookAtWatches(&v)
				nextSee = never
				nextAll = now.Add(jitter(lookAllEvery))
			}
			nextAll = earliest(nextAll, now.Add(max(v.nextEnd, lookAllGap)))
		case !now.Before(nextSee):
			w.lookAtWatches(&v)
			nextAll, nextSee = earliest(nextAll, now.Add(max(v.nextEnd, lookAllGap))), never
		}
		if places && !now.Before(nextBeat) {
			w.beat()
		}
		if !now.Before(nextBeat) {
			nextBeat = now.Add(beatEvery)
		}
	}
}

// poll says when a driver looks that nobody tells: soon after a change, since names that are wanted much change often, and
// ever less often while nothing happens.
type poll struct{ last, changed time.Time }

const (
	pollLeast = 2 * time.Millisecond
	pollMost  = 100 * time.Millisecond
)

func (p *poll) next(now time.Time) time.Time {
	if p.last.IsZero() {
		return now
	}
	return p.last.Add(min(max(p.last.Sub(p.changed)/8, pollLeast), pollMost))
}

// looked notes a look. The next one is a little earlier or later than that of others who began at the same time.
func (p *poll) looked(now time.Time, changed bool) {
	p.last = now.Add(rand.N(pollLeast))
	if changed || p.changed.IsZero() {
		p.changed = now
	}
}

// hurry begins anew: somebody has come.
func (p *poll) hurry(now time.Time) { p.changed = now }

const farAway = 1000 * time.Hour

// rest ends the goroutine, if there is still nobody.
func (w *waker) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.places) > 0 || len(w.watches) > 0 || time.Now().Before(w.hears)
	return !w.running
}

// wanted says whom to report to, and to stop if there has been nobody for a while.
func (w *waker) wanted(now time.Time, idle *time.Time) (places, watches, hears, stop bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	places, watches, hears = len(w.places) > 0, len(w.watches) > 0, now.Before(w.hears)
	switch {
	case places || watches || hears:
		*idle = time.Time{}
	case idle.IsZero():
		*idle = now
	case now.Sub(*idle) >= wakerLingers:
		return false, false, false, true
	}
	return places, watches, hears, false
}

// end closes the watches when the driver is closed.
func (w *waker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.watches {
		t.close()
	}
	w.watches = nil
}

func earliest(t time.Time, more ...time.Time) time.Time {
	for _, u := range more {
		if u.Before(t) {
			t = u
		}
	}
	return t
}

// view is what a look has found.
type view struct {
	nextCall time.Duration // until a call that is due later
	nextEnd  time.Duration // until a hold that is waited for, or watched, may be over
	changed  bool          // since the last look
}

// lookAll reads all names that this driver waits for, and tells the places that may come. A whole look also finds the
// dead in line.
func (w *waker) lookAll(v *view, whole bool) {
	places := w.snapshot()
	if len(places) == 0 {
		return
	}
	names := make(map[string]bool)
	for _, p := range places {
		names[w.d.stored(p.r.Name)] = true
	}
	seen, err := w.d.see(w.d.ctx, "wait", slices.Collect(maps.Keys(names)), whole)
	if err != nil {
		return // the next look sees the same
	}
	for name := range names {
		r := seen.of(name)
		if sum := r.sum(); w.saw[name] != sum {
			w.saw[name], v.changed = sum, true
		}
		if whole && r.bury(seen.living) {
			w.d.queue.post(&op{name: name, done: make(chan struct{}), run: func(b *batch, r *record) error {
				if r.bury(seen.living) {
					r.settle(b.now)
				}
				return nil
			}})
		}
		r.lapse(seen.now)
		r.settle(seen.now) // as whoever comes next will find it
		for _, h := range r.Holds {
			v.nextEnd = min(v.nextEnd, seen.left(h.Until))
		}
		for _, l := range r.Line {
			p := places[l.ID]
			delete(places, l.ID)
			switch {
			case p == nil || l.At == 0:
			case l.At > seen.now:
				v.nextCall = min(v.nextCall, seen.left(l.At))
			default:
				p.call(l.At)
			}
		}
	}
	for _, p := range places { // it let its turn pass, or somebody emptied the table
		p.tell()
	}
	for name := range w.saw {
		if !names[name] {
			delete(w.saw, name)
		}
	}
}

// sum stands for who holds and who waits.
func (r *record) sum() uint64 {
	var h maphash.Hash
	h.SetSeed(sumSeed)
	for _, x := range r.Holds {
		h.WriteString(x.ID)
	}
	for _, x := range r.Line {
		h.WriteString(x.ID)
	}
	return h.Sum64()
}

var sumSeed = maphash.MakeSeed()

func (w *waker) snapshot() map[string]*place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.places)
}

// beat says that this driver is alive. Nobody waits for the answer.
func (w *waker) beat() {
	w.d.queue.post(&op{done: make(chan struct{}), run: func(b *batch, _ *record) error { return b.tx.beat() }})
}
