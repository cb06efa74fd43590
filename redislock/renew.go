package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// together is how many holds one script renews. It keeps the server busy for about a fifth of a millisecond.
const together = 128

// Renew extends holds, many with one request.
func (d *Driver) Renew(ctx context.Context, hs []driver.Hold) []error {
	errs := make([]error, len(hs))
	if d.bad != nil {
		for i := range errs {
			errs[i] = d.bad
		}
		return errs
	}
	size := together
	if d.lanes.cluster && d.modes.scripts() {
		size = 1 // keys of different slots
	}
	var wg sync.WaitGroup
	for from := 0; from < len(hs); from += size {
		to := min(from+size, len(hs))
		if to == len(hs) {
			d.renew(ctx, hs[from:to], errs[from:to])
			break
		}
		wg.Go(func() { d.renew(ctx, hs[from:to], errs[from:to]) })
	}
	wg.Wait()
	return errs
}

func (d *Driver) renew(ctx context.Context, hs []driver.Hold, errs []error) {
	var keys, args []string
	var asked []int
	limit := time.Duration(0)
	for i, h := range hs {
		if errs[i] = d.check(h); errs[i] != nil {
			continue
		}
		d.people.refresh(h.ID)
		asked = append(asked, i)
		limit = max(limit, h.TTL)
		k := d.keys(h.Name)
		ttl := millis(h.TTL)
		if ttl == "" {
			ttl = "0"
		}
		switch h.Kind {
		case driver.Read:
			keys = append(keys, k.main, k.readHold(h.ID), k.held())
			args = append(args, "read", h.ID, ttl)
		case driver.Write:
			keys = append(keys, k.main)
			args = append(args, "hash", h.ID+":write", ttl)
		case driver.Permits:
			names := permitNames(h.ID, max(h.Permits, 1))
			keys = append(keys, k.main, k.set(), k.held(), k.permits())
			args = append(args, "permits", h.ID, ttl, strconv.Itoa(len(names)))
			args = append(args, names...)
		case driver.Leader, driver.Once:
			keys = append(keys, k.lock())
			args = append(args, "hash", h.ID, ttl)
		default:
			keys = append(keys, k.main)
			args = append(args, "hash", h.ID, ttl)
		}
	}
	if len(asked) == 0 {
		return
	}
	if !d.modes.scripts() {
		d.renewAlone(ctx, hs, errs, asked)
		return
	}
	var msg wire.Reply
	var err error
	if req := (request{script: renewScript, keys: keys, args: args}); d.opts.Replicas > 0 {
		msg, err = d.lanes.confirm(ctx, max(limit, minLimit), req, d.opts.Replicas, func(m wire.Reply) bool {
			answer, _ := m.ToString()
			return strings.Contains(answer, "1")
		})
		var few *fewError
		if errors.As(err, &few) { // what is gone is gone
			for n, i := range asked {
				if answer, _ := msg.ToString(); n < len(answer) && answer[n] != '1' {
					errs[i] = driver.ErrNotHeld
				} else {
					errs[i] = err
				}
			}
			return
		}
	} else {
		msg, err = d.lanes.run(ctx, max(limit, minLimit), req)
	}
	if d.without(err) {
		d.renewAlone(ctx, hs, errs, asked)
		return
	}
	answer := ""
	if err == nil {
		answer, err = msg.ToString()
	}
	if err == nil && len(answer) != len(asked) {
		err = fmt.Errorf("redis: a renewal of %d holds was answered for %d", len(asked), len(answer))
	}
	for n, i := range asked {
		switch {
		case err != nil:
			errs[i] = err
		case answer[n] != '1':
			errs[i] = driver.ErrNotHeld
		default:
			d.ear.renewed(hs[i].ID, hs[i].TTL)
		}
	}
}

// renewAlone renews holds one by one, without scripts.
func (d *Driver) renewAlone(ctx context.Context, hs []driver.Hold, errs []error, asked []int) {
	for _, i := range asked {
		errs[i] = d.renewByTransaction(ctx, hs[i])
	}
}

// Attach takes over a hold that another process got. The driver never reports Lost: Redis does not tell it, so the next
// renewal does.
func (d *Driver) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.bad != nil {
		return driver.Grant{}, d.bad
	}
	if r.Notify == nil {
		return driver.Grant{}, invalid("a request needs a Notify")
	}
	if r.TTL < time.Millisecond {
		return driver.Grant{}, invalid("a TTL is at least a millisecond, not %v", r.TTL)
	}
	d.people.here(r.ID, r.Who)
	sent := driver.Now()
	if err := d.Renew(ctx, []driver.Hold{r.Hold})[0]; err != nil {
		return driver.Grant{}, err
	}
	return driver.Grant{Sent: sent, TTL: r.TTL, Token: r.Token, Span: 1}, nil
}
