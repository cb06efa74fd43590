package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// member is one of the stores.
type member struct {
	no     int // from 0
	d      driver.Driver
	raiser driver.Raiser // nil: cannot
	lives  driver.Incarnated
	watch  driver.Watcher

	mu     sync.Mutex
	life   string         // its incarnation when it was asked last
	seen   driver.Instant // when that was asked
	mute   driver.Instant // it does not vote before this
	rests  driver.Instant // it did not answer, and is not asked for votes before this if the others suffice
	silent bool           // it did not answer the last request
}

func newMember(no int, d driver.Driver) *member {
	m := &member{no: no, d: d}
	m.raiser, _ = d.(driver.Raiser)
	m.lives, _ = d.(driver.Incarnated)
	m.watch, _ = d.(driver.Watcher)
	return m
}

// wrap says which member an error is from.
func (m *member) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redlock: member %d: %w", m.no+1, err)
}

// heard notes whether the member answered a request that was made with ctx. Who did not, for the whole of its limit, is
// left in peace for as long again, so that requests to a dead member do not pile up.
func (m *member) heard(ctx context.Context, err error, limit time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		m.silent = true
		m.rests = driver.Now().Add(limit)
		return
	}
	m.silent, m.rests = false, 0
}

// resting reports whether the member is not to be asked for a vote now. Of those who may ask one that was silent, only
// one does, and the others wait for what comes of it.
func (m *member) resting(now driver.Instant, limit time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now < m.rests {
		return true
	}
	if m.silent {
		m.rests = now.Add(limit)
	}
	return false
}

func (m *member) isSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent
}

// muted says why the member is known not to vote now.
func (m *member) muted(now driver.Instant) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mutedLocked(now)
}

func (m *member) mutedLocked(now driver.Instant) error {
	if now < m.mute {
		return fmt.Errorf("it restarted and may have forgotten holds: it votes again in %v", m.mute.Sub(now).Round(time.Millisecond))
	}
	return nil
}

// vouch asks which life the member is in. nil: what it confirmed before it was asked counts.
func (d *Driver) vouch(ctx context.Context, m *member) error {
	if m.lives == nil || d.opts.Durable && m.known() {
		return nil
	}
	asked := driver.Now()
	life, age, err := m.lives.Incarnation(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && life == "":
		return nil
	case err != nil:
		return fmt.Errorf("it does not say since when it runs: %w", err)
	}
	if err := m.enter(asked, life, age, d.opts); err != nil {
		return err
	}
	for _, o := range d.members {
		if o != m && o.isLife(life) {
			err := fmt.Errorf("redlock: %w: members %d and %d are one and the same store", driver.ErrInvalid, min(m.no, o.no)+1, max(m.no, o.no)+1)
			d.twins.Store(&err)
			return err
		}
	}
	return nil
}

// enter notes which life a member is in.
func (m *member) enter(asked driver.Instant, life string, age time.Duration, opts Options) error {
	forgets := opts.MaxTTL + drift(opts.MaxTTL)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := driver.Now()
	if life != m.life {
		if m.life != "" { // it began after we saw another, whatever its own clock says
			age = min(age, now.Sub(m.seen))
		}
		m.life, m.mute = life, 0
		if age < forgets && !opts.Durable {
			m.mute = now.Add(forgets - max(age, 0))
		}
	}
	m.seen = max(m.seen, asked)
	return m.mutedLocked(now)
}

// vouched is an answer of vouch, and when it came.
type vouched struct {
	err error
	at  driver.Instant
}

// blink is less than any store needs to die and serve again.
const blink = 2 * time.Millisecond

// vouchBeside asks at the same time as for the vote, if no second round follows in which it costs nothing.
func (d *Driver) vouchBeside(ctx context.Context, m *member) <-chan vouched {
	if d.tokens || m.lives == nil {
		return nil
	}
	ch := make(chan vouched, 1)
	d.tasks.run(func() { ch <- vouched{d.vouch(ctx, m), driver.Now()} })
	return ch
}

// vouchAround makes sure that the answer of vouchBeside is about the life in which the member voted. If the vote came
// much later, the member may have restarted in between, and is asked again.
func (d *Driver) vouchAround(ctx context.Context, m *member, voted driver.Instant, life <-chan vouched) error {
	select {
	case v := <-life:
		if v.err == nil && voted.Sub(v.at) > blink {
			return d.vouch(ctx, m)
		}
		return v.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *member) known() bool { return !m.isLife("") }

func (m *member) isLife(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life == id
}

// sure reports whether an error of Try says that nothing was done and nothing will be.
func sure(err error) bool {
	for _, e := range []error{driver.ErrHeld, driver.ErrDone, driver.ErrMismatch, driver.ErrInvalid, driver.ErrNotDone, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
