package zklock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

const inspectLimit = 30 * time.Second

// Inspect shows who holds a name and how many wait, clients of another make included: their holds have the name of their
// node as ID, which Release takes. Who they are is what their node's data says, if it is text.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	out := driver.Record{Name: name}
	if d.bad != nil {
		return out, d.bad
	}
	if d.life.Err() != nil {
		return out, errClosed
	}
	if len(name) < 1 || len(name) > 4096 {
		return out, invalid("a name has 1 to 4096 bytes, not %d", len(name))
	}
	ctx, cancel := d.bound(ctx, inspectLimit)
	defer cancel()
	v, err := d.synced(ctx, d.dir(name))
	if err != nil {
		return out, err
	}
	return d.record(ctx, name, v)
}

// record is what the store knows of a name whose directory looks like v.
func (d *Driver) record(ctx context.Context, name string, v view) (driver.Record, error) {
	out := driver.Record{Name: name}
	dir := d.dir(name)
	holders := v.holders()
	out.Waiters = len(v.nodes) - len(holders)
	if len(v.nodes) == 0 && v.semaphore {
		leases, err := d.list(ctx, dir+"/"+leasesDir)
		if err != nil {
			return out, err
		}
		locks, err := d.list(ctx, dir+"/"+locksDir)
		if err != nil {
			return out, err
		}
		dir += "/" + leasesDir
		holders, out.Waiters, out.Limit = leases.nodes, len(locks.nodes), limitOf(leases)
	}
	contents := make([]content, len(holders))
	errs := make([]error, len(holders))
	var wg sync.WaitGroup
	seats := make(chan struct{}, 32)
	for i, n := range holders {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			contents[i], errs[i] = d.get(ctx, dir+"/"+n.name)
		})
	}
	wg.Wait()
	byID := map[string]int{}
	for i, n := range holders {
		if errs[i] != nil {
			return out, errs[i]
		}
		if contents[i].stat == nil {
			continue // it went meanwhile
		}
		h := d.heldBy(name, n, contents[i])
		if at, ok := byID[h.ID]; ok && n.role == lease {
			out.Holds[at].Permits++
			continue
		}
		byID[h.ID] = len(out.Holds)
		out.Holds = append(out.Holds, h)
	}
	return out, nil
}

// List reads the children of the root. It yields those that are pawl's spelling of a name.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if d.bad != nil {
			yield(driver.Record{}, d.bad)
			return
		}
		if d.life.Err() != nil {
			yield(driver.Record{}, errClosed)
			return
		}
		root := d.root
		if root == "" {
			root = "/"
		}
		limited, cancel := d.bound(ctx, inspectLimit)
		l, err := d.newest(limited, root)
		cancel()
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		var names []string
		for _, child := range l.children {
			if name, ok := unescape(child); ok && len(name) <= 4096 && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		for some := range slices.Chunk(names, 64) {
			records, err := d.records(ctx, some)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, r := range records {
				if len(r.Holds)+r.Waiters > 0 && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// records reads several names at once.
func (d *Driver) records(ctx context.Context, names []string) ([]driver.Record, error) {
	ctx, cancel := d.bound(ctx, inspectLimit)
	defer cancel()
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			v, err := d.list(ctx, d.dir(name))
			if err == nil {
				records[i], err = d.record(ctx, name, v)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return records, errors.Join(errs...)
}
