package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
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
	script     *script
	keys, args []string
	whole      func(begun bool) request
}

// call is one request on its way. Whoever made it waits for done, or leaves.
type call struct {
	request
	until time.Time     // when its maker leaves at the latest
	done  chan struct{} // nil: its maker does all the work itself
	timer *time.Timer
	state atomic.Int32
	begun bool // the quick script did half of it

	msg rueidis.RedisMessage
	err error
}

const (
	queued int32 = iota
	sent
	left
)

// converse sends calls until all are answered: those for which the quick script was not enough, or which the server does
// not know the script of, are sent again.
func (ln *lane) converse(until time.Time, conn rueidis.CoreClient, live []*call) {
	x := exchange{bound: bound{context.Background(), until}}
	for len(live) > 0 {
		live = x.send(conn, live)
		if x.broken {
			ln.drop()
			for _, c := range live {
				c.finish(rueidis.RedisMessage{}, c.lost())
			}
			return
		}
	}
}

type exchange struct {
	bound   bound
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
func (x *exchange) send(conn rueidis.CoreClient, live []*call) []*call {
	batches, b := batches(live), conn.B()
	x.again = nil
	if len(batches) == 1 {
		t := batches[0]
		x.answer(t, conn.Do(x.bound, t.command(b, x.missing[t.script])))
		return x.again
	}
	cmds := make([]rueidis.Completed, len(batches))
	for i, t := range batches {
		cmds[i] = t.command(b, x.missing[t.script])
	}
	for i, r := range conn.DoMulti(x.bound, cmds...) {
		x.answer(batches[i], r)
	}
	return x.again
}

func batches(live []*call) []*batch {
	out := make([]*batch, 0, min(len(live), 8))
	var locks, unlocks *batch
	for _, c := range live {
		if c.quick == nil {
			out = append(out, &batch{script: c.script, calls: []*call{c}})
			continue
		}
		t := &locks
		if c.quick.script == unlocksScript {
			t = &unlocks
		}
		if *t == nil || len((*t).calls) == abreast {
			*t = &batch{script: c.quick.script, quick: true}
			out = append(out, *t)
		}
		(*t).calls = append((*t).calls, c)
	}
	return out
}

// command makes the command, with the whole script if the server did not know it by its hash.
func (t *batch) command(b rueidis.Builder, whole bool) rueidis.Completed {
	c := t.calls[0]
	if t.script == nil {
		return b.Arbitrary(c.args[0]).Keys(c.keys...).Args(c.args[1:]...).Build()
	}
	name, script := "EVALSHA", t.script.sha
	if whole {
		name, script = "EVAL", t.script.body
	}
	cmd := b.Arbitrary(name, script)
	if !t.quick {
		return cmd.Args(strconv.Itoa(len(c.keys))).Keys(c.keys...).Args(c.args...).Build()
	}
	cmd = cmd.Args(strconv.Itoa(len(t.calls) * len(c.quick.keys)))
	for _, c := range t.calls {
		cmd = cmd.Keys(c.quick.keys...)
	}
	for _, c := range t.calls {
		cmd = cmd.Args(c.quick.args...)
	}
	return cmd.Build()
}

func (x *exchange) answer(t *batch, r rueidis.RedisResult) {
	msg, err := r.ToMessage()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	refusal, refusing := rueidis.IsRedisErr(err)
	switch {
	case err == nil && t.quick:
		x.quickly(t, msg)
	case err == nil:
		t.calls[0].finish(msg, nil)
	case refusing && refusal.IsNoScript():
		if x.missing == nil {
			x.missing = map[*script]bool{}
		}
		x.missing[t.script] = true
		for _, c := range t.calls {
			if c.state.Load() != left {
				x.again = append(x.again, c)
			}
		}
	case refusing:
		// After a fail-over a Sentinel's client knows the new primary, but this connection is still the old one's.
		x.broken = x.broken || code(refusal.Error()) == "READONLY"
		t.finish(refused(refusal))
	default:
		x.broken = true
		t.finish(fmt.Errorf("redis: %w", err))
	}
}

// quickly hands out the answers of a quick script.
func (x *exchange) quickly(t *batch, msg rueidis.RedisMessage) {
	all, err := msg.ToArray()
	if err != nil || len(all) != len(t.calls) {
		t.finish(fmt.Errorf("redis: %d answers to %d requests: %w", len(all), len(t.calls), err))
		return
	}
	for i, c := range t.calls {
		switch msg, err := reading(all[i]); {
		case err != nil:
			c.finish(msg, err)
		case !c.expand(msg):
			c.finish(msg, nil)
		case c.state.Load() != left || c.begun:
			x.again = append(x.again, c)
		}
	}
}

// reading separates the answers of a quick script from its errors.
func reading(msg rueidis.RedisMessage) (rueidis.RedisMessage, error) {
	if refusal, ok := rueidis.IsRedisErr(msg.Error()); ok {
		return rueidis.RedisMessage{}, refused(refusal)
	}
	return msg, nil
}

// expand turns a quick request into the whole one, if the answer asks for that.
func (c *call) expand(msg rueidis.RedisMessage) bool {
	if msg.IsInt64() {
		if n, _ := msg.ToInt64(); n != 2 {
			return false
		}
		c.request, c.begun = c.quick.whole(true), true
		return true
	}
	if s, err := msg.ToString(); err != nil || s != "" {
		return false
	}
	c.request = c.quick.whole(false)
	return true
}

func (t *batch) finish(err error) {
	for _, c := range t.calls {
		c.finish(rueidis.RedisMessage{}, err)
	}
}

func (c *call) finish(msg rueidis.RedisMessage, err error) {
	c.msg, c.err = msg, err
	if c.done != nil {
		c.done <- struct{}{}
	}
}

// lost is the error of a call that was to be sent again when the connection was lost.
func (c *call) lost() error {
	if c.begun {
		return errors.New("redis: the connection was lost halfway")
	}
	return notSent(errors.New("the connection was lost"))
}
