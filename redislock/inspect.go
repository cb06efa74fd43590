package redislock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

const inspectLimit = 5 * time.Second

// Inspect shows who holds a name and how many wait, clients of another make included: their holds have their owner
// strings (permits: the permit in hex) as ID, and no token.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Record, error) {
	out := driver.Record{Name: name}
	if d.bad != nil {
		return out, d.bad
	}
	if !d.modes.scripts() {
		return d.inspectByTransaction(ctx, name)
	}
	k := d.keys(name)
	keys := []string{k.main, k.set(), k.line(), k.queue(), k.lock(), k.token(), k.held(), k.permits()}
	msg, err := d.lanes.run(ctx, inspectLimit, request{script: inspectScript, keys: keys, args: []string{k.base()}})
	if d.without(err) {
		return d.inspectByTransaction(ctx, name)
	}
	if err != nil {
		return out, err
	}
	a, err := msg.ToArray()
	if err != nil || len(a) != 7 {
		return out, fmt.Errorf("redis: an unknown answer to inspect: %w", err)
	}
	waiters, _ := a[0].ToInt64()
	out.Waiters = int(waiters)
	record, _ := a[1].ToString()
	now, _ := a[2].ToInt64()
	fields, _ := a[3].AsStrSlice()
	permitTokens := map[string]int64{}
	for f := range slices.Chunk(fields, 5) {
		if len(f) < 5 {
			break
		}
		token, _ := strconv.ParseInt(f[3], 10, 64)
		if f[0] == "token" {
			permitTokens[f[1]] = token
			continue
		}
		h := driver.HeldBy{Hold: driver.Hold{Kind: kinds[f[0]], Name: name, ID: f[1], Permits: 1, Token: token}}
		if left, _ := strconv.ParseInt(f[2], 10, 64); left == -1 {
			h.Remaining = -1
		} else {
			h.Remaining = time.Duration(left) * time.Millisecond
		}
		if h.Kind == driver.Leader {
			h.Value = []byte(f[4])
		}
		out.Holds = append(out.Holds, h)
	}
	if free, err := a[4].ToString(); err == nil {
		d.addPermits(&out, free, now, a[5], a[6], permitTokens)
	}
	owners := make([]string, len(out.Holds))
	for i, h := range out.Holds {
		owners[i] = h.ID
	}
	people, _ := d.people.ask(ctx, owners...)
	for i := range out.Holds {
		h := &out.Holds[i]
		p := people[client(h.ID)]
		h.Who = p.who
		if h.Token == 0 && p.pawl && h.Kind != driver.Read && h.Kind != driver.Permits && !strings.HasSuffix(h.ID, ":kept") {
			h.Token = recorded(record)
		}
	}
	return out, nil
}

// recorded is the token of the hold that the token key is about.
func recorded(record string) int64 {
	if i := strings.LastIndexAny(record, " +"); i >= 0 {
		record = record[i+1:]
	}
	n, _ := strconv.ParseInt(record, 10, 64)
	return n
}

// tokenOf is the token of a hold: in its field if it is stamped, else in the token key.
func tokenOf(field, record string) int64 {
	if len(field) > 9 {
		return recorded(field)
	}
	return recorded(record)
}

// addPermits shows pawl's permits hold by hold, and all others one by one.
func (d *Driver) addPermits(out *driver.Record, free string, now int64, permits, ours wire.Reply, tokens map[string]int64) {
	till := map[string]int64{}
	all := pairs(permits)
	for _, p := range all {
		if p.till > now {
			till[p.name] = p.till
		}
	}
	n, _ := strconv.Atoi(free)
	out.Limit = n + len(all)
	size := map[string]int{}
	var ids []string
	for _, p := range pairs(ours) {
		id, _, _ := strings.Cut(p.name, "/")
		if size[id] == 0 {
			ids = append(ids, id)
		}
		size[id]++
	}
	for _, id := range ids {
		names := permitNames(id, size[id])
		end, ok := till[names[0]]
		if !ok {
			continue
		}
		for _, name := range names {
			delete(till, name)
		}
		out.Holds = append(out.Holds, driver.HeldBy{
			Hold:      driver.Hold{Kind: driver.Permits, Name: out.Name, ID: id, Token: tokens[id], Permits: size[id]},
			Remaining: time.Duration(end-now) * time.Millisecond,
		})
	}
	for _, p := range all {
		if _, ok := till[p.name]; !ok {
			continue
		}
		h := driver.HeldBy{Hold: driver.Hold{Kind: driver.Permits, Name: out.Name, ID: fmt.Sprintf("%x", p.name), Permits: 1}}
		h.Remaining = time.Duration(p.till-now) * time.Millisecond
		if p.till >= neverExpires {
			h.Remaining = -1
		}
		out.Holds = append(out.Holds, h)
	}
}

// neverExpires is Redisson's score for a permit without a lease.
const neverExpires = 922337203685477

type scored struct {
	name string
	till int64
}

// pairs reads members and scores.
func pairs(msg wire.Reply) []scored {
	flat, err := msg.AsStrSlice()
	if err != nil {
		return nil
	}
	var out []scored
	for p := range slices.Chunk(flat, 2) {
		if len(p) == 2 {
			till, _ := strconv.ParseFloat(p[1], 64)
			out = append(out, scored{p[0], int64(till)})
		}
	}
	return out
}

// List scans the whole database. It yields what Inspect takes for a lock: a hash of an application whose fields look like
// owners is shown too.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if d.bad != nil {
			yield(driver.Record{}, d.bad)
			return
		}
		seen := map[string]bool{}
		full := d.opts.Prefix + prefix
		for _, pattern := range []string{escape(full) + "*", "pawl_lock:" + escape("{"+full) + "*", "pawl_lock:" + escape(":"+full) + "*"} {
			for key, err := range d.scan(ctx, pattern) {
				if err != nil {
					yield(driver.Record{}, err)
					return
				}
				main, ok := mainKey(key)
				name, ok2 := strings.CutPrefix(main, d.opts.Prefix)
				if !ok || !ok2 || !strings.HasPrefix(name, prefix) || name == "" || len(name) > 4096 || seen[name] {
					continue
				}
				seen[name] = true
				r, err := d.Inspect(ctx, name)
				if err != nil {
					yield(driver.Record{}, err)
					return
				}
				if len(r.Holds) > 0 && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// mainKey is the key that a scanned one belongs to; false if it is one of the others.
func mainKey(key string) (string, bool) {
	if own, ok := strings.CutPrefix(key, "pawl_lock:"); ok {
		if main, ok := strings.CutPrefix(own, ":"); ok {
			return main, true
		}
		return strings.TrimSuffix(strings.TrimPrefix(own, "{"), "}"), true
	}
	return key, !derived(key)
}

// scan yields the keys that match, some of them more than once.
func (d *Driver) scan(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if !d.lanes.cluster {
			d.scanNode(ctx, pattern, yield, func(ctx context.Context, cmd wire.Command) (wire.Reply, error) {
				return d.lanes.run(ctx, inspectLimit, request{args: append([]string{cmd.Name}, cmd.Args...)})
			})
			return
		}
		nodes, err := d.redis.Nodes(ctx)
		if err != nil {
			yield("", answered(err))
		}
		for _, node := range nodes {
			if !d.scanNode(ctx, pattern, yield, node) {
				return
			}
		}
	}
}

func (d *Driver) scanNode(ctx context.Context, pattern string, yield func(string, error) bool, do wire.Node) bool {
	cursor := "0"
	for {
		msg, err := do(ctx, wire.Command{Name: "SCAN", Args: []string{cursor, "MATCH", pattern, "COUNT", "1000"}})
		if err != nil {
			return yield("", answered(err)) && false
		}
		keys, next, err := page(msg)
		if err != nil {
			return yield("", err) && false
		}
		for _, key := range keys {
			if !yield(key, nil) {
				return false
			}
		}
		if cursor = next; cursor == "0" {
			return true
		}
	}
}

// page reads an answer of SCAN.
func page(msg wire.Reply) (keys []string, next string, err error) {
	a, err := msg.ToArray()
	if err != nil || len(a) != 2 {
		return nil, "", fmt.Errorf("redis: an unknown answer to SCAN: %w", err)
	}
	keys, err = a[1].AsStrSlice()
	next, err2 := a[0].ToString()
	return keys, next, errors.Join(err, err2)
}

// escape quotes what SCAN's patterns give a meaning to.
func escape(s string) string {
	return globs.Replace(s)
}

var globs = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)
