package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// poller looks after places that no message reaches: it asks about all of them with one pipeline, again and again, and tells
// those that may get in now. It has a goroutine as long as there are such places.
type poller struct {
	d  *Driver
	wg sync.WaitGroup

	mu      sync.Mutex
	running bool
	closed  bool
	kick    chan struct{} // capacity 1: there is a new name
	places  map[*place]*polled
}

// polled is what is known of a place. Only the goroutine changes it, under poller.mu.
type polled struct {
	told bool
	skip int // looks to leave out: it was told before, for nothing
	left int
}

const (
	pollSoonest = 50 * time.Millisecond
	pollLatest  = 500 * time.Millisecond
	pollSkip    = 8
)

func newPoller(d *Driver) *poller {
	return &poller{d: d, kick: make(chan struct{}, 1), places: map[*place]*polled{}}
}

// add looks after p, which just found its name taken.
func (x *poller) add(p *place) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.places[p]; s != nil {
		if s.told {
			s.told, s.skip = false, min(2*s.skip+1, pollSkip)
			s.left = s.skip
		}
		return
	}
	if x.closed {
		return
	}
	x.places[p] = &polled{}
	if !x.running {
		x.running = true
		x.wg.Go(x.run)
		return
	}
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

func (x *poller) forget(p *place) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.places, p)
}

// close ends the goroutine. d.life has ended.
func (x *poller) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.wg.Wait()
}

func (x *poller) run() {
	for pause := pollSoonest; ; {
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-x.d.life.Done():
			return
		}
		select {
		case <-x.kick:
			pause = pollSoonest
		default:
			pause = min(pause*3/2, pollLatest)
		}
		places, requests := x.due()
		if places == nil {
			return
		}
		var free []*place
		for i, a := range x.d.lanes.many(x.d.life, minLimit, requests) {
			if places[i].mayEnter(a) {
				free = append(free, places[i])
				pause = pollSoonest
			}
		}
		x.mu.Lock()
		for _, p := range places {
			if s := x.places[p]; s != nil {
				s.skip /= 2
			}
		}
		for _, p := range free {
			if s := x.places[p]; s != nil {
				s.told, s.skip = true, 2*s.skip
			}
		}
		x.mu.Unlock()
		for _, p := range free {
			p.heard()
		}
	}
}

// due answers what to ask now, and nil when there is nothing left to look after: then the goroutine ends.
func (x *poller) due() ([]*place, []request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.places) == 0 {
		x.running = false
		return nil, nil
	}
	places := make([]*place, 0, len(x.places))
	requests := make([]request, 0, len(x.places))
	for p, s := range x.places {
		if s.left > 0 {
			s.left--
			continue
		}
		places, requests = append(places, p), append(requests, p.question())
	}
	return places, requests
}

// question is a plain command whose answer tells whether p may get in.
func (p *place) question() request {
	switch p.r.Kind {
	case driver.Read:
		return request{keys: []string{p.k.main}, args: []string{"HGET", "mode"}}
	case driver.Permits:
		return request{keys: []string{p.k.main}, args: []string{"GET"}}
	case driver.Leader:
		return request{keys: []string{p.k.lock()}, args: []string{"EXISTS"}}
	case driver.Once: // 3 fields while it is held, 2 when it is done
		return request{keys: []string{p.k.lock()}, args: []string{"HLEN"}}
	}
	return request{keys: []string{p.k.main}, args: []string{"EXISTS"}}
}

// mayEnter reads the answer. Whatever is odd is for Try to say.
func (p *place) mayEnter(a answer) bool {
	if a.err != nil {
		return errors.Is(a.err, errWrongType)
	}
	switch p.r.Kind {
	case driver.Read:
		mode, err := a.msg.ToString()
		return err != nil || mode == "read"
	case driver.Permits:
		text, err := a.msg.ToString()
		n, err2 := strconv.Atoi(text)
		return err != nil || err2 != nil || n >= p.r.Permits
	}
	n, err := a.msg.AsInt64()
	return err == nil && (n == 0 || p.r.Kind == driver.Once && n != 3)
}

// maxFan is how many requests are on their way to the nodes of a cluster at once.
const maxFan = 512

// many sends requests as one pipeline, or in a cluster as one for each node, and answers each.
func (l *lanes) many(ctx context.Context, limit time.Duration, rs []request) []answer {
	out := make([]answer, len(rs))
	if l.cluster {
		var wg sync.WaitGroup
		for from := 0; from < len(rs); from += maxFan {
			to := min(from+maxFan, len(rs))
			for i := from; i < to; i++ {
				wg.Go(func() { out[i].msg, out[i].err = l.route(ctx, limit, rs[i]) })
			}
			wg.Wait()
		}
		return out
	}
	cs := make([]*call, len(rs))
	until := time.Now().Add(limit)
	for i, r := range rs {
		cs[i] = &call{request: r, until: until, done: make(chan struct{}, 1)}
	}
	if !l.put(cs...) {
		for i := range out {
			out[i].err = errClosed
		}
		return out
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for i, c := range cs {
		select {
		case <-c.done:
			out[i] = answer{c.msg, c.err}
			continue
		case <-ctx.Done():
		case <-timer.C:
		case <-l.closing:
		}
		for ; i < len(cs); i++ {
			cs[i].end(left)
			out[i].err = errSlow
		}
		break
	}
	return out
}
