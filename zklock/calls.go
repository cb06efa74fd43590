package zklock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"
)

// call runs one blocking call of the client library, which knows no context, on a goroutine of its own and stops waiting
// for it when ctx ends. The goroutine ends when the library answers: at the latest when the connection is lost and found
// again, given up, or closed.
func call[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	ch := make(chan answer, 1)
	go func() {
		v, err := f()
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// read is call for what changes nothing: it asks again when the connection was lost, until ctx ends.
func read[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		v, err := call(ctx, f)
		if err == nil || !passing(err) {
			return v, err
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return v, errors.Join(context.Cause(ctx), err)
		}
	}
}

// listing is what a directory has.
type listing struct {
	children []string
	stat     *zk.Stat
}

// list reads a directory. A missing one is empty.
func (d *Driver) list(ctx context.Context, dir string) (view, error) {
	l, err := read(ctx, func() (listing, error) { return d.children(dir) })
	if err != nil {
		return view{}, describe("list", dir, err)
	}
	return d.view(dir, l.children), nil
}

// synced is list after every change that was complete before: a member of the ensemble may lag behind.
func (d *Driver) synced(ctx context.Context, dir string) (view, error) {
	l, err := d.newest(ctx, dir)
	if err != nil {
		return view{}, err
	}
	return d.view(dir, l.children), nil
}

func (d *Driver) newest(ctx context.Context, dir string) (listing, error) {
	l, err := read(ctx, func() (listing, error) {
		if _, err := d.conn.Sync(dir); err != nil {
			return listing{}, err
		}
		return d.children(dir)
	})
	return l, describe("list", dir, err)
}

func (d *Driver) children(dir string) (listing, error) {
	children, stat, err := d.conn.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return listing{}, nil
	}
	return listing{children, stat}, err
}

func (d *Driver) view(dir string, children []string) view {
	v := look(children)
	d.odd.look(d, dir, v)
	return v
}

// stat reads a node's facts; nil if it is not there.
func (d *Driver) stat(ctx context.Context, path string) (*zk.Stat, error) {
	s, err := read(ctx, func() (*zk.Stat, error) {
		ok, stat, err := d.conn.Exists(path)
		if err != nil || !ok {
			return nil, err
		}
		return stat, nil
	})
	return s, describe("read", path, err)
}

// content is a node's data and facts.
type content struct {
	data []byte
	stat *zk.Stat
}

// get reads a node; its stat is nil if it is not there.
func (d *Driver) get(ctx context.Context, path string) (content, error) {
	c, err := read(ctx, func() (content, error) {
		data, stat, err := d.conn.Get(path)
		if errors.Is(err, zk.ErrNoNode) {
			return content{}, nil
		}
		return content{data, stat}, err
	})
	return c, describe("read", path, err)
}

// remove deletes a node. It answers false if there was none.
func (d *Driver) remove(ctx context.Context, path string) (bool, error) {
	err := context.Cause(ctx)
	if err == nil {
		err = d.delete(ctx, path)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, describe("delete", path, err)
}

func (d *Driver) delete(ctx context.Context, path string) error {
	if b := d.wire.pipe().send(deleteQuery(path)); b != nil {
		if err := b.wait(ctx); err != nil {
			return err
		}
		return b.answers[0].err
	}
	_, err := call(ctx, func() (struct{}, error) { return struct{}{}, d.conn.Delete(path, -1) })
	return err
}
