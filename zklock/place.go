package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

// place is a contender for a mutex, a read-write lock or an election: all those whose contenders are the children of one
// directory, served by their sequence numbers.
type place struct {
	waiting
	role role
	spot spot
}

// waiting is what all places have in common.
type waiting struct {
	d   *Driver
	r   driver.Request
	dir string
	ear *ear

	turn    chan struct{} // has one element while nobody uses the place: a call, or the keeper
	inLine  bool          // a Try has answered that the place is in line
	over    bool
	watched watchKey // where the ear listens
}

func newWaiting(d *Driver, r driver.Request) waiting {
	w := waiting{d: d, r: r, dir: d.dir(r.Name), ear: &ear{notify: r.Notify}, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

func newPlace(d *Driver, r driver.Request) *place {
	role, base := roleOf(r.Kind)
	p := &place{waiting: newWaiting(d, r), role: role}
	p.spot = spot{d: d, dir: p.dir, base: base, id: r.ID, data: dataOf(&r)}
	return p
}

// begin waits until the place is free for a call.
func (w *waiting) begin(ctx context.Context) error {
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *waiting) done() { w.turn <- struct{}{} }

// start is what each Try begins with.
func (w *waiting) start(ctx context.Context, span int) error {
	switch {
	case w.d.life.Err() != nil:
		return errClosed
	case span < 1:
		return invalid("a grant has at least one token, not %d", span)
	case ctx.Err() != nil:
		return notDone(context.Cause(ctx))
	}
	return nil
}

// Try makes one attempt.
func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
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
	return g, p.finish(err, p.spot.idle())
}

// finish settles what an error says about the place. One that is in line stays there when the store fails.
func (w *waiting) finish(err error, idle bool) error {
	var held *driver.HeldError
	switch {
	case err == nil:
		w.unlisten()
	case errors.As(err, &held):
		w.inLine = w.r.Wait
	case errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
	case w.inLine, idle:
		return notDone(err)
	}
	return err
}

func (p *place) try(ctx context.Context, span int) (driver.Grant, error) {
	sent := driver.Now()
	if p.spot.idle() && !p.r.Wait {
		// Who will not wait does not disturb those who do: it looks before it queues.
		if err := p.peek(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
	other := false
	for ; ctx.Err() == nil; sent = driver.Now() {
		var v view
		var stat *zk.Stat
		var err error
		if p.spot.path == "" {
			v, err = p.spot.enter(ctx)
		} else {
			v, stat, err = p.spot.again(ctx)
		}
		if err != nil {
			return driver.Grant{}, err
		}
		own := v.own(p.r.ID)
		if p.spot.path == "" || len(own) == 0 {
			p.spot.path = "" // the session ended, or a stranger deleted the node: at the end of the line again
			continue
		}
		w := v.judge(p.role, &own[0])
		if w.mismatch == none && v.semaphore {
			if busy, err := p.d.semaphoreBusy(ctx, p.dir); err != nil {
				return driver.Grant{}, err
			} else if busy {
				w.mismatch = lease
			}
		}
		switch {
		case w.mismatch != none:
			return driver.Grant{}, p.refuse(ctx, &driver.MismatchError{Have: w.mismatch.kind(), Want: p.r.Kind})
		case w.blocker == "":
			h := hold{role: p.role, dir: p.dir, nodes: own[:1]}
			if f := p.spot.fresh; f != nil && stat == nil {
				stat = p.spot.known()
				h.listed, h.alone, h.tally = f.dir, f.alone, f.tally
			}
			if stat == nil {
				if stat, err = p.d.stat(ctx, p.spot.path); err != nil {
					return driver.Grant{}, err
				}
			}
			if !p.d.owns(stat) {
				if stat != nil && other {
					return driver.Grant{}, errOther
				}
				other = stat != nil
				p.spot.path = ""
				continue
			}
			return p.d.grant(ctx, &p.waiting, h, stat, sent, span)
		case !p.r.Wait:
			return driver.Grant{}, p.refuse(ctx, p.d.held(ctx, p.r.Name, p.dir, w, content{}))
		}
		f, err := p.listen(ctx, watchKey{p.dir + "/" + w.blocker, nodeData})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue // it went meanwhile
		case err != nil:
			return driver.Grant{}, err
		case w.holder.name != w.blocker:
			f.content = content{}
		}
		return driver.Grant{}, p.d.held(ctx, p.r.Name, p.dir, w, f.content)
	}
	return driver.Grant{}, context.Cause(ctx)
}

// errOther is final: sessions never come back, and IDs are never used twice.
var errOther = fmt.Errorf("zookeeper: the hold's ID has a node of another session: %w", driver.ErrInvalid)

// peek refuses a request that would have to wait. It adopts a node of the ID that is there already. A refusal is as good as
// the ensemble's newest state: the member that is asked may lag behind a release.
func (p *place) peek(ctx context.Context) error {
	v, err := p.d.list(ctx, p.dir)
	for fresh := false; err == nil; fresh = true {
		if own := v.own(p.r.ID); len(own) > 0 {
			p.spot.path = p.dir + "/" + own[0].name
			return nil
		}
		w := v.judge(p.role, nil)
		switch {
		case w.mismatch == none && w.blocker == "":
			return nil // what a semaphore has there is seen later
		case fresh && w.mismatch != none:
			return &driver.MismatchError{Have: w.mismatch.kind(), Want: p.r.Kind}
		case fresh:
			held := p.d.held(ctx, p.r.Name, p.dir, w, content{})
			var h *driver.HeldError
			if !errors.As(held, &h) || h.By.ID != "" {
				return held
			} // else the holder just left
		}
		v, err = p.d.synced(ctx, p.dir)
	}
	return err
}

// refuse takes the node back before it answers err.
func (p *place) refuse(ctx context.Context, err error) error {
	if undone := p.spot.undo(ctx); undone != nil {
		return undone
	}
	return err
}

// listen lets the place hear of a path, and of no other.
func (w *waiting) listen(ctx context.Context, key watchKey) (found, error) {
	if w.watched != key {
		w.unlisten()
	}
	w.watched = key
	return w.d.hub.listen(ctx, key, w.ear)
}

func (w *waiting) unlisten() {
	if w.watched != (watchKey{}) {
		w.d.hub.forget(w.watched, w.ear)
		w.watched = watchKey{}
	}
}

// Leave gives the place up. If the store cannot be reached, the driver goes on trying by itself.
func (p *place) Leave(ctx context.Context) error {
	p.ear.deafen()
	return p.leave(ctx, p)
}

func (p *place) undo(ctx context.Context) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.done()
	p.over = true
	p.unlisten()
	if h := p.d.keep.get(p.r.ID); h != nil && h.Name == p.r.Name { // a grant that nobody heard of
		p.d.keep.drop(h)
	}
	return p.spot.undo(ctx)
}

// leave undoes a place now, or in the background.
func (w *waiting) leave(ctx context.Context, x debtor) error {
	ctx, cancel := w.d.bound(ctx, max(w.r.TTL, time.Second))
	defer cancel()
	err := x.undo(ctx)
	if err != nil {
		w.d.keep.owe(x)
	}
	return err
}

// grant makes the Grant for a place whose node, with that stat, is first.
func (d *Driver) grant(ctx context.Context, w *waiting, h hold, stat *zk.Stat, sent driver.Instant, span int) (driver.Grant, error) {
	if stat.Czxid >= 1<<(63-tokenShift) && !d.opts.PeerToken {
		return driver.Grant{}, fmt.Errorf("zookeeper: the czxid %#x leaves no room for pawl's tokens: use Options.PeerToken", stat.Czxid)
	}
	g := driver.Grant{Sent: sent, TTL: min(w.r.TTL, d.trusted())}
	if driver.Now().Sub(sent) > g.TTL/4 {
		// A request may have waited long for a connection. Little trust would be left, so it is made anew.
		g.Sent = driver.Now()
		again, err := d.stat(ctx, h.path(h.nodes[0]))
		if err != nil {
			return driver.Grant{}, err
		}
		if !d.owns(again) {
			return driver.Grant{}, fmt.Errorf("zookeeper: the session ended during the request: %w", zk.ErrSessionExpired)
		}
		stat = again
	}
	g.Token, g.Span = d.token(stat.Czxid, span)
	h.Hold, h.Token = w.r.Hold, g.Token
	h.session, h.timeout = stat.EphemeralOwner, d.timeout()
	h.ear = w.ear
	h.deadline = g.Sent.Add(w.r.TTL)
	d.keep.add(&h)
	return g, nil
}

// held is the answer to a name that is taken. The holder's content is read if it is not known yet.
func (d *Driver) held(ctx context.Context, name, dir string, w verdict, c content) error {
	if c.stat == nil {
		var err error
		if c, err = d.get(ctx, dir+"/"+w.holder.name); err != nil {
			return err
		}
	}
	e := &driver.HeldError{Ahead: w.ahead}
	if c.stat != nil {
		e.By = d.heldBy(name, w.holder, c)
	}
	return e
}

// heldBy shows a hold.
func (d *Driver) heldBy(name string, n node, c content) driver.HeldBy {
	h := driver.HeldBy{Hold: driver.Hold{Kind: n.role.kind(), Name: name, ID: n.id, Permits: 1}, Since: time.UnixMilli(c.stat.Ctime)}
	if h.ID == "" {
		h.ID = n.name
	}
	h.Token, _ = d.token(c.stat.Czxid, 1)
	if n.role == latch {
		h.Value = c.data
	} else {
		h.Who = whoOf(c.data)
	}
	return h
}
