package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// hub has the watches that are set, each shared by all who want it: the library cannot take a watch back, so one that
// nobody wants any more is kept for the next who does.
type hub struct {
	d *Driver

	mu      sync.Mutex
	watches map[watchKey]*watch

	used atomic.Bool // a watch was set, or is about to be
}

type watchKey struct {
	path string
	what watched
}

// watched is what a watch is about.
type watched uint8

const (
	nodeData watched = iota // of a node that exists: it changed, or was deleted
	children                // of a directory that exists: a child came or went, or it was deleted
	presence                // of a node that may not exist: it was created, changed or deleted
)

type watch struct {
	key       watchKey
	listeners map[listener]struct{} // under hub.mu
}

// listener is told of the one event of a watch.
type listener interface{ changed() }

func (h *hub) init(d *Driver) { h.d, h.watches = d, map[watchKey]*watch{} }

// found is what a watch was set on.
type found struct {
	content
	children []string
	fresh    bool // the watch was set now, so the content is known
}

// listen lets l hear the next event of a path. A watch that is set already costs nothing, and says nothing about the
// present. Nothing to watch is zk.ErrNoNode.
func (h *hub) listen(ctx context.Context, key watchKey, l listener) (found, error) {
	h.mu.Lock()
	live := h.watches[key] != nil
	if live {
		h.watches[key].listeners[l] = struct{}{}
	}
	h.mu.Unlock()
	if live {
		return h.peek(ctx, key)
	}
	type set struct {
		found
		events <-chan zk.Event
	}
	conn := h.d.conn
	h.used.Store(true)
	s, err := read(ctx, func() (s set, err error) {
		s.fresh = true
		switch key.what {
		case nodeData:
			s.data, s.stat, s.events, err = conn.GetW(key.path)
		case children:
			s.found.children, s.stat, s.events, err = conn.ChildrenW(key.path)
		case presence:
			var ok bool
			ok, s.stat, s.events, err = conn.ExistsW(key.path)
			if !ok {
				s.stat = nil
			}
		}
		return s, err
	})
	if err != nil {
		if errors.Is(err, zk.ErrNoNode) {
			return found{}, err
		}
		return found{}, describe("watch", key.path, err)
	}
	w := &watch{key: key, listeners: map[listener]struct{}{l: {}}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.watches[key]; old != nil { // the library keeps one watch a path: both hear the same event
		old.listeners[l] = struct{}{}
		return s.found, nil
	}
	if !h.d.spawn(func() { h.wait(w, s.events) }) {
		return found{}, errClosed
	}
	h.watches[key] = w
	return s.found, nil
}

// peek reads what a live watch is about. What comes after is told, so the reading is as good as one that sets a watch. A
// node's content is not worth a request: whoever listens knows from a directory that it was there.
func (h *hub) peek(ctx context.Context, key watchKey) (found, error) {
	switch key.what {
	case children:
		l, err := read(ctx, func() (listing, error) {
			children, stat, err := h.d.conn.Children(key.path)
			return listing{children, stat}, err
		})
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			err = describe("list", key.path, err)
		}
		return found{content: content{stat: l.stat}, children: l.children, fresh: true}, err
	case presence:
		stat, err := h.d.stat(ctx, key.path)
		return found{content: content{stat: stat}, fresh: true}, err
	}
	return found{}, nil
}

func (h *hub) wait(w *watch, events <-chan zk.Event) {
	select {
	case <-events:
	case <-h.d.life.Done():
		return
	}
	h.mu.Lock()
	if h.watches[w.key] == w {
		delete(h.watches, w.key)
	}
	told := w.listeners
	w.listeners = nil
	h.mu.Unlock()
	for l := range told {
		l.changed()
	}
}

// forget ends what l hears of a path.
func (h *hub) forget(key watchKey, l listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watches[key]; w != nil {
		delete(w.listeners, l)
	}
}
