package redislock

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// place is one contender.
type place struct {
	d      *Driver
	r      driver.Request
	k      keys
	member string // its name in line and in a hash
	quick  quick

	// Only Try and Leave touch these, and they do not overlap.
	channels []string // subscribed to
	inLine   bool     // may be in line
	open     bool     // a request may be under way, or have won something
	over     bool     // left
	polled   bool     // the poller may know it

	mu    sync.Mutex // held while Notify runs, so that it does not run after Leave or Release has returned
	ended bool
	until time.Time // until when it holds at least, if it is in ear.holders
}

const (
	longBeat  = 5 * time.Minute  // how long a place in line counts as alive; the process's subscription says more
	rwBeat    = 30 * time.Second // of a place for a read-write lock: a waiting writer stops others
	fairBeat  = 15 * time.Second // of a place in Redisson's queue
	deafAgain = time.Second      // besides the poller
)

func newPlace(d *Driver, r driver.Request) *place {
	r.Value = bytes.Clone(r.Value)
	p := &place{d: d, r: r, k: d.keys(r.Name), member: r.ID}
	switch {
	case r.Kind == driver.Write:
		p.member += ":write"
	case r.Kind == driver.Permits && r.Permits > 1:
		p.member += "*" + strconv.Itoa(r.Permits)
	}
	return p
}

// rwBeat is how long a place for a read-write lock counts as alive. In a cluster, and without messages, nobody else can see
// whether its process is.
func (p *place) rwBeat() time.Duration {
	if p.d.lanes.cluster || !p.d.modes.messages() {
		return min(rwBeat, max(p.r.TTL, 3*time.Second))
	}
	return rwBeat
}

// Try makes one attempt.
func (p *place) Try(ctx context.Context, span int) (driver.Grant, error) {
	switch {
	case p.over:
		return driver.Grant{}, fmt.Errorf("redis: the place was left: %w", driver.ErrNotDone)
	case span < 1:
		return driver.Grant{}, invalid("a grant has at least one token, not %d", span)
	}
	keeps := span > 1 && p.r.Kind == driver.Exclusive
	if keeps {
		p.holds(p.r.TTL)
		p.d.ear.hold(p)
	}
	g, err := p.try(ctx, span)
	if keeps && err != nil {
		p.d.ear.release(p.r.ID)
	}
	switch {
	case err == nil:
		p.end()
	case p.r.Wait && !p.inLine && !p.open: // there will be no Leave
		p.unpoll()
		p.d.ear.forget(p, p.channels)
		p.channels = nil
	}
	return g, err
}

// try asks the store. A place that waits is in line before it listens, and asks once more after it listens, so that no
// release falls between.
func (p *place) try(ctx context.Context, span int) (driver.Grant, error) {
	d := p.d
	wake := d.people.here(p.r.ID, p.r.Who)
	listening, deaf := true, !d.modes.messages()
	if p.r.Wait {
		d.speak(wake)
		d.ear.enter(p)
		listening = d.ear.listens(append(p.channels, wake)...)
	}
	g, held, err := p.attempt(ctx, span)
	if held != nil || p.inLine {
		d.busy.note(p.k.main)
	}
	if held == nil {
		return g, err
	}
	people, ours := d.people.ask(ctx, held.owners...)
	if !p.r.Wait {
		return driver.Grant{}, p.refusal(held, people, false)
	}
	p.inLine = true
	if (!ours || !d.modes.scripts()) && len(p.channels) == 0 {
		// Clients of another make know nothing of pawl's line.
		c := p.k.channel(p.r.Kind)
		if p.r.Kind == driver.Fair {
			c += ":" + p.r.ID
		}
		p.channels = []string{c}
		listening = false
	}
	if !listening && !deaf {
		deaf = !d.ear.wait(ctx, p, append(p.channels, wake)...)
		if ctx.Err() == nil {
			if g, held, err = p.attempt(ctx, span); held == nil {
				return g, err
			}
			people, _ = d.people.ask(ctx, held.owners...)
		}
	}
	if deaf {
		p.polled = true
		d.poller.add(p)
	}
	return driver.Grant{}, p.refusal(held, people, deaf)
}

// refusal makes the error of a taken name.
func (p *place) refusal(h *held, people map[string]person, deaf bool) error {
	e := &driver.HeldError{Remaining: h.remaining, Ahead: h.ahead, Again: h.again}
	if len(h.owners) > 0 && h.owners[0] != "?" && h.holders > 0 {
		e.By = holder(p.r.Kind, p.r.Name, h.owners[0])
		e.By.Who = people[client(h.owners[0])].who
		e.By.Remaining = h.remaining
		e.By.Value = h.value
	}
	if p.r.Wait {
		beat := time.Duration(0)
		switch p.r.Kind {
		case driver.Fair:
			beat = fairBeat / 3
		case driver.Read, driver.Write:
			beat = p.rwBeat() / 3
		}
		if deaf {
			beat = deafAgain
		}
		if beat > 0 && (e.Again == 0 || e.Again > beat) {
			e.Again = beat
		}
		if e.Again > 0 && e.Remaining > 0 && e.Remaining < e.Again {
			e.Again = e.Remaining + time.Millisecond
		}
	}
	return e
}

// holder is a hold as its owner string shows it.
func holder(kind driver.Kind, name, owner string) driver.HeldBy {
	h := driver.Hold{Kind: kind, Name: name, ID: owner, Permits: 1}
	if kind == driver.Fair {
		h.Kind = driver.Exclusive
	}
	if kind == driver.Read || kind == driver.Write {
		h.Kind = driver.Read
		if id, ok := strings.CutSuffix(owner, ":write"); ok {
			h.Kind, h.ID = driver.Write, id
		}
	}
	return driver.HeldBy{Hold: h}
}

// held is what the store answers when the name is taken.
type held struct {
	remaining, again time.Duration
	ahead            int
	owners           []string // who holds, then who is ahead in a fair queue; "?": others too
	holders          int      // how many of owners hold
	value            []byte
}

// remaining is what PTTL says. In its last millisecond a key has 0 left, which would mean that it is not known.
func remaining(left int64) time.Duration { return time.Duration(max(left, 1)) * time.Millisecond }

// attempt asks the store once. Exactly one of the three is the answer: a grant, a *held, an error.
func (p *place) attempt(ctx context.Context, span int) (driver.Grant, *held, error) {
	r, k := &p.r, p.k
	if !p.d.modes.scripts() {
		return p.attemptByTransaction(ctx, span)
	}
	fenced := p.d.counter(k, r.Kind) != nil
	if fenced || r.Kind.Shared() {
		span = 1 // Redisson counts one by one, and nobody hands on a share
	}
	var req request
	confirm := p.d.opts.Replicas > 0
	if r.Kind == driver.Exclusive && span == 1 && !fenced && !confirm && !p.d.lanes.cluster && !p.d.busy.lately(k.main) {
		if p.quick.script == nil { // once: an earlier request may still be on its way with it
			p.quick = quick{script: locksScript, keys: k.toLock(), nkeys: 4, args: [2]string{r.ID}, nargs: 1, ttl: millis(r.TTL), then: p}
		}
		req.quick = &p.quick
	} else {
		req = p.request(span)
	}
	before := p.open
	p.open = true
	sent := driver.Now()
	var msg wire.Reply
	var err error
	if confirm {
		msg, err = p.confirmed(ctx, req)
	} else {
		msg, err = p.d.lanes.run(ctx, r.TTL, req)
	}
	if err != nil {
		if isNotDone(err) {
			p.open = before
		}
		if p.d.without(err) {
			return p.attemptByTransaction(ctx, span)
		}
		return driver.Grant{}, nil, err
	}
	p.open = before
	if msg.IsArray() {
		return p.answer(msg, sent)
	}
	return p.granted(msg, sent, span)
}

// whole is what follows a quick attempt that was not enough.
func (p *place) whole(bool) request {
	p.d.busy.note(p.k.main)
	return p.request(1)
}

// request asks for the hold, whatever goes on at its name.
func (p *place) request(span int) request {
	r, k := &p.r, p.k
	wait := ""
	if r.Wait {
		wait = "1"
	}
	ttl, g, n := millis(r.TTL), millis(grace(r.Kind)), strconv.Itoa(span)
	switch r.Kind {
	case driver.Read, driver.Write:
		write := ""
		if r.Kind == driver.Write {
			write = "1"
		}
		return request{
			script: rwScript,
			keys:   []string{k.main, k.line(), k.due(), k.lock(), k.token(), k.held(), k.readHold(r.ID), k.set()},
			args:   []string{r.ID, ttl, n, wait, g, millis(p.rwBeat()), write},
		}
	case driver.Permits:
		args := []string{r.ID, ttl, wait, g, millis(longBeat), strconv.Itoa(r.Permits), strconv.Itoa(r.Limit), k.semChannel()}
		return request{
			script: permitsScript,
			keys:   []string{k.main, k.set(), k.line(), k.due(), k.lock(), k.token(), k.held(), k.permits()},
			args:   append(args, permitNames(r.ID, r.Permits)...),
		}
	case driver.Fair:
		keys := []string{k.main, k.queue(), k.queueDue(), k.line(), k.due(), k.lock(), k.token(), k.set()}
		return request{
			script: fairScript,
			keys:   append(keys, p.d.counter(k, r.Kind)...),
			args:   []string{r.ID, ttl, n, wait, millis(fairBeat), k.lockChannel()},
		}
	case driver.Leader, driver.Once:
		return request{
			script: lockScript,
			keys:   []string{k.lock(), k.line(), k.due(), k.main, k.token(), k.set()},
			args:   []string{r.ID, ttl, n, wait, r.Kind.String(), string(r.Value)},
		}
	}
	keys := []string{k.main, k.line(), k.due(), k.lock(), k.token(), k.set()}
	return request{
		script: lockScript,
		keys:   append(keys, p.d.counter(k, r.Kind)...),
		args:   []string{r.ID, ttl, n, wait, "", ""},
	}
}

func (p *place) granted(msg wire.Reply, sent driver.Instant, span int) (driver.Grant, *held, error) {
	p.open = true
	text, err := msg.ToString()
	if err != nil {
		return driver.Grant{}, nil, fmt.Errorf("redis: %w", err)
	}
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return driver.Grant{}, nil, fmt.Errorf("redis: the token %q is not a number", text)
	}
	return driver.Grant{Sent: sent, TTL: p.r.TTL, Token: token, Span: span}, nil, nil
}

// answer translates an answer other than a grant.
func (p *place) answer(msg wire.Reply, sent driver.Instant) (driver.Grant, *held, error) {
	a, err := msg.ToArray()
	if err != nil || len(a) == 0 {
		return driver.Grant{}, nil, fmt.Errorf("redis: an empty answer: %w", err)
	}
	text := func(i int) string {
		if i >= len(a) {
			return ""
		}
		s, _ := a[i].ToString()
		return s
	}
	count := func(i int) int64 {
		if i >= len(a) {
			return 0
		}
		n, _ := a[i].ToInt64()
		return n
	}
	switch text(0) {
	case "again":
		return p.granted(a[1], sent, 1)
	case "held":
		h := &held{ahead: int(count(3)), again: time.Duration(count(2)) * time.Millisecond}
		switch left := count(1); {
		case left >= 0:
			h.remaining = remaining(left)
		case left == -1:
			h.remaining = -1
		}
		h.owners, _ = a[4].AsStrSlice()
		h.holders = len(h.owners)
		if v := text(5); v != "" {
			h.value = []byte(v)
		}
		if len(a) > 6 {
			before, _ := a[6].AsStrSlice()
			h.owners = append(h.owners, before...)
		}
		return driver.Grant{}, h, nil
	case "done":
		p.inLine = false
		return driver.Grant{}, nil, &driver.DoneError{Value: []byte(text(2)), Remaining: time.Duration(count(1)) * time.Millisecond}
	case "mismatch":
		return driver.Grant{}, nil, p.mismatch(text(1), int(count(2)))
	case "gone":
		return driver.Grant{}, nil, fmt.Errorf("redis: this hold was given up before its request arrived: %w", driver.ErrNotDone)
	}
	return driver.Grant{}, nil, fmt.Errorf("redis: an unknown answer %q", text(0))
}

var kinds = map[string]driver.Kind{"exclusive": driver.Exclusive, "read": driver.Read, "write": driver.Write, "permits": driver.Permits,
	"leader": driver.Leader, "once": driver.Once}

func (p *place) mismatch(have string, limit int) error {
	e := &driver.MismatchError{Have: kinds[have], Want: p.r.Kind}
	if e.Have == driver.Permits && p.r.Kind == driver.Permits {
		e.HaveLimit, e.WantLimit = limit, p.r.Limit
	}
	if e.Have != 0 {
		return e
	}
	what := strings.TrimPrefix(have, "type:")
	return fmt.Errorf("redis key %q belongs to something else (a %s that is no lock of this layout): %w", p.k.main, what, e)
}

// Leave gives the place up.
func (p *place) Leave(ctx context.Context) error {
	p.end()
	if !p.inLine && !p.open {
		p.over = true
		return nil
	}
	e := ending{hold: p.r.Hold, leave: true}
	e.hold.Token = 0
	if p.open {
		e.refuse = p.r.TTL + late
	}
	if _, err := p.d.finish(ctx, e); err != nil {
		return err
	}
	p.over, p.inLine, p.open = true, false, false
	return nil
}

// end ends all news for the place.
func (p *place) end() {
	p.mu.Lock()
	ended := p.ended
	p.ended = true
	p.mu.Unlock()
	if !ended && p.r.Wait {
		p.unpoll()
		p.d.ear.forget(p, p.channels)
	}
}

func (p *place) unpoll() {
	if p.polled {
		p.polled = false
		p.d.poller.forget(p)
	}
}

// heard reports that the name may have got free.
func (p *place) heard() {
	select {
	case <-p.d.ear.done:
		return
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.r.Notify(driver.Changed)
	}
}

// wanted reports that others wait for what p holds.
func (p *place) wanted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		p.r.Notify(driver.Wanted)
	}
}

// holds says that p holds for so long from now at least, or with 0 no longer.
func (p *place) holds(ttl time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
	if ttl > 0 {
		p.until = time.Now().Add(ttl)
	}
}

func (p *place) runOut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().After(p.until)
}

// after is heard, a little later.
func (p *place) after(d time.Duration) { time.AfterFunc(d, p.heard) }
