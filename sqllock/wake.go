package sqllock

import (
	"database/sql"
	"maps"
	"sync"
	"time"
)

// waker tells the waiting places of this driver when to try again. One goroutine does it for all of them, with one watch
// on the database's file; both live while somebody waits and a little longer.
//
// A write to the file costs one look at the calls of this driver, whatever was written and however many wait. Once a
// second one look at all places of this driver finds what no write tells: holders that died, and calls that went astray.
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
	file := watchFile(w.d.setup.path())
	defer file.stop()
	now := time.Now()
	never := now.Add(farAway)
	nextAll, nextCall, nextBeat := now, never, now.Add(beatEvery)
	looks := pace{next: never}
	var idle time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now = time.Now()
		stop, wanted := w.idle(now, &idle)
		if stop {
			return
		}
		next := earliest(nextAll, nextCall, nextBeat, looks.next)
		if !wanted {
			next = now.Add(wakerLingers)
		}
		timer.Reset(next.Sub(now))
		select {
		case <-file.news:
			looks.written()
		case <-w.kick:
			looks.written()
		case <-timer.C:
		case <-w.d.ctx.Done():
			w.end()
			return
		}
		if now = time.Now(); !wanted {
			continue
		}
		if !now.Before(nextBeat) {
			nextBeat = now.Add(beatEvery)
			w.beat()
		}
		var v view
		switch {
		case !now.Before(nextAll):
			v = w.lookAll()
			nextAll = now.Add(max(min(jitter(lookAllEvery), v.nextEnd), lookAllGap))
		case !now.Before(looks.next), !now.Before(nextCall):
			v = w.lookCalls()
			nextAll = earliest(nextAll, now.Add(max(v.nextEnd, lookAllGap)))
		default:
			continue
		}
		nextCall = now.Add(v.nextCall)
		looks.looked(time.Now(), v.news)
		if looks.pause > 0 && looks.pause < busyPause {
			nap(looks.pause)
		}
	}
}

// pace says when to look after a write. The system reports the first bytes of a transaction, which can be read only after
// its last ones, and nothing is reported then. So a look that finds nothing is repeated after ever longer pauses, until it
// is sure that the transaction was none of ours. If others write all the time, there is one look a millisecond.
type pace struct {
	last, next time.Time
	pause      time.Duration // after the last look
}

const (
	firstPause = 50 * time.Microsecond
	busyPause  = time.Millisecond
	lastPause  = 20 * time.Millisecond
	farAway    = 1000 * time.Hour
)

func (p *pace) written() {
	p.next = earliest(p.next, p.last.Add(min(p.pause, busyPause)))
}

func (p *pace) looked(now time.Time, news bool) {
	p.last, p.next = now, now.Add(farAway)
	if p.pause = max(4*p.pause, firstPause); news || p.pause > lastPause {
		p.pause = 0
		return
	}
	p.next = now.Add(p.pause)
}

// idle ends the goroutine if nobody has wanted anything for a while.
func (w *waker) idle(now time.Time, since *time.Time) (stop, wanted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.places)+len(w.watches) > 0:
		*since = time.Time{}
		return false, true
	case since.IsZero():
		*since = now
	case now.Sub(*since) >= wakerLingers:
		w.running = false
		return true, false
	}
	return false, false
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
	news     bool
	nextCall time.Duration // until a call that is due later
	nextEnd  time.Duration // until a hold that is waited for may be over
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
	case p.call(at.Int64):
		v.news = true
	}
}

// lookCalls reads the calls of this driver's places, and looks at the watched names.
func (w *waker) lookCalls() view {
	v := view{nextCall: farAway, nextEnd: farAway}
	m, err := w.d.clock()
	if err != nil {
		return v
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
	}) // on an error, the next look sees the same
	w.lookAtWatches(&v)
	return v
}

// lookAll reads all places of this driver, with the ends of the holds that they wait for.
func (w *waker) lookAll() view {
	v := view{nextCall: farAway, nextEnd: farAway}
	m, err := w.d.clock()
	if err != nil {
		return v
	}
	missing := w.snapshot()
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
		default: // free, and nobody has called: the holder died, or the one who was called
			p.tell()
			v.news = true
		}
		first[p.r.Name] = true
		return nil
	})
	if err == nil {
		for _, p := range missing { // it let its turn pass, or somebody emptied the table
			p.tell()
			v.news = true
		}
	}
	w.lookAtWatches(&v)
	return v
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
