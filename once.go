package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Once runs fn for key unless a run of it was recorded within the last window, here or in another process; then it answers
// what that run answered (T goes through encoding/json). Callers that come while it runs wait for it, as Mutex.Lock waits.
// An error of fn is not recorded: the next caller runs it again.
//
// At most one run is recorded: the result is stored in the step that ends this very hold, so a run that was paused until
// others had taken over cannot overwrite theirs. But it is not exactly once for fn's effects. A process that dies or loses
// the lease after the effect and before the record leaves the key to the next caller, with a larger token. When that
// matters and fn works in one SQL database, use OnceInTx of package record: it commits work and record together.
//
// An error that matches ErrLost or ErrUnknown beside a result says that fn succeeded but may not be recorded.
func Once[T any](ctx context.Context, c *Client, key string, window time.Duration, fn func(context.Context) (T, error)) (v T, err error) {
	if window < time.Millisecond {
		return v, invalid("once %q: a window of %v: at least 1ms", key, window)
	}
	for k, _ := ctx.Value(leaseKey{}).(*carried); k != nil; k = k.up {
		if g := k.l.g; g.cl.core == c.core && g.hold.Name == key && g.hold.Kind == driver.Once {
			return v, invalid("once %q: called by its own function", key)
		}
	}
	t := &target{c: c, kind: driver.Once, name: key, permits: 1}
	l, err := t.acquire(ctx, false)
	if done, ok := errors.AsType[*driver.DoneError](err); ok {
		if err := json.Unmarshal(done.Value, &v); err != nil {
			return v, fmt.Errorf("pawl: once %q: the recorded result is no %T: %w", key, v, err)
		}
		return v, nil
	}
	if err != nil {
		return v, err
	}
	var end driver.End
	defer func() {
		if uerr := l.unlock(end); err == nil && uerr != nil {
			err = fmt.Errorf("pawl: once %q: done, but perhaps not recorded: %w", key, uerr)
		}
	}()
	if v, err = fn(l.Context(ctx)); err != nil {
		return v, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return v, fmt.Errorf("pawl: once %q: done, but its result cannot be recorded: %w", key, err)
	}
	end = driver.End{Keep: (window + time.Millisecond - 1).Truncate(time.Millisecond), Value: b}
	return v, nil
}
