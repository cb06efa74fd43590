package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// serverStore is a database server. A record is read without any lock, changed in memory, and written if its row is still
// the same version (optimistic locking, Kung and Robinson 1981). So each step is a read and a write of one statement,
// nothing is locked between them, and no isolation level or pooler matters. Where the driver knows the row already, it does
// not read it: see [known]. A row that somebody else has locked is left alone and tried again, so that it delays no other.
//
// Every version has a random number of its own. A request that arrives late finds another version than it was made for, and
// does nothing: that is why Leave writes a new version after an unknown outcome, even if nothing else is to be changed.
type serverStore struct {
	d    *Driver
	wire wire
	wg   sync.WaitGroup // sweeps

	known known

	mu     sync.Mutex
	pause  pause // since others were in the way
	sweep  time.Time
	beaten time.Time // the last sign of life
	sweeps bool
	cursor []byte

	listener listener
}

// wire is what a server's dialect does.
type wire interface {
	load(ctx context.Context, keys [][]byte) (*sql.Rows, error)
	page(ctx context.Context, from, end, cursor []byte, n int) (*sql.Rows, error)
	save(ctx context.Context, ws []write, guess window) (written map[string]bool, found *sight, err error)
	living(ctx context.Context, processes []string) (*sql.Rows, error)
	beat(ctx context.Context) error
	bury(ctx context.Context, floor int64, dead []write) error // deletes rows that are dead for long
	listens() bool
}

// write is a new version of a row.
type write struct {
	key, name []byte
	was, rev  int64 // was 0: there was no row
	kind      driver.Kind
	limit     int
	last      int64
	until     int64
	changed   int64
	contents  contents
	light     bool // it need not be flushed before it is confirmed
	calls     []call
}

const (
	// longestStatement is how long a statement may take. A connection that is silent for longer is given up.
	longestStatement = 5 * time.Second

	// A row is deleted when nobody has had or wanted its name for restsFor.
	restsFor         = time.Minute
	serverSweepEvery = 5 * time.Second
	serverSweepRows  = 500
)

// keyPart is how much of a long name is in its key.
const keyPart = 200

// keyOf is what a name is found by: itself, or if it is too long for a key its beginning and its SHA-256. No key of the
// second kind is as short as one of the first. The whole name is stored and compared as well.
func keyOf(name string) []byte {
	if len(name) <= keyPart {
		return []byte(name)
	}
	sum := sha256.Sum256([]byte(name))
	return append([]byte(name[:keyPart]), sum[:]...)
}

func newServerStore(wire func(*Driver) wire) func(*Driver) store {
	return func(d *Driver) store {
		s := &serverStore{d: d, wire: wire(d)}
		s.listener.s = s
		return s
	}
}

// serverTx is what a batch may need beside its records.
type serverTx struct {
	s   *serverStore
	ctx context.Context
}

func (tx serverTx) beat() error {
	tx.s.mu.Lock()
	due := time.Since(tx.s.beaten) >= beatEvery/2
	tx.s.mu.Unlock()
	if !due {
		return nil
	}
	now := time.Now()
	if err := tx.s.wire.beat(tx.ctx); err != nil {
		return failure{err}
	}
	tx.s.mu.Lock()
	tx.s.beaten = now
	tx.s.mu.Unlock()
	return nil
}

func (tx serverTx) living(processes map[string]bool) (map[string]bool, error) {
	return tx.s.living(tx.ctx, processes)
}

func (s *serverStore) living(ctx context.Context, processes map[string]bool) (map[string]bool, error) {
	out := make(map[string]bool)
	var list []string
	for p := range processes {
		if p == s.d.process && s.saidLately() {
			out[p] = true
		} else {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return out, nil
	}
	rows, err := s.wire.living(ctx, list)
	err = scanAll(rows, err, ids(out))
	return out, err
}

// saidLately reports whether this driver has said that it lives, so lately that the server need not be asked.
func (s *serverStore) saidLately() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.beaten.IsZero() && time.Since(s.beaten) < processLives/2
}

// lanes is how many connections of the pool the driver uses at once for requests, so that one does not wait for the way of those
// before it. More would make batches small.
func (s *serverStore) lanes() int { return 4 }

// turn runs all that is queued together.
func (s *serverStore) turn(q *queue) {
	ops := q.take()
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.d.ctx, longestStatement)
	defer cancel()
	if !s.serve(ctx, q, ops) && s.rest(context.Background()) != nil {
		q.answer(q.take(), notDone(driver.ErrClosed))
	}
}

// alone runs a request that meets no other. A statement that is under way when ctx ends, or patience, is given up together with its
// connection.
func (s *serverStore) alone(ctx context.Context, patience time.Duration, q *queue, o *op) bool {
	if !q.seize(o) {
		return false
	}
	defer q.pass()
	bounded, cancel := context.WithTimeout(ctx, min(patience, longestStatement))
	defer cancel()
	stop := context.AfterFunc(s.d.ctx, cancel)
	defer stop()
	if !s.serve(bounded, q, []*op{o}) {
		s.rest(bounded) // whoever waited in vain finds the request queued
	}
	return true
}

// rest waits after others were in the way, and answers why not.
func (s *serverStore) rest(ctx context.Context) error {
	s.mu.Lock()
	p := s.pause
	if s.pause.begun.IsZero() {
		s.pause.begun = time.Now()
	}
	s.mu.Unlock()
	return p.wait(ctx, s.d.ctx)
}

// serve runs requests. It answers false if some were queued again, since others were in the way.
func (s *serverStore) serve(ctx context.Context, q *queue, ops []*op) bool {
	again, err := s.run(ctx, ops)
	if err != nil && s.d.dialect.fault(err).again {
		again, err = ops, nil
	}
	if err != nil {
		q.answer(ops, err)
		return true
	}
	if len(again) == 0 {
		s.mu.Lock()
		s.pause = pause{}
		s.mu.Unlock()
		q.answer(ops, nil)
		s.startSweep()
		return true
	}
	waits := make(map[*op]bool)
	for _, o := range again {
		waits[o] = true
	}
	var done []*op
	for _, o := range ops {
		if !waits[o] {
			done = append(done, o)
		}
	}
	q.answer(done, nil)
	q.again(again, errConflict)
	return false
}

var errConflict = errors.New("others change the same row, or keep it locked")

// run runs requests, and answers those whose record was changed by others in the meantime. An error counts for all of them.
func (s *serverStore) run(ctx context.Context, ops []*op) (again []*op, err error) {
	var names []string
	asked := make(map[string]bool)
	for _, o := range ops {
		if o.name != "" && !asked[o.name] {
			asked[o.name] = true
			names = append(names, o.name)
		}
	}
	guess := s.known.guess(names)
	seen := guess
	for {
		if seen == nil && len(names) > 0 {
			if seen, err = s.load(ctx, names); err != nil {
				return nil, notDone(err)
			}
			if guess != nil && seen.rev(names[0]) != guess.rev(names[0]) {
				s.known.missed(names[0])
			}
		}
		if guess != nil && seen != guess && seen.lined() && s.wire.listens() {
			s.d.waker.hear() // others want what is taken and released here
		}
		var sure bool
		if again, seen, sure, err = s.step(ctx, ops, names, seen); sure || err != nil {
			return again, err
		}
	}
}

// step runs requests on what was read of their names, or is guessed. If a guess was wrong, nothing was done, and sure is
// false; found is then what is there instead, if the server has said so.
func (s *serverStore) step(ctx context.Context, ops []*op, names []string, seen *sight) (again []*op, found *sight, sure bool, err error) {
	b := newBatch(s.d, serverTx{s, ctx})
	var guess window
	if seen != nil {
		b.moment, b.floor = seen.moment, seen.floor
		guess = seen.window()
	}
	for _, name := range names {
		if b.records[name] = seen.records[name]; b.records[name] == nil {
			// No number that a deleted row of the name had is larger than the floor, and the new row remembers it.
			b.records[name] = &record{name: name, last: b.floor}
		}
	}
	for _, o := range ops {
		if err := b.run(o); errors.Is(err, errNeedLiving) {
			return nil, nil, false, nil
		} else if err != nil {
			return nil, nil, true, notDone(err)
		}
	}
	var writes []write
	for _, name := range names {
		if r := b.records[name]; r.changed {
			writes = append(writes, r.write(b.now))
		}
	}
	if len(writes) == 0 {
		return nil, nil, guess == (window{}), nil // only a write shows that a guess was right
	}
	sent := time.Now()
	written, found, err := s.wire.save(ctx, writes, guess)
	if err != nil {
		s.known.forget(writes)
		if f := s.d.dialect.fault(err); f.again || f.undone || errors.Is(err, driver.ErrNotDone) {
			return nil, nil, true, notDone(err)
		}
		return nil, nil, true, failure{err}
	}
	s.known.saw(found, sent)
	stale := make(map[string]bool)
	for _, w := range writes {
		if written[string(w.key)] {
			s.known.wrote(w)
			s.d.waker.called(w.calls, b.now)
			continue
		}
		stale[string(w.name)] = true
	}
	if guess != (window{}) && len(stale) > 0 {
		return nil, found, false, nil
	}
	for _, o := range ops {
		if stale[o.name] {
			again = append(again, o)
		}
	}
	return again, nil, true, nil
}

// write is what a record is to be in the database.
func (r *record) write(now int64) write {
	w := write{
		key: keyOf(r.name), name: []byte(r.name), rev: 1 + rand.Int64N(1<<62), kind: r.kind, limit: r.limit,
		last: r.last, until: r.end(), changed: now, contents: r.contents, light: r.light, calls: r.calls,
	}
	if r.found {
		w.was = r.rev
	}
	return w
}

// load reads names.
func (s *serverStore) load(ctx context.Context, names []string) (*sight, error) {
	keys := make([][]byte, len(names))
	want := make(map[string]bool, len(names))
	for i, name := range names {
		keys[i], want[name] = keyOf(name), true
	}
	out := newSight(len(names))
	sent := time.Now()
	rows, err := s.wire.load(ctx, keys)
	if err := s.scan(out, rows, err); err != nil {
		return nil, err
	}
	for name := range out.records {
		if !want[name] {
			return nil, errForeignRow(name)
		}
	}
	s.known.saw(out, sent)
	return out, nil
}

func errForeignRow(name string) error {
	return failure{fmt.Errorf("the name %q is stored under the key of another one: somebody else has written its row: delete it", name)}
}

// scan reads the state row and the rows beside it.
func (s *serverStore) scan(out *sight, rows *sql.Rows, err error) error {
	found := false
	err = scanAll(rows, err, func(scan func(...any) error) error {
		found = true
		return s.each(out, scan)
	})
	if err == nil && !found {
		return failure{fmt.Errorf("the table %s_state is empty: call CreateSchema once: %w", s.d.opts.Table, driver.ErrInvalid)}
	}
	return err
}

// each reads one row of the state and of a name.
func (s *serverStore) each(out *sight, scan func(...any) error) error {
	var version int
	var name []byte
	var rev, kind, limit, last, changed sql.NullInt64
	var text sql.NullString
	if err := scan(&version, &out.floor, &out.now, &name, &rev, &kind, &limit, &last, &changed, &text); err != nil {
		return err
	}
	out.wall = out.now
	if version == 0 {
		return fmt.Errorf("the pool's sessions have autocommit off, so that nothing is committed: leave it on: %w", driver.ErrInvalid)
	}
	if version != layout {
		return errLayout(version)
	}
	if !rev.Valid {
		return nil
	}
	r := &record{name: string(name), found: true, rev: rev.Int64, kind: driver.Kind(kind.Int64), limit: int(limit.Int64), last: last.Int64, written: changed.Int64}
	out.add(r)
	out.cursor = keyOf(r.name)
	return r.read(text.String)
}

func (s *serverStore) see(ctx context.Context, names []string, whole bool) (out *sight, err error) {
	err = s.reading(ctx, func(ctx context.Context) error {
		if out, err = s.load(ctx, names); err == nil && whole {
			out.living, err = s.living(ctx, out.processes())
		}
		return err
	})
	return out, err
}

func (s *serverStore) page(ctx context.Context, from, end, cursor []byte, n int) (out *sight, err error) {
	// Of a long name only the beginning is in order.
	from = from[:min(len(from), keyPart)]
	if len(end) > keyPart {
		end = after(from)
	}
	err = s.reading(ctx, func(ctx context.Context) error {
		out = newSight(n)
		rows, err := s.wire.page(ctx, from, end, cursor, n)
		if err := s.scan(out, rows, err); err != nil {
			return err
		}
		out.living, err = s.living(ctx, out.processes())
		return err
	})
	return out, err
}

// reading runs f, again after a conflict, and gives up a connection that is silent for long.
func (s *serverStore) reading(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, longestStatement)
	defer cancel()
	stop := context.AfterFunc(s.d.ctx, cancel)
	defer stop()
	return s.d.retry(ctx, func() error { return f(ctx) })
}

// startSweep deletes rows that are dead for long, beside the requests. Not at once: a process that lives for a moment only
// should not read the table, unless there are many of them.
func (s *serverStore) startSweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.sweep.IsZero() {
		s.sweep = now.Add(rand.N(serverSweepEvery))
	}
	if now.Before(s.sweep) {
		return
	}
	s.sweep = now.Add(jitter(serverSweepEvery))
	if s.sweeps || s.d.ctx.Err() != nil {
		return
	}
	s.sweeps = true
	s.wg.Go(s.sweepSome)
}

// sweepSome looks at some rows, and goes on for as long as most of them are dead. What fails is done by the next one.
func (s *serverStore) sweepSome() {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sweeps = false
	}()
	for {
		ctx, cancel := context.WithTimeout(s.d.ctx, longestStatement)
		n, err := s.sweepPage(ctx)
		cancel()
		if err != nil || n < serverSweepRows/2 {
			return
		}
	}
}

func (s *serverStore) sweepPage(ctx context.Context) (int, error) {
	page, err := s.page(ctx, nil, nil, s.cursor, serverSweepRows)
	if err != nil {
		return 0, err
	}
	if s.cursor = page.cursor; len(page.order) < serverSweepRows {
		s.cursor = nil
	}
	var dead []write
	floor := int64(0)
	for _, r := range page.order {
		old := page.now - restsFor.Microseconds()
		r.bury(page.living)
		if len(r.Line) == 0 && r.end() < old && r.written < old {
			dead = append(dead, write{key: keyOf(r.name), was: r.rev})
			floor = max(floor, r.last)
		}
	}
	return len(dead), s.wire.bury(ctx, floor, dead)
}

func (s *serverStore) wait(places bool) (news <-chan struct{}, anew bool) {
	if !s.wire.listens() {
		return nil, false
	}
	if places {
		s.listener.start()
	}
	return s.listener.news, s.listener.isNew()
}

func (s *serverStore) polls() bool { return !s.listener.isLive() }

func (s *serverStore) hears() bool { return s.listener.isLive() }

func (s *serverStore) waiting() string {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	switch {
	case s.listener.live:
		return "notifications"
	case s.listener.why != "":
		return "polling: " + s.listener.why
	}
	return "polling"
}

func (s *serverStore) unwait() { s.listener.stop() }

func (s *serverStore) where() string { return " in " + s.d.kind.String() }

func (s *serverStore) close() { s.wg.Wait() }
