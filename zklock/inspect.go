package zklock

import (
	"context"
	"iter"
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
	dir := d.dir(name)
	v, err := d.synced(ctx, dir)
	if err != nil {
		return out, err
	}
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
		root := d.root
		if root == "" {
			root = "/"
		}
		limited, cancel := d.bound(ctx, inspectLimit)
		l, err := read(limited, func() (listing, error) { return d.children(root) })
		cancel()
		if err != nil {
			yield(driver.Record{}, describe("list", root, err))
			return
		}
		for _, child := range l.children {
			name, ok := unescape(child)
			if !ok || len(name) > 4096 || !strings.HasPrefix(name, prefix) {
				continue
			}
			r, err := d.Inspect(ctx, name)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			if len(r.Holds)+r.Waiters > 0 && !yield(r, nil) {
				return
			}
		}
	}
}
