package pawl

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/pawl-lock/pawl/driver"
)

// Striped is a name split in n segments, each a Mutex of its own, made by Client.Striped. It is for what is too hot for one
// lock and can be split: the stock of a flash sale in n rows, a quota in n parts. Up to n holders work at once, and on a
// store of several servers the segments spread over them. (Lock striping is old; Java's LongAdder and Guava's Striped are
// the well-known ones inside a process.) It is a name, not a state, and safe for concurrent use.
//
// Each segment guards its own part and nothing else: what must be true of all parts together (one order for each buyer, a
// total) needs a lock or a constraint of its own.
type Striped struct {
	c    *Client
	name string
	n    int
}

// maxSegments bounds n. It is what three digits number, so that the order of the names is that of the segments.
const maxSegments = 1000

// Striped is the name split in n segments, 1 to 1000 (else ErrInvalid, when a segment is asked for). Segment i is the Mutex
// "name#iii", three digits from 000, whatever n is: users who name another n still exclude one another segment by segment,
// but Of answers something else to them.
func (c *Client) Striped(name string, n int) *Striped { return &Striped{c: c, name: name, n: n} }

// Len is the number of segments.
func (s *Striped) Len() int { return s.n }

// Of is the segment that belongs to key: the same in every process, by the FNV-1a hash of 64 bits. Callers that spread by
// it spread evenly, and Segment(Of(key)) is a lock for key that it shares with about one in n other keys.
func (s *Striped) Of(key string) int {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int(h.Sum64() % uint64(max(s.n, 1)))
}

// Segment is the lock of segment i, 0 to n-1. Several of them at once are taken with All.
func (s *Striped) Segment(i int) *Mutex {
	c := s.c
	if c == nil {
		return &Mutex{}
	}
	if s.n < 1 || s.n > maxSegments || i < 0 || i >= s.n || s.name == "" {
		bad := *c
		bad.bad = invalid("striped %q: segment %d of %d: a name, 1 to %d segments, and one of them from 0 are needed", s.name, i, s.n, maxSegments)
		c = &bad
	}
	return &Mutex{target{c: c, kind: driver.Exclusive, name: fmt.Sprintf("%s#%03d", s.name, i), permits: 1}}
}

// Any runs fn under one segment after another, until fn answers true or an error: it begins at segment from (any number;
// Of, a random one, or the last one that served well), goes around once, passes over the segments that are held, and then
// waits for these, one by one. It holds one segment at a time, as Mutex.Do does, and waits while it holds none.
//
// true: fn answered true, and no further segment was asked. false and no error: fn has answered false under every segment,
// once each and not at the same time: if a part that was found empty stays empty, all are empty. With an error it is what
// fn answered last. ctx and Options.Wait bound the waits; the error of a wait that ended matches ErrHeld as that of Lock.
func (s *Striped) Any(ctx context.Context, from int, fn func(ctx context.Context, segment int) (bool, error)) (bool, error) {
	return s.any(ctx, from, false, fn)
}

// TryAny is Any without waiting. ErrHeld means that fn answered false under the segments that were free, and that others
// were not: unlike false, it says nothing about those.
func (s *Striped) TryAny(ctx context.Context, from int, fn func(ctx context.Context, segment int) (bool, error)) (bool, error) {
	return s.any(ctx, from, true, fn)
}

func (s *Striped) any(ctx context.Context, from int, try bool, fn func(context.Context, int) (bool, error)) (bool, error) {
	n := max(s.n, 1)
	from = (from%n + n) % n
	var later []int
	var held error
	for k := range n {
		i := (from + k) % n
		l, err := s.Segment(i).TryLock(ctx)
		switch {
		case errors.Is(err, ErrHeld):
			later, held = append(later, i), err
			continue
		case err != nil:
			return false, err
		}
		if found, err := visit(ctx, l, i, fn); found || err != nil {
			return found, err
		}
	}
	if try {
		return false, held
	}
	wait := ctx
	if d := s.c.opts.Wait; d > 0 {
		var stop context.CancelFunc
		wait, stop = context.WithTimeout(ctx, d)
		defer stop()
	}
	for _, i := range later {
		l, err := s.Segment(i).Lock(wait)
		if err != nil {
			return false, err
		}
		if found, err := visit(ctx, l, i, fn); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// Each runs fn under every segment once, in the order of the segments, waiting for each as Mutex.Do does, and holding one
// at a time: to drain the parts, to fill them up, to count. Parts that it has left may change while it is at others; for
// one look at all of them at once, take the segments with All. The first error of fn or of a lock ends it.
func (s *Striped) Each(ctx context.Context, fn func(ctx context.Context, segment int) error) error {
	for i := range max(s.n, 1) {
		if err := s.Segment(i).Do(ctx, func(ctx context.Context) error { return fn(ctx, i) }); err != nil {
			return err
		}
	}
	return nil
}

// visit runs fn under l, as Do does.
func visit(ctx context.Context, l *Lease, i int, fn func(context.Context, int) (bool, error)) (found bool, err error) {
	defer func() {
		if uerr := l.Unlock(); errors.Is(uerr, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(l.Context(ctx), i)
}
