package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// spot is a contender's own sequential node in a directory, under a name that its hold's ID alone decides, so that it can
// be found again whatever became of the reply. Its methods do not overlap.
type spot struct {
	d    *Driver
	dir  string
	base string
	id   string
	data []byte

	path   string // the node, once it is known
	flight *flight

	fresh *fresh // of a node that was created and listed just now, in one session
}

// fresh is what the answers to a create and the listing behind it prove, so that the node need not be read again.
type fresh struct {
	node  *zk.Stat  // its facts; nil: not told, but perhaps proved by what follows
	alone *wireConn // as in hold
	tally *tally

	before  mark // of the directory, taken before the create was sent
	dir     *zk.Stat
	session int64
}

// flight is a create, with a listing behind it, whose answers nobody has waited for to the end.
type flight struct {
	done chan struct{} // closed when the create has an answer
	path string
	err  error

	conn   *wireConn // if it went past the library
	batch  *batch    // what was sent then; it has all answers when done is closed
	ticket ticket
	listed chan listing // else gets the listing; an empty one if it has failed
}

// land is called when done is closed.
func (f *flight) land() (node *zk.Stat) {
	if f.batch != nil {
		f.path, node, f.err = f.answers()[0].created()
	}
	return node
}

// answers are those of the batch, from the create on.
func (f *flight) answers() []answer {
	if f.ticket.make {
		return f.batch.answers[1:]
	}
	return f.batch.answers
}

// enter creates the node and lists the directory, both in one round trip. Then the listing shows the node, and everything
// that was created before it. A directory that is missing is made.
func (s *spot) enter(ctx context.Context) (view, error) {
	for {
		v, err := s.create(ctx)
		switch {
		case err == nil:
			return v, nil
		case errors.Is(err, zk.ErrNoNode):
			if err := s.d.mkdir(ctx, s.dir); err != nil {
				return view{}, notDone(err)
			}
		default:
			return view{}, err
		}
	}
}

func (s *spot) create(ctx context.Context) (view, error) {
	if ctx.Err() != nil {
		return view{}, notDone(context.Cause(ctx))
	}
	before, session := s.d.marks.take(s.dir), s.d.conn.SessionID()
	f := s.launch(s.dir + "/" + tag(s.id, "") + s.base)
	s.flight, s.fresh = f, nil
	select {
	case <-f.done:
	case <-ctx.Done():
		return view{}, fmt.Errorf("zookeeper: the request to create a node in %s has no answer yet: %w", s.dir, context.Cause(ctx))
	}
	node := f.land()
	s.flight = nil
	switch {
	case errors.Is(f.err, zk.ErrNoNode):
		return view{}, f.err
	case f.err == nil:
		s.path = f.path
	case refused(f.err):
		return view{}, notDone(describe("create a node in", s.dir, f.err))
	default: // it may have been created all the same
		s.flight = f
		return s.recover(ctx, f.err)
	}
	if f.batch != nil {
		return s.entered(ctx, f, node)
	}
	var l listing
	select {
	case l = <-f.listed:
	case <-ctx.Done():
		return view{}, context.Cause(ctx)
	}
	v := s.d.view(s.dir, l.children)
	if len(v.own(s.id)) == 1 && session != 0 && s.d.conn.SessionID() == session {
		// Sessions never come back, so it was this one all the time.
		s.fresh = &fresh{before: before, dir: l.stat, session: session}
		return v, nil
	}
	return s.listed(ctx, v)
}

// entered makes a view of the answers to a create that went past the library.
func (s *spot) entered(ctx context.Context, f *flight, facts *zk.Stat) (v view, err error) {
	k := f.ticket
	own := look([]string{s.path[len(s.dir)+1:]})
	if k.solo {
		v = own
	} else {
		names, _ := f.answers()[1].children()
		v = s.d.view(s.dir, names)
	}
	if len(own.nodes) == 1 && len(v.own(s.id)) == 1 {
		x := &fresh{node: facts}
		alone := !k.solo && len(v.nodes)+len(v.strangers) == 1 && !v.semaphore
		watching := k.watch && f.answers()[2].err == nil
		if alone, x.tally = f.conn.punch(s.dir, k, own.nodes[0].seq, watching, alone); alone {
			x.alone = f.conn
		}
		s.fresh = x
		if alone || !k.solo {
			return v, nil
		}
	}
	return s.listed(ctx, view{})
}

// listed is v if it has the own node, else a new listing. The ID has one node then.
func (s *spot) listed(ctx context.Context, v view) (view, error) {
	if len(v.own(s.id)) == 0 {
		var err error
		if v, err = s.d.list(ctx, s.dir); err != nil {
			return view{}, err
		}
	}
	return v, s.single(ctx, v)
}

// launch sends a create and a listing, and waits for neither.
func (s *spot) launch(path string) *flight {
	if c := s.d.wire.pipe(); c != nil {
		k := c.ticket(s.dir)
		var qs []query
		if k.make { // whatever the answer: the next one counts
			qs = append(qs, createQuery(opContainer, s.dir, nil, s.d.acl, zk.FlagContainer))
		}
		qs = append(qs, createQuery(opCreate2, path, s.data, s.d.acl, zk.FlagEphemeralSequential))
		if !k.solo {
			qs = append(qs, listQuery(s.dir))
		}
		if k.watch {
			qs = append(qs, watchQuery(s.dir))
		}
		if b := c.send(qs...); b != nil {
			return &flight{done: b.done, conn: c, batch: b, ticket: k}
		}
	}
	f := &flight{done: make(chan struct{}), listed: make(chan listing, 1)}
	go func() {
		defer close(f.done)
		// The goroutine starts when this one waits for its answer, so the listing is sent right behind the create. Should
		// it come before, it does not show the node and is asked for again.
		go func() {
			l, err := s.d.children(s.dir)
			if err != nil {
				l = listing{}
			}
			f.listed <- l
		}()
		f.path, f.err = s.d.conn.Create(path, s.data, zk.FlagEphemeralSequential, s.d.acl)
	}()
	return f
}

// recover finds out whether a create whose reply was lost took place.
func (s *spot) recover(ctx context.Context, cause error) (view, error) {
	cause = describe("create a node in", s.dir, cause)
	v, err := s.d.synced(ctx, s.dir)
	if err != nil {
		return view{}, fmt.Errorf("%w; then: %w", cause, err)
	}
	s.flight = nil
	own := v.own(s.id)
	if len(own) == 0 {
		return view{}, notDone(fmt.Errorf("zookeeper: nothing was created in %s: %w", s.dir, cause))
	}
	s.path = s.dir + "/" + own[0].name
	return v, s.single(ctx, v)
}

// single makes the oldest node of the ID the only one: a request that was sent twice may have made two.
func (s *spot) single(ctx context.Context, v view) error {
	own := v.own(s.id)
	if len(own) < 2 {
		return nil
	}
	s.path = s.dir + "/" + own[0].name
	for _, n := range own[1:] {
		if _, err := s.d.remove(ctx, s.dir+"/"+n.name); err != nil {
			return err
		}
	}
	return nil
}

// again looks at the directory and at the own node, in one round trip. The node is forgotten if it is not there any more
// or belongs to a session that is over.
func (s *spot) again(ctx context.Context) (view, *zk.Stat, error) {
	type answer struct {
		stat *zk.Stat
		err  error
	}
	facts := make(chan answer, 1)
	go func() {
		stat, err := s.d.stat(ctx, s.path)
		facts <- answer{stat, err}
	}()
	v, err := s.d.list(ctx, s.dir)
	a := <-facts
	if err != nil || a.err != nil {
		return view{}, nil, errors.Join(err, a.err)
	}
	if !s.d.owns(a.stat) || len(v.own(s.id)) == 0 {
		s.path = ""
		return v, nil, nil
	}
	return v, a.stat, nil
}

// idle reports that nothing of the spot is, or may be, in the store.
func (s *spot) idle() bool { return s.path == "" && s.flight == nil }

// undo takes everything of the spot out of the store, and nothing of it can arrive any more afterwards: a request of a
// connection that is gone is refused by the servers once its session has moved to another.
func (s *spot) undo(ctx context.Context) error {
	if f := s.flight; f != nil {
		select {
		case <-f.done:
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: the request to create a node in %s has no answer yet: %w", s.dir, context.Cause(ctx))
		}
		f.land()
		switch {
		case f.err == nil:
			s.path, s.flight = f.path, nil
		case refused(f.err):
			s.flight = nil
		default:
			v, err := s.d.synced(ctx, s.dir)
			if err != nil {
				return err
			}
			for _, n := range v.own(s.id) {
				if _, err := s.d.remove(ctx, s.dir+"/"+n.name); err != nil {
					return err
				}
			}
			s.path, s.flight = "", nil
		}
	}
	if s.path != "" {
		if _, err := s.d.remove(ctx, s.path); err != nil {
			return err
		}
		s.path = ""
	}
	return nil
}

// known is the stat of the node, as far as a grant needs it, if what is fresh proves it; else nil.
func (s *spot) known() *zk.Stat {
	f := s.fresh
	s.fresh = nil
	switch {
	case f == nil:
		return nil
	case f.node != nil:
		return f.node
	}
	if czxid := f.before.created(f.dir); czxid != 0 {
		return &zk.Stat{Czxid: czxid, EphemeralOwner: f.session}
	}
	return nil
}

// erase deletes nodes. It answers false if none of them was there.
func (d *Driver) erase(ctx context.Context, dir string, nodes []node) (bool, error) {
	if len(nodes) == 1 {
		return d.remove(ctx, dir+"/"+nodes[0].name)
	}
	ops := make([]any, len(nodes))
	for i, n := range nodes {
		ops[i] = &zk.DeleteRequest{Path: dir + "/" + n.name, Version: -1}
	}
	_, err := call(ctx, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
	if err == nil || !errors.Is(err, zk.ErrNoNode) {
		return err == nil, describe("delete nodes in", dir, err)
	}
	there := false
	for _, n := range nodes { // somebody else deleted some
		ok, err := d.remove(ctx, dir+"/"+n.name)
		if err != nil {
			return there, err
		}
		there = there || ok
	}
	return there, nil
}
