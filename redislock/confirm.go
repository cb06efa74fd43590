package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// fewError says that a request was carried out, but that too few replicas have got it.
type fewError struct{ have, want int }

func (e *fewError) Error() string {
	return fmt.Sprintf("only %d of %d replicas confirmed it in time (Options.Replicas)", e.have, e.want)
}

// patience is how long replicas have to confirm a request about a hold of that TTL.
func patience(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 50*time.Millisecond), time.Second)
}

// confirm sends a request and, if its answer is one that changed something, waits on the same connection until n replicas
// have got that. An error that matches *fewError comes with the answer.
func (l *lanes) confirm(ctx context.Context, limit time.Duration, r request, n int, changed func(wire.Reply) bool) (wire.Reply, error) {
	if ctx.Err() != nil {
		return wire.Reply{}, notSent(context.Cause(ctx))
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return wire.Reply{}, errClosed
	}
	l.wg.Add(1)
	l.mu.Unlock()
	done := make(chan answer, 1)
	go func() {
		defer l.wg.Done()
		conn, err := l.redis.Session(r.keys[0])
		if err != nil {
			done <- answer{err: notSent(err)}
			return
		}
		stop := context.AfterFunc(l.life, conn.Close)
		msg, err := l.converseAlone(conn, time.Now().Add(min(limit, maxLimit)), r, n, patience(limit), changed)
		var few *fewError
		if stop() && (err == nil || errors.As(err, &few)) {
			conn.Back()
		} else {
			conn.Close() // perhaps to a server that is the primary no more
		}
		done <- answer{msg, err}
	}()
	select {
	case a := <-done:
		if a.err != nil && !isNotDone(a.err) && l.isClosed() {
			a.err = errCut
		}
		return a.msg, a.err
	case <-ctx.Done():
		return wire.Reply{}, fmt.Errorf("redis: %w", context.Cause(ctx))
	}
}

func (l *lanes) converseAlone(conn wire.Conn, until time.Time, r request, n int, wait time.Duration, changed func(wire.Reply) bool) (wire.Reply, error) {
	none := wire.Reply{}
	out := make([]wire.Result, 1)
	for _, whole := range []bool{false, true} {
		conn.Do(until, []wire.Command{r.command(whole, l.cluster)}, out)
		msg, err := out[0].Reply, out[0].Err
		if noScript(err) && !whole {
			continue
		}
		if err != nil {
			return none, answered(err)
		}
		if !changed(msg) {
			return msg, nil
		}
		conn.Do(time.Now().Add(wait+minLimit), []wire.Command{{Name: "WAIT", Args: []string{strconv.Itoa(n), millis(wait)}}}, out)
		have, err := out[0].Reply.AsInt64()
		if out[0].Err != nil {
			err = out[0].Err
		}
		switch {
		case err != nil:
			return none, fmt.Errorf("redis: waiting for replicas: %w", err)
		case int(have) < n:
			return msg, fmt.Errorf("redis: %w", &fewError{int(have), n})
		}
		return msg, nil
	}
	return none, fmt.Errorf("redis: the server keeps losing its scripts: %w", driver.ErrNotDone)
}

// confirmed is attempt's request with Options.Replicas. What too few replicas have got is given back.
func (p *place) confirmed(ctx context.Context, req request) (wire.Reply, error) {
	msg, err := p.d.lanes.confirm(ctx, p.r.TTL, req, p.d.opts.Replicas, func(m wire.Reply) bool { return !m.IsArray() || again(m) })
	var few *fewError
	if !errors.As(err, &few) {
		return msg, err
	}
	h := p.r.Hold
	if msg.IsArray() {
		a, _ := msg.ToArray()
		msg = a[1]
	}
	text, _ := msg.ToString()
	h.Token, _ = strconv.ParseInt(text, 10, 64)
	if _, undo := p.d.finish(ctx, ending{hold: h, leave: true}); undo != nil {
		return wire.Reply{}, fmt.Errorf("%w; it could not be given back: %w", err, undo)
	}
	p.inLine = false
	return wire.Reply{}, fmt.Errorf("%w: %w", err, driver.ErrNotDone)
}

// again reports whether an answer is a grant that was made before.
func again(m wire.Reply) bool {
	a, err := m.ToArray()
	if err != nil || len(a) < 2 {
		return false
	}
	what, _ := a[0].ToString()
	return what == "again"
}
