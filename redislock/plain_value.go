package redislock

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// What a key holds is new for each hold, of fixed length, so that it is never the beginning of another one, and made of
// letters and digits: "p", the client's UUID and the number of the hold, both in hex. So a look at the key shows whose it
// is. Clients of other makes take it for the random text that they use themselves.
const (
	valueOurs = "p"
	valueKept = "k" // nobody's: the name stays taken for a while
	valueHash = "h" // of an ID that is no UUID and number

	// valueForeign and the SHA-1 of its value is the ID that a hold of another client is shown with. The value itself may be
	// anything, as any string key looks like a lock, so it is in no error and no list.
	valueForeign = "sha1:"
)

// value is what the key of a hold holds, or valueForeign and the hash of it.
func value(id string) string {
	if strings.HasPrefix(id, valueForeign) {
		return id
	}
	uuid, number, _ := strings.Cut(id, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	v := fmt.Sprintf("%s%s%016x", valueOurs, strings.ReplaceAll(uuid, "-", ""), n)
	if err == nil && owner(v) == id {
		return v
	}
	sum := sha256.Sum256([]byte(id))
	return valueHash + hex.EncodeToString(sum[:24])
}

// kept is what the key holds when the hold has ended and the name stays taken.
func kept(id string) string {
	sum := sha256.Sum256([]byte(id))
	return valueKept + hex.EncodeToString(sum[:24])
}

// owner is the ID of the hold whose key holds that value.
func owner(value string) string {
	if rest, ok := strings.CutPrefix(value, valueOurs); ok && len(rest) == 48 {
		n, err := strconv.ParseUint(rest[32:], 16, 64)
		id := fmt.Sprintf("%s-%s-%s-%s-%s:%d", rest[:8], rest[8:12], rest[12:16], rest[16:20], rest[20:32], n)
		if _, err2 := hex.DecodeString(rest); err == nil && err2 == nil && strings.ToLower(rest) == rest {
			return id
		}
	}
	sum := sha1.Sum([]byte(value))
	return valueForeign + hex.EncodeToString(sum[:])
}

// Inspect shows who holds a name. A hold of another client has the ID "sha1:…", the hash of what the key holds; Release of it
// ends it. Waiters are not known.
func (p *Plain) Inspect(ctx context.Context, name string) (driver.Record, error) {
	out := driver.Record{Name: name, Waiters: -1}
	if err := p.check(driver.Hold{Kind: driver.Exclusive, Name: name, ID: "inspect"}); err != nil {
		return out, err
	}
	k := keysOf(p.d.opts.Prefix + name)
	keys := []string{k.main}
	if p.fenced {
		keys = append(keys, k.token())
	}
	msg, err := p.d.lanes.run(ctx, inspectLimit, request{script: showStringScript, keys: keys})
	if err != nil || msg.IsNull() {
		return out, err
	}
	a, err := msg.ToArray()
	if err != nil || len(a) != 3 {
		return out, fmt.Errorf("redis: an unknown answer to inspect: %w", err)
	}
	value, _ := a[0].ToString()
	left, _ := a[1].ToInt64()
	token, _ := a[2].ToString()
	h := driver.HeldBy{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: owner(value), Permits: 1}}
	if h.Remaining = remaining(left); left < 0 {
		h.Remaining = -1
	}
	if !strings.HasPrefix(h.ID, valueForeign) {
		h.Token, _ = strconv.ParseInt(token, 10, 64)
	}
	out.Holds = append(out.Holds, h)
	return out, nil
}

// List scans the whole database. It yields every string key that begins with the prefix, since each of them is a lock to this
// layout: give locks a Prefix of their own.
func (p *Plain) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if p.d.bad != nil {
			yield(driver.Record{}, p.d.bad)
			return
		}
		seen := map[string]bool{}
		for key, err := range p.d.scan(ctx, escape(p.d.opts.Prefix+prefix)+"*") {
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			name := strings.TrimPrefix(key, p.d.opts.Prefix)
			if seen[name] || p.check(driver.Hold{Kind: driver.Exclusive, Name: name, ID: "list"}) != nil {
				continue
			}
			seen[name] = true
			r, err := p.Inspect(ctx, name)
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
