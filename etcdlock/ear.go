package etcdlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ear is the one watch stream of a driver. Every watch on it begins "now", never at an old revision: the server serves
// those at once, and those that have to catch up only every 100 ms. So whoever watches reads once more after the watch is
// live, and is told to look again whenever the stream was lost and made anew. That also makes a compaction harmless.
type ear struct {
	d    *Driver
	kick chan struct{} // capacity 1: there is something to send

	mu      sync.Mutex
	started bool
	closed  bool
	nextID  int64
	subs    map[int64]*sub
	todo    []*pb.WatchRequest
	up      bool // there is a stream
}

// sub is one watch.
type sub struct {
	id   int64
	req  *pb.WatchCreateRequest
	tell func() // does not block

	// Under ear.mu.
	live  chan struct{} // closed while the server watches
	fresh bool          // was never live: nothing can have been missed yet
}

const (
	quiet     = 3 * time.Second // a stream that is silent for this long is asked for a sign of life
	deafPause = 500 * time.Millisecond
)

func newEar(d *Driver) *ear {
	return &ear{d: d, kick: make(chan struct{}, 1), subs: map[int64]*sub{}}
}

// watch begins to watch a key, or, with an end, all keys up to it. tell is called when one is deleted, or put if puts says
// so, and when something may have been missed.
func (e *ear) watch(key, end string, puts bool, tell func()) *sub {
	s := &sub{tell: tell, live: make(chan struct{}), fresh: true, req: &pb.WatchCreateRequest{Key: []byte(key)}}
	if end != "" {
		s.req.RangeEnd = []byte(end)
	}
	if !puts {
		s.req.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return s
	}
	if !e.started {
		e.started = true
		if !e.d.run(e.listen) {
			return s
		}
	}
	e.nextID++
	s.id = e.nextID
	s.req.WatchId = s.id
	e.subs[s.id] = s
	if e.up {
		e.send(create(s))
	}
	return s
}

func create(s *sub) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: s.req}}
}

func (e *ear) send(r *pb.WatchRequest) {
	e.todo = append(e.todo, r)
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// drop ends a watch. A tell that is under way may still be heard.
func (e *ear) drop(s *sub) {
	if s == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subs[s.id] != s {
		return
	}
	delete(e.subs, s.id)
	if e.up {
		e.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: s.id}}})
	}
}

// wait waits until a watch is live. It answers false when it is not after a while, or when ctx ends.
func (e *ear) wait(ctx context.Context, s *sub) bool {
	e.mu.Lock()
	live := s.live
	e.mu.Unlock()
	t := time.NewTimer(2 * time.Second)
	defer t.Stop()
	select {
	case <-live:
		return true
	case <-ctx.Done():
	case <-t.C:
	case <-e.d.life.Done():
	}
	return false
}

// listen keeps a stream up until the driver is closed.
func (e *ear) listen() {
	pause := 20 * time.Millisecond
	for e.d.life.Err() == nil {
		begun := time.Now()
		refused := e.stream()
		if time.Since(begun) > 10*time.Second {
			pause = 20 * time.Millisecond
		}
		wait := pause/2 + rand.N(pause)
		pause = min(2*pause, time.Second)
		if refused {
			wait = time.Second
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-e.d.life.Done():
			t.Stop()
		}
	}
}

// stream makes one stream and serves it until it is lost. It answers true when the server refused a watch.
func (e *ear) stream() (refused bool) {
	ctx, cancel := context.WithCancel(e.d.life)
	defer cancel()
	w, err := e.d.watches.Watch(ctx)
	if err != nil {
		return false
	}
	e.mu.Lock()
	e.up = true
	e.todo = nil
	for _, s := range e.subs {
		e.send(create(s))
	}
	e.mu.Unlock()

	heard := make(chan struct{}, 1)
	broken := make(chan bool, 1)
	if !e.d.run(func() {
		for {
			resp, err := w.Recv()
			if err != nil {
				broken <- false
				return
			}
			select {
			case heard <- struct{}{}:
			default:
			}
			if err := e.hear(resp); err != nil {
				broken <- errors.Is(err, errRefused)
				return
			}
		}
	}) {
		return false
	}
	defer func() {
		cancel()
		e.mu.Lock()
		e.up = false
		for _, s := range e.subs {
			select {
			case <-s.live:
				s.live = make(chan struct{})
			default:
			}
		}
		e.mu.Unlock()
	}()

	alive := time.NewTicker(quiet)
	defer alive.Stop()
	asked := false
	for {
		select {
		case <-e.kick:
			e.mu.Lock()
			todo := e.todo
			e.todo = nil
			e.mu.Unlock()
			for _, r := range todo {
				if w.Send(r) != nil {
					return <-broken
				}
			}
		case <-heard:
			asked = false
			alive.Reset(quiet)
		case <-alive.C:
			e.mu.Lock()
			n := len(e.subs)
			e.mu.Unlock()
			switch {
			case n == 0:
			case asked:
				cancel() // the member does not answer: the next one may
				<-broken
				return false
			default:
				asked = true
				if w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}) != nil {
					return <-broken
				}
			}
		case r := <-broken:
			return r
		}
	}
}

var errRefused = errors.New("the server refused a watch")

// hear carries out one message. An error ends the stream.
func (e *ear) hear(r *pb.WatchResponse) error {
	if e.d.sameCluster(r.GetHeader().GetClusterId()) != nil {
		return errRefused
	}
	e.mu.Lock()
	s := e.subs[r.WatchId]
	tell := func() {}
	if s != nil {
		tell = s.tell
	}
	var err error
	switch {
	case s == nil: // dropped meanwhile, or a sign of life
		if r.Canceled && r.WatchId == -1 && r.CancelReason != "" {
			err = errRefused // permission denied comes without the ID
		}
	case r.Canceled:
		// Not at our request, which would have ended s. Perhaps a login that is over: a new stream has a new one.
		err = errors.New(r.CancelReason)
		if strings.Contains(r.CancelReason, "permission denied") {
			err = errRefused
		}
	case r.Created:
		select {
		case <-s.live:
		default:
			close(s.live)
		}
		if s.fresh {
			s.fresh = false
			tell = func() {}
		}
	case len(r.Events) == 0:
		tell = func() {}
	}
	e.mu.Unlock()
	tell()
	return err
}

func (e *ear) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	clear(e.subs)
}
