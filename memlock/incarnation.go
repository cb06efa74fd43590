package memlock

import (
	"context"
	"crypto/rand"
	"math"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// life is what changes when a store loses its data.
type life struct {
	id   string
	born driver.Instant // 0: it has always been there
}

// Incarnation names the store's present life. A new store counts as one that has always been there; Wipe begins a new
// life.
func (d *Driver) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if err := d.begin(ctx, "Incarnation"); err != nil {
		return "", 0, err
	}
	if d.s.life.born == 0 {
		return d.s.life.id, math.MaxInt64, nil
	}
	return d.s.life.id, driver.Now().Sub(d.s.life.born), nil
}

// Wipe makes the store lose all its data, as a server that restarted without persistence: holds, places in line, results
// and tokens are gone, and nobody is told. Unlike the other methods it works on a broken or closed driver too.
func (d *Driver) Wipe() {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.names {
		for _, p := range r.line {
			p.inLine = false
		}
		r.due = 0
		if r.timer != nil {
			r.timer.Stop()
		}
		delete(s.names, name)
	}
	s.floor = 0
	s.life = life{rand.Text(), driver.Now()}
}
