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
	before  mark // of the directory, taken before the create was sent
	dir     *zk.Stat
	session int64
}

// flight is a create whose answer nobody has waited for to the end.
type flight struct {
	done chan struct{}
	path string
	err  error
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
	conn := s.d.conn
	f := &flight{done: make(chan struct{})}
	s.flight, s.fresh = f, nil
	session := conn.SessionID()
	before := s.d.marks.take(s.dir)
	listed := make(chan listing, 1)
	go func() {
		defer close(f.done)
		// The goroutine starts when this one waits for its answer, so the listing is sent right behind the create. Should
		// it come before, it does not show the node and is asked for again.
		go func() {
			l, err := s.d.children(s.dir)
			if err != nil {
				l = listing{}
			}
			listed <- l
		}()
		f.path, f.err = conn.Create(s.dir+"/"+tag(s.id, "")+s.base, s.data, zk.FlagEphemeralSequential, s.d.acl)
	}()
	select {
	case <-f.done:
	case <-ctx.Done():
		return view{}, fmt.Errorf("zookeeper: the request to create a node in %s has no answer yet: %w", s.dir, context.Cause(ctx))
	}
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
	var l listing
	select {
	case l = <-listed:
	case <-ctx.Done():
		return view{}, context.Cause(ctx)
	}
	v := s.d.view(s.dir, l.children)
	switch own := v.own(s.id); {
	case len(own) == 0:
		var err error
		if v, err = s.d.list(ctx, s.dir); err != nil {
			return view{}, err
		}
	case len(own) == 1 && session != 0 && conn.SessionID() == session:
		// Sessions never come back, so it was this one all the time.
		s.fresh = &fresh{before, l.stat, session}
		return v, nil
	}
	return v, s.single(ctx, v)
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
	if f == nil {
		return nil
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
