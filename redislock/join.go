package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// maxJoin bounds how long one step may keep the server from others.
const maxJoin = 64

// TryAll gets several free mutexes in one step. It is not supported (errors.ErrUnsupported) over the counter of Redisson's
// fenced locks, with replicas to confirm, for more than 64 names, for names on which more goes on than that somebody may
// hold them, and in a cluster for names without the same part in braces.
func (d *Driver) TryAll(ctx context.Context, places []driver.Place) ([]driver.Grant, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	alone := fmt.Errorf("redis: these names cannot be taken in one step: %w", errors.ErrUnsupported)
	if d.opts.Fenced || d.opts.Replicas > 0 || len(places) > maxJoin {
		return nil, alone
	}
	ps := make([]*place, len(places))
	r := request{script: joinScript}
	limit := time.Duration(0)
	for i, x := range places {
		p, ok := x.(*place)
		if !ok || p.d != d || p.r.Kind != driver.Exclusive || p.over {
			return nil, alone
		}
		if d.lanes.cluster && (hashTag(p.k.main) == "" || i > 0 && hashTag(p.k.main) != hashTag(ps[0].k.main)) {
			return nil, alone
		}
		ps[i] = p
		limit = max(limit, p.r.TTL)
		r.keys = append(r.keys, p.k.main, p.k.due(), p.k.line(), p.k.lock(), p.k.token())
		r.args = append(r.args, p.r.ID, millis(p.r.TTL))
	}
	d.people.here(ps[0].r.ID, ps[0].r.Who)
	set := func(open bool) {
		for _, p := range ps {
			p.open = open
		}
	}
	set(true)
	sent := driver.Now()
	msg, err := d.lanes.run(ctx, limit, r)
	if err != nil {
		if isNotDone(err) {
			set(false)
		}
		return nil, err
	}
	a, err := msg.ToArray()
	if err != nil || len(a) == 0 {
		return nil, fmt.Errorf("redis: an empty answer: %w", err)
	}
	switch first, _ := a[0].ToString(); {
	case first == "alone":
		set(false)
		return nil, alone
	case first == "held" && len(a) == 4:
		set(false)
		which, _ := a[1].ToInt64()
		left, _ := a[2].ToInt64()
		owner, _ := a[3].ToString()
		if which < 1 || int(which) > len(ps) {
			return nil, fmt.Errorf("redis: name %d of %d is held", which, len(ps))
		}
		people, _ := d.people.ask(ctx, owner)
		e := &driver.HeldError{Ahead: -1, By: holder(driver.Exclusive, ps[which-1].r.Name, owner)}
		e.By.Who = people[client(owner)].who
		if e.Remaining = remaining(left); left < 0 {
			e.Remaining = -1
		}
		e.By.Remaining = e.Remaining
		return nil, e
	case len(a) != len(ps):
		return nil, fmt.Errorf("redis: %d answers for %d names", len(a), len(ps))
	}
	gs := make([]driver.Grant, len(ps))
	for i, p := range ps {
		text, _ := a[i].ToString()
		token, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redis: the token %q is not a number", text)
		}
		gs[i] = driver.Grant{Sent: sent, TTL: p.r.TTL, Token: token, Span: 1}
	}
	for _, p := range ps {
		p.end()
	}
	return gs, nil
}

// hashTag is what puts a key into its slot, if it has braces for that.
func hashTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, ok := strings.Cut(rest, "}")
	if !ok {
		return ""
	}
	return tag
}
