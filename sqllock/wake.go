package sqllock

import (
	"database/sql"
	"maps"
	"path/filepath"
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
	wg   sync.WaitGroup // the goroutine

	mu      sync.Mutex
	places  map[string]*place // by the ID of the hold
	watches map[*watch]struct{}
	running bool
	closed  bool
}

const (
	lookAllEvery = time.Second           // jittered
	lookAllGap   = 20 * time.Millisecond // between two looks at all places, at least
	seeGap       = 10 * time.Millisecond // from a write to the look of observers: a transaction has been committed by then
	wakerLingers = 2 * time.Second       // with nobody to report to: waiters come and go
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
		w.wg.Go(w.work)
	}
	w.look()
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
	var bell bell
	var writes *watchfile // for observers
	defer func() {
		bell.close()
		writes.close()
	}()
	now := time.Now()
	never := now.Add(farAway)
	nextAll, nextCall, nextSee, nextBeat := now, never, never, now.Add(beatEvery)
	var idle time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now = time.Now()
		places, watches, stop := w.wanted(now, &idle)
		if stop {
			return
		}
		// Whatever happens after the bell is there is heard, and what happened before is seen by the next look.
		if places && bell.open(w.d.setup.bell(w.d.process), w.d.setup.mode()) {
			nextAll = now
		}
		if watches && writes == nil {
			file := w.d.setup.path()
			writes = watchFiles(filepath.Dir(file), file, file+"-wal")
		}
		next := earliest(nextAll, nextCall, nextSee, nextBeat)
		if !places && !watches {
			next = now.Add(wakerLingers)
		}
		timer.Reset(next.Sub(now))
		rung := false
		select {
		case <-bell.news():
			rung = true
		case <-w.kick:
			rung = true
		case <-writes.heard():
			nextSee = earliest(nextSee, time.Now().Add(seeGap))
		case <-timer.C:
		case <-w.d.ctx.Done():
			w.end()
			return
		}
		if now = time.Now(); !places && !watches {
			continue
		}
		v := view{nextCall: farAway, nextEnd: farAway}
		switch {
		case !now.Before(nextAll):
			w.lookAll(&v)
			w.lookAtWatches(&v)
			nextAll, nextSee = now.Add(max(min(jitter(lookAllEvery), v.nextEnd), lookAllGap)), never
			nextCall = now.Add(v.nextCall)
		case rung, !now.Before(nextCall):
			w.lookCalls(&v)
			nextCall = now.Add(v.nextCall)
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

const farAway = 1000 * time.Hour

// wanted says whom to report to, and ends the goroutine if there has been nobody for a while.
func (w *waker) wanted(now time.Time, idle *time.Time) (places, watches, stop bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	places, watches = len(w.places) > 0, len(w.watches) > 0
	switch {
	case places || watches:
		*idle = time.Time{}
	case idle.IsZero():
		*idle = now
	case now.Sub(*idle) >= wakerLingers:
		w.running = false
		return false, false, true
	}
	return places, watches, false
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
}

func (w *waker) place(id string) *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[id]
}

// called reports a call that is due, or remembers when it will be.
func (v *view) called(p *place, m moment, at sql.NullInt64) {
	switch {
	case !at.Valid || p == nil:
	case at.Int64 > m.now:
		v.nextCall = min(v.nextCall, m.left(at.Int64))
	default:
		p.call(at.Int64)
	}
}

// lookCalls reads the calls of this driver's places.
func (w *waker) lookCalls(v *view) {
	m, err := w.d.clock()
	if err != nil {
		return
	}
	rows, err := w.d.setup.statement("see_calls").QueryContext(w.d.ctx, w.d.process)
	scanAll(rows, err, func(scan func(...any) error) error {
		var id string
		var at sql.NullInt64
		if err := scan(&id, &at); err != nil {
			return err
		}
		v.called(w.place(id), m, at)
		return nil
	}) // after an error, the next look sees the same
}

// lookAll reads all places of this driver, with the ends of the holds that they wait for.
func (w *waker) lookAll(v *view) {
	missing := w.snapshot()
	if len(missing) == 0 {
		return
	}
	m, err := w.d.clock()
	if err != nil {
		return
	}
	first := make(map[string]bool) // by name
	rows, err := w.d.setup.statement("see_places").QueryContext(w.d.ctx, w.d.process)
	err = scanAll(rows, err, func(scan func(...any) error) error {
		var id string
		var at sql.NullInt64
		var until int64
		if err := scan(&id, &at, &until); err != nil {
			return err
		}
		p := w.place(id)
		delete(missing, id)
		if p == nil {
			return nil
		}
		v.called(p, m, at)
		switch {
		case first[p.r.Name]: // the others of a name wait for it
		case until > m.now:
			v.nextEnd = min(v.nextEnd, m.left(until))
		default: // free, and nobody came: the holder died, or the one who was called
			p.tell()
		}
		first[p.r.Name] = true
		return nil
	})
	if err != nil {
		return
	}
	for _, p := range missing { // it let its turn pass, or somebody emptied the table
		p.tell()
	}
}

func (w *waker) snapshot() map[string]*place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.places)
}

// beat says that this driver is alive. Nobody waits for the answer.
func (w *waker) beat() {
	w.d.queue.post(&op{done: make(chan struct{}), run: (*batch).beat})
}
