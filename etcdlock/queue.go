package etcdlock

import (
	"github.com/pawl-lock/pawl/driver"
)

// queue is all that the store has of one name at one revision.
type queue struct {
	line   []contender // by age
	kept   map[string]contender
	result *contender
}

func newQueue(cs []contender) *queue {
	q := &queue{}
	for _, c := range cs {
		switch c.form {
		case formKept:
			if q.kept == nil {
				q.kept = map[string]contender{}
			}
			q.kept[c.id] = c
		case formResult:
			r := c
			q.result = &r
		default:
			q.line = append(q.line, c)
		}
	}
	return q
}

// find is the place in line of a key, or -1.
func (q *queue) find(key string) int {
	for i := range q.line {
		if q.line[i].key == key {
			return i
		}
	}
	return -1
}

// byID is the place in line of a live contender's ID, or -1.
func (q *queue) byID(id string) int {
	for i := range q.line {
		if q.line[i].id == id && !q.isKept(&q.line[i]) {
			return i
		}
	}
	return -1
}

func (q *queue) isKept(c *contender) bool {
	_, ok := q.kept[c.id]
	return c.id != "" && ok
}

// verdict is what a queue means for one contender.
type verdict struct {
	free  bool
	wrong error // *driver.MismatchError
	done  bool  // there is a result
	ahead int   // waiters in front; -1: not counted
	by    *contender
	watch string // the key whose end may let it in; "": any key of the name
}

// judge says whether a contender of r, for whom the first n of the line are older, may have the name.
func (q *queue) judge(r *driver.Request, n int, peer bool) verdict {
	older := q.line[:n]
	v := verdict{ahead: -1}
	if q.result != nil {
		if r.Kind == driver.Once {
			v.done = true
		} else {
			v.wrong = &driver.MismatchError{Have: driver.Once, Want: r.Kind}
		}
		return v
	}
	if v.wrong = mismatch(older, r, peer); v.wrong != nil {
		return v
	}
	switch r.Kind {
	case driver.Read:
		for i := len(older) - 1; i >= 0; i-- {
			if older[i].form != formRead {
				v.by, v.watch = &older[0], older[i].key
				return v
			}
		}
	case driver.Permits:
		out := r.Permits
		for i := range older {
			if older[i].form != formPermit {
				out = r.Limit + 1 // a foreign mutex excludes all
			}
			out += older[i].permits
		}
		if out > r.Limit {
			v.by = &older[0]
			return v
		}
	case driver.Once:
		if n > 0 { // all that wait want the holder's result
			v.by, v.watch, v.ahead = &older[0], older[0].key, n-1
			return v
		}
	default:
		if n > 0 {
			v.by, v.watch, v.ahead = &older[0], older[n-1].key, n-1
			return v
		}
	}
	v.free = true
	return v
}

// mismatch compares a request with the oldest contender that tells what it uses the name as.
func mismatch(older []contender, r *driver.Request, peer bool) error {
	for i := range older {
		c := &older[i]
		have := c.family()
		switch {
		case have == 0:
			continue
		case have != r.Kind.Family():
			return &driver.MismatchError{Have: have, Want: r.Kind}
		case have == driver.Permits && c.limit != r.Limit:
			return &driver.MismatchError{Have: have, Want: r.Kind, HaveLimit: c.limit, WantLimit: r.Limit}
		case peers(r.Kind) && c.peer() != peer && (c.note != nil || have == driver.Leader):
			return &tokenError{peer: peer}
		}
		return nil
	}
	return nil
}

// peers reports whether there are other clients that number holds of this kind.
func peers(k driver.Kind) bool {
	return k == driver.Exclusive || k == driver.Fair || k == driver.Leader
}

// tokenError says that two drivers number the holds of one name in two ways. It matches driver.ErrMismatch.
type tokenError struct{ peer bool }

func (e *tokenError) Error() string {
	if e.peer {
		return "etcdlock: the name is in use with pawl's own tokens; this driver has Options.PeerToken: all clients of a name must agree"
	}
	return "etcdlock: the name is in use with Options.PeerToken, which this driver has not: all clients of a name must agree"
}

func (e *tokenError) Is(target error) bool { return target == driver.ErrMismatch }

// holders is how many of the line hold the name, and which: flags by place in line.
func (q *queue) holders() (n int, holds []bool) {
	holds = make([]bool, len(q.line))
	out := 0
	for i := range q.line {
		c := &q.line[i]
		switch {
		case i == 0:
			holds[i] = true
		case c.form == formRead:
			holds[i] = holds[i-1] && q.line[i-1].form == formRead
		case c.form == formPermit:
			holds[i] = holds[i-1] && q.line[i-1].form == formPermit && out+c.permits <= c.limit
		}
		out += c.permits
		if holds[i] {
			n++
		}
	}
	return n, holds
}
