package redislock

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// request is what a call asks.
type request struct {
	script     *script // nil: args[0] is a command
	keys, args []string
	quick      *quick // asked instead at first, if there is one
}

// quick is the usual case of a request, which a script carries out for many at once. Its answer is "" if the case was
// another one (nothing was done), and 2 if it was begun only; then the whole request follows.
type quick struct {
	script *script
	keys   [4]string
	args   [2]string
	nkeys  int    // keys in use
	nargs  int    // args in use
	ttl    string // of a lock, which all requests of a command share
	then   expander
}

// expander makes the whole request of a quick one.
type expander interface{ whole(begun bool) request }

// call is one request on its way. Whoever made it waits for done, or leaves.
type call struct {
	request
	until time.Time     // when the server must have answered
	limit time.Time     // when its maker leaves at the latest; zero: when it sees fit
	done  chan struct{} // capacity 1; nil: its maker does all the work itself
	then  func(error)   // called with what came of it, if not nil
	state atomic.Int32
	begun bool // the quick script did half of it

	msg wire.Reply
	err error
}

const (
	queued int32 = iota
	sent
	over // answered
	left // nobody waits for the answer any more
)

// converse sends calls until all are answered: those for which the quick script was not enough, or which the server does
// not know the script of, are sent again.
func (ln *lane) converse(until time.Time, conn wire.Conn, live []*call) {
	x := exchange{lane: ln, until: until}
	for len(live) > 0 {
		live = x.send(conn, live)
		if x.broken {
			if ln.drop() { // else it was cut on purpose
				ln.l.suspect()
			}
			for _, c := range live {
				c.finish(wire.Reply{}, c.lost())
			}
			return
		}
	}
}

type exchange struct {
	lane    *lane
	until   time.Time
	missing map[*script]bool // scripts that the server did not know
	broken  bool
	again   []*call
}

// batch is one command of a pipeline: one call, or many that share a quick script.
type batch struct {
	script *script
	calls  []*call
	quick  bool
}

// abreast is how many calls a quick script serves at once: enough to make the cost of a script small, few enough not to
// keep the server from others for long.
const abreast = 64

// send sends calls as one pipeline and answers those that are to be sent again.
func (x *exchange) send(conn wire.Conn, live []*call) []*call {
	ln, batches := x.lane, batches(live)
	ln.cmds, ln.args, x.again = ln.cmds[:0], ln.args[:0], nil
	for _, t := range batches {
		ln.cmds = append(ln.cmds, x.command(t))
	}
	ln.out = slices.Grow(ln.out[:0], len(ln.cmds))[:len(ln.cmds)]
	conn.Do(x.until, ln.cmds, ln.out)
	ln.landed()
	for i, r := range ln.out {
		x.answer(batches[i], r)
	}
	clear(ln.cmds)
	clear(ln.out)
	clear(ln.args)
	return x.again
}

func batches(live []*call) []*batch {
	out := make([]*batch, 0, min(len(live), 8))
	var open []*batch // quick ones that have room
next:
	for _, c := range live {
		q := c.quick
		if q == nil {
			out = append(out, &batch{script: c.script, calls: []*call{c}})
			continue
		}
		for i, t := range open {
			if t.script == q.script && t.calls[0].quick.ttl == q.ttl {
				if t.calls = append(t.calls, c); len(t.calls) == abreast {
					open = slices.Delete(open, i, i+1)
				}
				continue next
			}
		}
		t := &batch{script: q.script, calls: append(make([]*call, 0, min(len(live), abreast)), c), quick: true}
		out, open = append(out, t), append(open, t)
	}
	return out
}

// command makes the command of a batch.
func (x *exchange) command(t *batch) wire.Command {
	c, whole := t.calls[0], x.missing[t.script]
	switch {
	case !t.quick && t.script == nil:
		return c.command(false, false)
	case !t.quick:
		return t.script.command(whole, c.keys, c.args)
	}
	ln := x.lane
	from := len(ln.args)
	for _, c := range t.calls {
		ln.args = append(ln.args, c.quick.keys[:c.quick.nkeys]...)
	}
	if t.script.clock {
		ln.args = append(ln.args, clockKey)
	}
	mid := len(ln.args)
	if ttl := c.quick.ttl; ttl != "" {
		ln.args = append(ln.args, ttl)
	}
	for _, c := range t.calls {
		ln.args = append(ln.args, c.quick.args[:c.quick.nargs]...)
	}
	return t.script.with(whole, ln.args[from:mid:mid], ln.args[mid:])
}

func (x *exchange) answer(t *batch, r wire.Result) {
	var refusal wire.Refusal
	switch refusing := errors.As(r.Err, &refusal); {
	case r.Err == nil && t.quick:
		x.quickly(t, r.Reply)
	case r.Err == nil:
		t.calls[0].finish(r.Reply, nil)
	case noScript(r.Err): // never the answer to EVAL
		if x.missing == nil {
			x.missing = map[*script]bool{}
		}
		x.missing[t.script] = true
		for _, c := range t.calls {
			if c.state.Load() != left {
				x.again = append(x.again, c)
			}
		}
	default:
		// After a fail-over a Sentinel's client knows the new primary, but this connection is still the old one's.
		x.broken = x.broken || !refusing || code(string(refusal)) == "READONLY"
		t.finish(answered(r.Err))
	}
}

// quickly hands out the answers of a quick script.
func (x *exchange) quickly(t *batch, msg wire.Reply) {
	all, err := msg.ToArray()
	var token wire.Reply
	if t.script == locksScript && len(all) > 0 {
		token, all = all[0], all[1:]
	}
	if err != nil || len(all) != len(t.calls) {
		t.finish(fmt.Errorf("redis: %d answers to %d requests: %w", len(all), len(t.calls), err))
		return
	}
	for i, c := range t.calls {
		switch msg, err := reading(all[i]); {
		case err != nil:
			c.finish(msg, err)
		case !c.expand(msg):
			if t.script == locksScript {
				msg = token
			}
			c.finish(msg, nil)
		case c.state.Load() != left || c.begun:
			x.again = append(x.again, c)
		}
	}
}

// reading separates the answers of a quick script from its errors.
func reading(msg wire.Reply) (wire.Reply, error) {
	if err := msg.Error(); err != nil {
		return wire.Reply{}, answered(err)
	}
	return msg, nil
}

// expand turns a quick request into the whole one, if the answer asks for that.
func (c *call) expand(msg wire.Reply) bool {
	if msg.IsInt64() {
		if n, _ := msg.ToInt64(); n != 2 {
			return false
		}
		c.request, c.begun = c.quick.then.whole(true), true
		return true
	}
	if s, err := msg.ToString(); err != nil || s != "" {
		return false
	}
	c.request = c.quick.then.whole(false)
	return true
}

func (t *batch) finish(err error) {
	for _, c := range t.calls {
		c.finish(wire.Reply{}, err)
	}
}

// finish hands out the answer, if somebody still waits for it.
func (c *call) finish(msg wire.Reply, err error) {
	if c.end(over) == left {
		return
	}
	c.msg, c.err = msg, err
	if c.then != nil {
		c.then(err)
	}
	if c.done != nil {
		c.done <- struct{}{}
	}
}

// end changes the state to over or left, unless it is one of them. It answers what it was.
func (c *call) end(state int32) int32 {
	for {
		was := c.state.Load()
		if was >= over || c.state.CompareAndSwap(was, state) {
			return was
		}
	}
}

// expire lets the maker of a call go without an answer.
func (c *call) expire(why error) {
	was := c.end(left)
	if was >= over {
		return
	}
	c.err = unanswered(was, why)
	c.done <- struct{}{}
}

// unanswered is the error of a call that was left in a state.
func unanswered(state int32, why error) error {
	switch {
	case state == queued && why == driver.ErrClosed:
		return errClosed
	case state == queued:
		return notSent(why)
	case why == driver.ErrClosed:
		return errCut
	}
	return fmt.Errorf("redis: %w", why)
}

// lost is the error of a call that was to be sent again when the connection was lost.
func (c *call) lost() error {
	if c.begun {
		return errors.New("redis: the connection was lost halfway")
	}
	return notSent(errors.New("the connection was lost"))
}
