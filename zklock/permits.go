package zklock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

// permitsPlace is a contender for permits, in the layout of Curator's InterProcessSemaphoreV2: whoever is first in the
// mutex P/locks may add to P/leases, one node for each permit, as long as there are no more of them than the limit. A
// place waits in P/locks, at the head for P/leases to shrink. The layout stores no limit; pawl's own leases have it in
// their names, so that pawl's clients find out when they do not agree.
type permitsPlace struct {
	waiting
	leases string
	spot   spot // in locks

	multi chan struct{} // not nil: a transaction for the leases is or was under way, without an answer; closed when it ended
}

func newPermitsPlace(d *Driver, r driver.Request) *permitsPlace {
	p := &permitsPlace{waiting: newWaiting(d, r)}
	p.leases = p.dir + "/" + leasesDir
	p.spot = spot{d: d, dir: p.dir + "/" + locksDir, base: lockBase, id: r.ID, data: dataOf(&r)}
	return p
}

// Try makes one attempt.
func (p *permitsPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	if err := p.start(ctx, span); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := p.d.bound(ctx, p.r.TTL)
	defer cancel()
	if err := p.begin(ctx); err != nil {
		return driver.Grant{}, notDone(err)
	}
	defer p.done()
	if p.over {
		return driver.Grant{}, fmt.Errorf("zookeeper: the place was left: %w", driver.ErrNotDone)
	}
	g, err := p.try(ctx, span)
	return g, p.finish(err, p.idle())
}

func (p *permitsPlace) idle() bool { return p.spot.idle() && p.multi == nil }

func (p *permitsPlace) try(ctx context.Context, span int) (driver.Grant, error) {
	sent := driver.Now()
	if p.idle() && (!p.r.Wait || p.d.keep.get(p.r.ID) != nil) {
		if g, done, err := p.peek(ctx, span); done {
			return g, err
		}
	}
	if p.multi != nil { // in line again it would wait for its own leases
		if g, done, err := p.resolve(ctx, sent, span); done || err != nil {
			return g, err
		}
	}
	for ; ctx.Err() == nil; sent = driver.Now() {
		var v view
		var err error
		if p.spot.path == "" {
			v, err = p.spot.enter(ctx)
		} else {
			v, _, err = p.spot.again(ctx)
		}
		if err != nil {
			return driver.Grant{}, err
		}
		own := v.own(p.r.ID)
		if p.spot.path == "" || len(own) == 0 {
			p.spot.path = ""
			continue
		}
		w := v.judge(mutex, &own[0])
		if w.blocker != "" {
			held := &driver.HeldError{Ahead: w.ahead + 1}
			if !p.r.Wait {
				return driver.Grant{}, p.refuse(ctx, held)
			}
			_, err := p.listen(ctx, watchKey{p.spot.dir + "/" + w.blocker, nodeData})
			if errors.Is(err, zk.ErrNoNode) {
				continue
			}
			if err != nil {
				return driver.Grant{}, err
			}
			return driver.Grant{}, held
		}
		// First in locks: nobody else adds to the leases from here on.
		type directory struct {
			view view
			err  error
		}
		parent := make(chan directory, 1)
		go func() {
			v, err := p.d.list(ctx, p.dir)
			parent <- directory{v, err}
		}()
		leases, err := p.look(ctx)
		above := <-parent
		if err == nil {
			if err = above.err; err == nil {
				err = p.clash(leases, above.view)
			}
		}
		if errors.Is(err, driver.ErrMismatch) {
			return driver.Grant{}, p.refuse(ctx, err)
		}
		if err != nil {
			return driver.Grant{}, err
		}
		if mine := leases.own(p.r.ID); len(mine) > 0 { // the answer to the transaction was lost, or the request came twice
			if err := p.spot.undo(ctx); err != nil {
				return driver.Grant{}, err
			}
			return p.granted(ctx, mine, sent, span)
		}
		if len(leases.nodes)+len(leases.strangers)+p.r.Permits > p.r.Limit {
			held := p.held(ctx, leases, 0)
			if !p.r.Wait {
				return driver.Grant{}, p.refuse(ctx, held)
			}
			return driver.Grant{}, held
		}
		made, err := p.take(ctx)
		if errors.Is(err, zk.ErrNoNode) { // the directory is not there, or the own node went
			if err := p.d.mkdir(ctx, p.leases); err != nil {
				return driver.Grant{}, err
			}
			continue
		}
		if err != nil {
			return driver.Grant{}, err
		}
		return p.granted(ctx, made, sent, span)
	}
	return driver.Grant{}, context.Cause(ctx)
}

// resolve finds out what became of a transaction for the leases whose answer was lost. It answers true if it was done.
func (p *permitsPlace) resolve(ctx context.Context, sent driver.Instant, span int) (driver.Grant, bool, error) {
	select {
	case <-p.multi:
	case <-ctx.Done():
		return driver.Grant{}, false, context.Cause(ctx)
	}
	leases, err := p.d.synced(ctx, p.leases)
	if err != nil {
		return driver.Grant{}, false, err
	}
	mine := leases.own(p.r.ID)
	if len(mine) == 0 {
		p.multi = nil
		return driver.Grant{}, false, nil
	}
	if err := p.spot.undo(ctx); err != nil {
		return driver.Grant{}, false, err
	}
	g, err := p.granted(ctx, mine, sent, span)
	return g, true, err
}

// look lists the leases. A place that waits hears of the next change from then on.
func (p *permitsPlace) look(ctx context.Context) (view, error) {
	if !p.r.Wait {
		v, err := p.d.list(ctx, p.leases)
		return v, err
	}
	for {
		f, err := p.listen(ctx, watchKey{p.leases, children})
		if !errors.Is(err, zk.ErrNoNode) {
			return p.d.view(p.leases, f.children), err
		}
		if err := p.d.mkdir(ctx, p.leases); err != nil {
			return view{}, err
		}
	}
}

// clash is the mismatch with what the name is in use as already, if there is one.
func (p *permitsPlace) clash(leases, above view) error {
	if limit := limitOf(leases); limit != 0 && limit != p.r.Limit {
		return &driver.MismatchError{Have: driver.Permits, Want: driver.Permits, HaveLimit: limit, WantLimit: p.r.Limit}
	}
	if len(above.nodes) > 0 {
		return &driver.MismatchError{Have: above.nodes[0].role.kind(), Want: driver.Permits}
	}
	return nil
}

func limitOf(leases view) int {
	for _, n := range leases.nodes {
		if n.limit != 0 {
			return n.limit
		}
	}
	return 0
}

// peek finds the permits of an ID that has them already, and refuses a request that would have to wait but will not.
func (p *permitsPlace) peek(ctx context.Context, span int) (driver.Grant, bool, error) {
	for i, list := range []func(context.Context, string) (view, error){p.d.list, p.d.synced} {
		sent := driver.Now()
		leases, err := list(ctx, p.leases)
		if err != nil {
			return driver.Grant{}, true, err
		}
		if mine := leases.own(p.r.ID); len(mine) > 0 {
			g, err := p.granted(ctx, mine, sent, span)
			return g, true, err
		}
		if p.r.Wait {
			return driver.Grant{}, false, nil
		}
		locks, err := p.d.list(ctx, p.spot.dir)
		if err != nil {
			return driver.Grant{}, true, err
		}
		full := len(leases.nodes)+len(leases.strangers)+p.r.Permits > p.r.Limit
		limit := limitOf(leases)
		if !full && len(locks.nodes) == 0 && (limit == 0 || limit == p.r.Limit) {
			return driver.Grant{}, false, nil
		}
		if i == 0 {
			continue // the member that was asked may lag behind a release
		}
		above, err := p.d.list(ctx, p.dir)
		if err == nil {
			err = p.clash(leases, above)
		}
		if err != nil {
			return driver.Grant{}, true, err
		}
		return driver.Grant{}, true, p.held(ctx, leases, len(locks.nodes))
	}
	return driver.Grant{}, false, nil
}

// held is the answer to a semaphore that has not enough permits left.
func (p *permitsPlace) held(ctx context.Context, leases view, ahead int) error {
	e := &driver.HeldError{Ahead: ahead}
	if len(leases.nodes) == 1 { // the only one, so it is the one that is in the way
		c, err := p.d.get(ctx, p.leases+"/"+leases.nodes[0].name)
		if err != nil {
			return err
		}
		if c.stat != nil {
			e.By = p.d.heldBy(p.r.Name, leases.nodes[0], c)
		}
	}
	return e
}

// take creates the leases and leaves the mutex, in one transaction.
func (p *permitsPlace) take(ctx context.Context) ([]node, error) {
	var ops []any
	name := tag(p.r.ID, "."+strconv.Itoa(p.r.Limit)) + leaseBase
	for range p.r.Permits {
		ops = append(ops, &zk.CreateRequest{Path: p.leases + "/" + name, Data: p.spot.data, Acl: p.d.acl, Flags: zk.FlagEphemeralSequential})
	}
	ops = append(ops, &zk.DeleteRequest{Path: p.spot.path, Version: -1})
	if ctx.Err() != nil {
		return nil, notDone(context.Cause(ctx)) // not sent: there is nothing that Leave would have to wait for
	}
	ended := make(chan struct{})
	p.multi = ended
	var made []zk.MultiResponse
	var err error
	go func() {
		defer close(ended)
		made, err = p.d.conn.Multi(ops...)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, describe("create leases in", p.leases, context.Cause(ctx))
	}
	switch {
	case err == nil:
		p.spot.path = ""
	case refused(err):
		p.multi = nil
		return nil, describe("create leases in", p.leases, err)
	default:
		return nil, describe("create leases in", p.leases, err)
	}
	var nodes []node
	for _, m := range made[:p.r.Permits] {
		n, _ := parse(m.String[strings.LastIndexByte(m.String, '/')+1:])
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// granted makes the grant of leases that are there.
func (p *permitsPlace) granted(ctx context.Context, leases []node, sent driver.Instant, span int) (driver.Grant, error) {
	stat, err := p.d.stat(ctx, p.leases+"/"+leases[0].name)
	if err != nil {
		return driver.Grant{}, err
	}
	if !p.d.owns(stat) {
		return driver.Grant{}, fmt.Errorf("zookeeper: the session ended when the permits were taken: %w", zk.ErrSessionExpired)
	}
	return p.d.grant(ctx, &p.waiting, hold{role: lease, dir: p.leases, nodes: leases}, stat, sent, span)
}

func (p *permitsPlace) refuse(ctx context.Context, err error) error {
	if undone := p.spot.undo(ctx); undone != nil {
		return undone
	}
	return err
}

// Leave gives the place up. If the store cannot be reached, the driver goes on trying by itself.
func (p *permitsPlace) Leave(ctx context.Context) error {
	p.ear.deafen()
	return p.leave(ctx, p)
}

func (p *permitsPlace) undo(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.done()
	p.over = true
	p.unlisten()
	if h := p.d.keep.get(p.r.ID); h != nil && h.Name == p.r.Name { // a grant that nobody heard of
		p.d.keep.drop(h)
	}
	if p.multi != nil {
		select {
		case <-p.multi:
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: the request to create leases in %s has no answer yet: %w", p.leases, context.Cause(ctx))
		}
		v, err := p.d.synced(ctx, p.leases)
		if err != nil {
			return err
		}
		if mine := v.own(p.r.ID); len(mine) > 0 {
			if _, err := p.d.erase(ctx, p.leases, mine); err != nil {
				return err
			}
		}
		p.multi = nil
	}
	return p.spot.undo(ctx)
}

// semaphoreBusy reports whether somebody has or wants permits of a semaphore in the directory.
func (d *Driver) semaphoreBusy(ctx context.Context, dir string) (bool, error) {
	for _, sub := range []string{leasesDir, locksDir} {
		v, err := d.list(ctx, dir+"/"+sub)
		if err != nil || len(v.nodes)+len(v.strangers) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}
