package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// Where the server allows no scripts, the steps for mutexes are optimistic transactions: WATCH the keys, read them, and change
// them with MULTI … EXEC, which does nothing if one of them was changed meanwhile; then all begins again. Each takes a
// connection of the client's pool for itself. The layout is that of the scripts, and clients with and without scripts exclude
// each other, count tokens together and undo late requests in the same way. A place does not get in line.

// transaction is one try.
type transaction struct {
	conn  wire.Conn
	until time.Time
}

// brokenError is the error of a connection that failed before anything was done.
type brokenError struct{ error }

func (e brokenError) Is(target error) bool { return target == driver.ErrNotDone }
func (e brokenError) Unwrap() error        { return e.error }

// errChanged says that EXEC did nothing, since a key was changed.
var errChanged = errors.New("redis: other clients were quicker each time")

// transact takes a connection and runs step until it answers something else than errChanged. When ctx ends, step goes on
// alone.
func transact[T any](ctx context.Context, l *lanes, limit time.Duration, key string, step func(t *transaction) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, notSent(context.Cause(ctx))
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return none, errClosed
	}
	l.wg.Add(1)
	l.mu.Unlock()
	type outcome struct {
		x   T
		err error
	}
	done := make(chan outcome, 1)
	until := time.Now().Add(min(limit, maxLimit))
	go func() {
		defer l.wg.Done()
		conn, err := l.redis.Session(key)
		if err != nil {
			done <- outcome{err: notSent(err)}
			return
		}
		stop := context.AfterFunc(l.life, conn.Close)
		var x T
		var broken brokenError
		again := true
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			x, err = step(&transaction{conn, until})
			if again && errors.As(err, &broken) && stop() { // it lay idle in the pool, perhaps for long: take another one
				again = false
				conn.Close()
				if conn, err = l.redis.Session(key); err != nil {
					done <- outcome{err: notSent(err)}
					return
				}
				stop = context.AfterFunc(l.life, conn.Close)
				continue
			}
			if err != errChanged {
				break
			}
			if time.Until(until) < pause || ctx.Err() != nil || l.life.Err() != nil {
				err = fmt.Errorf("%w: %w", err, driver.ErrNotDone)
				break
			}
			time.Sleep(pause/2 + rand.N(pause))
		}
		if stop() && (err == nil || isNotDone(err) && !errors.As(err, &broken)) {
			conn.Back()
		} else {
			conn.Close()
		}
		done <- outcome{x, err}
	}()
	select {
	case o := <-done:
		if o.err != nil && !isNotDone(o.err) && l.isClosed() {
			o.err = errCut
		}
		return o.x, o.err
	case <-ctx.Done():
		return none, fmt.Errorf("redis: %w", context.Cause(ctx))
	}
}

// read watches keys and reads with further commands. Its errors had no effect. A WRONGTYPE is a null.
func (t *transaction) read(keys []string, cmds ...wire.Command) ([]wire.Reply, error) {
	all := append([]wire.Command{{Name: "WATCH", Keys: keys}}, cmds...)
	out := make([]wire.Result, len(all))
	t.conn.Do(t.until, all, out)
	replies := make([]wire.Reply, len(all))
	for i, r := range out {
		err := r.Err
		if err != nil {
			err = answered(err)
		}
		if err != nil && !errors.Is(err, errWrongType) {
			if isNotDone(err) {
				t.forget()
			}
			if !isNotDone(err) {
				err = brokenError{err}
			}
			return nil, err
		}
		replies[i] = r.Reply
	}
	return replies[1:], nil
}

// forget ends the watching of keys, since nothing is to be done.
func (t *transaction) forget() {
	t.conn.Do(t.until, []wire.Command{{Name: "UNWATCH"}}, make([]wire.Result, 1))
}

// write changes the keys, and then tells others, whatever comes of that. It answers what EXEC did.
func (t *transaction) write(tell []wire.Command, cmds ...wire.Command) ([]wire.Reply, error) {
	all := append([]wire.Command{{Name: "MULTI"}}, cmds...)
	all = append(append(all, wire.Command{Name: "EXEC"}), tell...)
	out := make([]wire.Result, len(all))
	t.conn.Do(t.until, all, out)
	exec := out[len(cmds)+1]
	switch {
	case exec.Err != nil:
		for _, r := range out[:len(cmds)+1] { // why EXEC refused
			var refusal wire.Refusal
			if errors.As(r.Err, &refusal) {
				err := refused(refusal)
				if !isNotDone(err) {
					err = fmt.Errorf("%w: %w", err, driver.ErrNotDone)
				}
				return nil, err
			}
		}
		return nil, answered(exec.Err)
	case exec.Reply.IsNull():
		return nil, errChanged
	}
	replies, err := exec.Reply.ToArray()
	for _, r := range replies {
		if err == nil {
			err = r.Error()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("redis: a transaction went wrong halfway: %w", err)
	}
	return replies, nil
}

func cmd(name string, key string, args ...string) wire.Command {
	return wire.Command{Name: name, Keys: []string{key}, Args: args}
}

// clock reads the answer of TIME, in microseconds.
func clock(r wire.Reply) (int64, error) {
	parts, err := r.AsStrSlice()
	if err != nil || len(parts) != 2 {
		return 0, fmt.Errorf("redis: an unknown answer to TIME: %w", driver.ErrNotDone)
	}
	s, err := strconv.ParseInt(parts[0], 10, 64)
	us, err2 := strconv.ParseInt(parts[1], 10, 64)
	if errors.Join(err, err2) != nil {
		return 0, fmt.Errorf("redis: an unknown answer to TIME: %w", driver.ErrNotDone)
	}
	return s*1_000_000 + us, nil
}

// record writes tokens as the scripts do: the last one, and the first one of the present hold.
func (k keys) record(last, first, now int64) wire.Command {
	text := number(last)
	if first != last {
		text += " " + number(first)
	}
	keep := 86_400_001 + max(0, last-now+999)/1000
	return cmd("SET", k.token(), text, "PX", strconv.FormatInt(keep, 10))
}

// lastToken is the last one that a record reserved.
func lastToken(record string) int64 {
	end := strings.IndexAny(record, " +")
	if end < 0 {
		end = len(record)
	}
	n, _ := strconv.ParseInt(record[:end], 10, 64)
	return n
}

// fields reads the answer of HGETALL.
func fields(r wire.Reply) map[string]string {
	flat, _ := r.AsStrSlice()
	out := map[string]string{}
	for f := range slices.Chunk(flat, 2) {
		if len(f) == 2 {
			out[f[0]] = f[1]
		}
	}
	return out
}

// use says what a main key is used as, as family.lua does; "" if it is not there.
func use(kind string, hash map[string]string, text string) string {
	switch _, rw := hash["mode"]; {
	case kind == "none":
		return ""
	case kind == "hash" && rw:
		return "read"
	case kind == "hash":
		for f := range hash {
			if strings.Contains(f, ":") {
				return "exclusive"
			}
		}
	case kind == "string":
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return "permits"
		}
	}
	return "type:" + kind
}

// attemptByTransaction is attempt without scripts.
func (p *place) attemptByTransaction(ctx context.Context, span int) (driver.Grant, *held, error) {
	why := p.d.modes.get().NoScripts
	if p.r.Kind != driver.Exclusive || p.d.opts.Replicas > 0 {
		return driver.Grant{}, nil, errNoScripts(why)
	}
	k, counter := p.k, p.d.counter(p.k, p.r.Kind)
	if counter != nil {
		span = 1
	}
	before := p.open
	p.open = true
	sent := driver.Now()
	type got struct {
		grant driver.Grant
		taken *held
	}
	x, err := transact(ctx, p.d.lanes, p.r.TTL, k.main, func(t *transaction) (got, error) {
		keys := append([]string{k.main, k.due(), k.lock(), k.token()}, counter...)
		reads := []wire.Command{{Name: "TIME"}, cmd("TYPE", k.main), cmd("HGETALL", k.main), cmd("GET", k.main), cmd("PTTL", k.main),
			cmd("ZSCORE", k.due(), "!"+p.r.ID), cmd("HGET", k.lock(), "kind"), cmd("GET", k.token())}
		if counter != nil {
			reads = append(reads, cmd("GET", counter[0]))
		}
		if !p.d.lanes.cluster {
			reads = append(reads, cmd("GET", clockKey)) // not watched: a stamp on this name changes the lock too
		}
		r, err := t.read(keys, reads...)
		if err != nil {
			return got{}, err
		}
		end := func(err error) (got, error) {
			t.forget()
			return got{}, err
		}
		now, err := clock(r[0])
		if err != nil {
			return end(err)
		}
		kind, _ := r[1].ToString()
		hash := fields(r[2])
		text, _ := r[3].ToString()
		left, _ := r[4].AsInt64()
		record, _ := r[7].ToString()
		if !r[5].IsNull() {
			return end(fmt.Errorf("redis: this hold was given up before its request arrived: %w", driver.ErrNotDone))
		}
		if other, err := r[6].ToString(); err == nil {
			return end(p.mismatch(other, 0))
		}
		switch have := use(kind, hash, text); {
		case have == "":
		case have != "exclusive":
			return end(p.mismatch(have, 0))
		case hash[p.r.ID] != "":
			if left < p.r.TTL.Milliseconds() {
				if _, err := t.write(nil, cmd("PEXPIRE", k.main, millis(p.r.TTL))); err != nil {
					return got{}, err
				}
			} else {
				t.forget()
			}
			return got{grant: driver.Grant{Sent: sent, TTL: p.r.TTL, Token: tokenOf(hash[p.r.ID], record), Span: 1}}, nil
		default:
			taken := &held{ahead: -1, remaining: remaining(left)}
			if left == -1 {
				taken.remaining = -1
			}
			for f := range hash {
				if strings.Contains(f, ":") {
					taken.owners = append(taken.owners, f)
				}
			}
			taken.holders = len(taken.owners)
			t.forget()
			return got{taken: taken}, nil
		}
		first := max(now, lastToken(record)+1)
		if !p.d.lanes.cluster {
			if stamped, _ := r[len(r)-1].ToString(); len(stamped) < 18 {
				first = max(first, lastToken(stamped)+1)
			}
		}
		last := first + int64(span) - 1
		writes := []wire.Command{cmd("HSET", k.main, p.r.ID, "1"), cmd("PEXPIRE", k.main, millis(p.r.TTL))}
		if counter != nil {
			n, _ := r[8].AsInt64()
			first, last = n+1, n+1
			writes = append(writes, cmd("INCR", counter[0]))
		}
		if last < first || first < 0 {
			return end(fmt.Errorf("redis: the tokens of this name are used up: %w", driver.ErrNotDone))
		}
		if _, err := t.write(nil, append(writes, k.record(last, first, now))...); err != nil {
			return got{}, err
		}
		return got{grant: driver.Grant{Sent: sent, TTL: p.r.TTL, Token: first, Span: span}}, nil
	})
	switch {
	case err == nil && x.taken == nil:
		return x.grant, nil, nil
	case err == nil || isNotDone(err) || errors.Is(err, driver.ErrMismatch):
		p.open = before
	}
	return driver.Grant{}, x.taken, err
}

// finishByTransaction is finish without scripts.
func (d *Driver) finishByTransaction(ctx context.Context, e ending) (bool, error) {
	h, k := e.hold, d.keys(e.hold.Name)
	if h.Kind.Family() != driver.Exclusive {
		return false, errNoScripts(d.modes.get().NoScripts)
	}
	return transact(ctx, d.lanes, max(h.TTL, minLimit), k.main, func(t *transaction) (bool, error) {
		r, err := t.read([]string{k.main, k.due(), k.line(), k.queue(), k.token()}, wire.Command{Name: "TIME"}, cmd("HGET", k.main, h.ID),
			cmd("GET", k.token()), cmd("PTTL", k.due()), cmd("ZRANGE", k.line(), "0", "0"), cmd("LINDEX", k.queue(), "0"))
		if err != nil {
			return false, err
		}
		now, err := clock(r[0])
		if err != nil {
			t.forget()
			return false, err
		}
		field, gone := r[1].ToString()
		record, _ := r[2].ToString()
		first, last := tokenOf(field, record), lastToken(record)
		there := gone == nil && (h.Token == 0 || first == 0 || first == h.Token)
		var writes []wire.Command
		if e.refuse > 0 {
			writes = append(writes, cmd("ZADD", k.due(), strconv.FormatInt(now/1000+e.refuse.Milliseconds(), 10), "!"+h.ID))
			if left, _ := r[3].AsInt64(); left < e.refuse.Milliseconds() {
				writes = append(writes, cmd("PEXPIRE", k.due(), millis(e.refuse)))
			}
		}
		var tell []wire.Command
		if there {
			// The next tokens begin behind the last one used, unless it was raised since.
			if h.Token != 0 && first != 0 && !strings.Contains(record, "+") && e.last >= first && e.last < last {
				writes = append(writes, k.record(e.last, first, now))
			}
			if e.keep > 0 {
				writes = append(writes, cmd("HDEL", k.main, h.ID), cmd("HSET", k.main, h.ID+":kept", "1"), cmd("PEXPIRE", k.main, millis(e.keep)))
			} else {
				writes = append(writes, cmd("DEL", k.main))
			}
			tell = d.news(k, r[4], r[5])
		}
		if len(writes) == 0 {
			t.forget()
			return false, nil
		}
		_, err = t.write(tell, writes...)
		return there && err == nil, err
	})
}

// news are the messages of a release: to whoever listens, and to the first in both lines.
func (d *Driver) news(k keys, line, queue wire.Reply) []wire.Command {
	publish := func(channel, payload string) []wire.Command {
		out := []wire.Command{{Name: "PUBLISH", Args: []string{channel, payload}}}
		if d.lanes.cluster && foreign(channel) {
			out = append(out, wire.Command{Name: "SPUBLISH", Args: []string{channel, payload}})
		}
		return out
	}
	if !d.modes.messages() {
		return nil
	}
	tell := publish(k.lockChannel(), "0")
	if first, _ := line.AsStrSlice(); len(first) > 0 {
		tell = append(tell, publish(wakePrefix+client(first[0]), first[0])...)
	}
	if head, err := queue.ToString(); err == nil {
		tell = append(tell, publish(wakePrefix+client(head), head)...)
		tell = append(tell, publish(k.lockChannel()+":"+head, "0")...)
	}
	return tell
}

// renewByTransaction is renew without scripts, for one hold.
func (d *Driver) renewByTransaction(ctx context.Context, h driver.Hold) error {
	k := d.keys(h.Name)
	if h.Kind.Family() != driver.Exclusive || d.opts.Replicas > 0 {
		return errNoScripts(d.modes.get().NoScripts)
	}
	_, err := transact(ctx, d.lanes, max(h.TTL, minLimit), k.main, func(t *transaction) (bool, error) {
		r, err := t.read([]string{k.main}, cmd("HEXISTS", k.main, h.ID), cmd("PTTL", k.main))
		if err != nil {
			return false, err
		}
		n, _ := r[0].AsInt64()
		left, _ := r[1].AsInt64()
		switch {
		case n != 1:
			t.forget()
			return false, driver.ErrNotHeld
		case left == -1 || left >= h.TTL.Milliseconds():
			t.forget()
			return true, nil
		}
		_, err = t.write(nil, cmd("PEXPIRE", k.main, millis(h.TTL)))
		return err == nil, err
	})
	return err
}

// inspectByTransaction is Inspect without scripts: of mutexes.
func (d *Driver) inspectByTransaction(ctx context.Context, name string) (driver.Record, error) {
	k := d.keys(name)
	out, err := transact(ctx, d.lanes, inspectLimit, k.main, func(t *transaction) (driver.Record, error) {
		out := driver.Record{Name: name}
		r, err := t.read([]string{k.main}, cmd("HGETALL", k.main), cmd("PTTL", k.main), cmd("GET", k.token()))
		if err != nil {
			return out, err
		}
		hash := fields(r[0])
		left, _ := r[1].AsInt64()
		record, _ := r[2].ToString()
		out.Waiters = -1 // those without scripts are in no line
		if _, rw := hash["mode"]; rw {
			t.forget()
			return out, errNoScripts(d.modes.get().NoScripts)
		}
		for owner := range hash {
			if !strings.Contains(owner, ":") {
				continue
			}
			h := driver.HeldBy{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: owner, Permits: 1}}
			if h.Remaining = remaining(left); left == -1 {
				h.Remaining = -1
			}
			if !strings.HasSuffix(owner, ":kept") {
				h.Token = tokenOf(hash[owner], record)
			}
			out.Holds = append(out.Holds, h)
		}
		t.forget()
		return out, nil
	})
	if err != nil {
		return out, err
	}
	for i := range out.Holds {
		h := &out.Holds[i]
		people, ours := d.people.ask(ctx, h.ID)
		h.Who = people[client(h.ID)].who
		if !ours {
			h.Token = 0 // another client's hold has none of the record's
		}
	}
	return out, nil
}

// without reports whether err says that there are no scripts, and remembers it.
func (d *Driver) without(err error) bool {
	if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	var none *noScriptsError
	if !errors.As(err, &none) {
		return false
	}
	d.modes.noScripts(none.why)
	return true
}
