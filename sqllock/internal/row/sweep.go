package row

import (
	"context"
	"slices"
	"time"
)

const (
	sweepEvery = time.Minute
	restsFor   = 10 * time.Minute // after its end a row is deleted
)

// clean deletes what pawl's own dead holders left, now and then, in tables where a free row has no use. Rows of others are
// theirs to delete.
func (d *Driver) clean() {
	if d.lay.Stays {
		return
	}
	d.mu.Lock()
	due := time.Now().After(d.sweep)
	if due {
		d.sweep = time.Now().Add(sweepEvery)
	}
	d.mu.Unlock()
	if due {
		d.start(func() { d.sweepSome(d.ctx) }) // what fails is done by the next one
	}
}

func (d *Driver) sweepSome(ctx context.Context) error {
	ctx, done := d.bound(ctx, 10*time.Second)
	defer done()
	t, err := d.look(ctx)
	if err != nil {
		return err
	}
	now, err := d.read(ctx, t, "")
	if err != nil {
		return err
	}
	s, until := d.statement(), "t."+d.wire.quote(d.lay.Until)
	old := t.floor(now.now - restsFor.Microseconds())
	s.add("SELECT %s FROM %s AS t WHERE %s < %s", d.fields(t), d.name(d.lay.Table), until, t.time(s, old))
	by := "t." + d.wire.quote(d.lay.By)
	s.add(" AND (%s LIKE '________-____-____-____-____________:%%' OR %s LIKE 'kept/%%') ORDER BY %s LIMIT %d", by, by, until, 4*largestBatch)
	dead, err := d.scan(ctx, d.db, s, nil)
	if err != nil {
		return err
	}
	keys := slices.DeleteFunc(dead.order, func(key string) bool {
		_, _, _, own := parse(dead.rows[key].by)
		return !own
	})
	if len(keys) == 0 {
		return nil
	}
	for some := range slices.Chunk(keys, largestBatch) {
		s := d.statement()
		s.add("DELETE FROM %s WHERE %s IN %s AND %s < %s", d.name(d.lay.Table), d.wire.quote(d.lay.Key), d.wire.list(s, some), d.wire.quote(d.lay.Until), t.time(s, old))
		if _, err := s.exec(ctx, d.db); err != nil {
			return err
		}
	}
	return nil
}
