package redislock

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// keys are the names of all that belongs to one lock in the store.
type keys struct {
	main string // Redisson's key: prefix and name, as they are
	tag  string // what follows "redisson_…:"; it keeps the other keys in the slot of main
	own  string // what follows "pawl_…:"
	base string // what Redisson's suffixed keys begin with

	// Redisson cannot tell the fair queue and the permits of "{a}" from those of "a". pawl keeps them apart, and for "{a}"
	// does not share them.
	braced bool
}

// keysOf derives the names. Redisson's rule puts braces around a name that has none, so that "a" and "{a}" share their
// derived keys; pawl's own keys tell the two apart by one more colon.
func keysOf(main string) keys {
	if strings.Contains(main, "{") {
		braced := strings.HasPrefix(main, "{") && strings.HasSuffix(main, "}") && strings.Count(main, "{") == 1
		return keys{main: main, tag: main, own: ":" + main, base: main, braced: braced}
	}
	braced := "{" + main + "}"
	return keys{main: main, tag: braced, own: braced, base: braced}
}

func (k keys) line() string    { return "pawl_line:" + k.own }
func (k keys) due() string     { return "pawl_due:" + k.own }
func (k keys) token() string   { return "pawl_token:" + k.own }
func (k keys) held() string    { return "pawl_held:" + k.own }
func (k keys) permits() string { return "pawl_permits:" + k.own }
func (k keys) lock() string    { return "pawl_lock:" + k.own }
func (k keys) watch() string   { return "pawl_watch:" + k.own }

// toLock and toUnlock are the keys of the quick scripts, made with one allocation.
func (k keys) toLock() [4]string { return k.quick("pawl_due:", k.own, "pawl_lock:", k.own) }

func (k keys) toUnlock() [4]string {
	if k.braced {
		return k.quick("pawl_due:", k.own, "pawl_queue:", k.own)
	}
	return k.quick("pawl_due:", k.own, "redisson_lock_queue:", k.tag)
}

func (k keys) quick(due, of, other, tag string) [4]string {
	const token = "pawl_token:"
	all := due + of + other + tag + token + k.own
	a := len(due) + len(of)
	b := a + len(other) + len(tag)
	return [4]string{k.main, all[:a], all[a:b], all[b:]}
}

func (k keys) counter() string { return "redisson_lock_token:" + k.tag }

func (k keys) queue() string {
	if k.braced {
		return "pawl_queue:" + k.own
	}
	return "redisson_lock_queue:" + k.tag
}

func (k keys) queueDue() string {
	if k.braced {
		return "pawl_timeout:" + k.own
	}
	return "redisson_lock_timeout:" + k.tag
}

func (k keys) set() string {
	if k.braced {
		return "pawl_set:" + k.own
	}
	return k.base + ":timeout"
}

func (k keys) readHold(id string) string {
	return k.base + ":" + id + ":rwlock_timeout:1"
}

func (k keys) lockChannel() string { return "redisson_lock__channel:" + k.tag }
func (k keys) rwChannel() string   { return "redisson_rwlock:" + k.tag }
func (k keys) semChannel() string  { return "redisson_sc:" + k.tag }

// channel is where Redisson tells that the name got free.
func (k keys) channel(kind driver.Kind) string {
	switch kind {
	case driver.Exclusive, driver.Fair:
		return k.lockChannel()
	case driver.Read, driver.Write:
		return k.rwChannel()
	case driver.Permits:
		return k.semChannel()
	}
	return k.watch()
}

const (
	wakePrefix = "pawl_wake:" // and the client's UUID: the channel on which its waiting places are called
	whoPrefix  = "pawl_who:"  // and the client's UUID: who that is
)

// client is the UUID of the client that made an ID.
func client(id string) string {
	uuid, _, _ := strings.Cut(id, ":")
	return uuid
}

// derived reports whether a key looks like one that Redisson or pawl derive from the name of another lock.
func derived(key string) bool {
	for _, prefix := range []string{"redisson_", "pawl_"} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			word, _, colon := strings.Cut(rest, ":")
			return colon && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
		}
	}
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return false
	}
	if strings.HasSuffix(key[open:], ":timeout") {
		return true
	}
	i := strings.LastIndex(key[open:], ":rwlock_timeout:")
	return i >= 0 && strings.Trim(key[open+i+len(":rwlock_timeout:"):], "0123456789") == ""
}

// checkName says whether a main key can be kept apart from all others.
func checkName(main string, cluster bool) error {
	switch {
	case derived(main):
		return fmt.Errorf("redis key %q is how Redisson or pawl name what belongs to another lock; choose another name or a Prefix: %w", main, driver.ErrInvalid)
	case cluster && !oneSlot(main):
		return fmt.Errorf("the keys of %q would be on different nodes of a Redis Cluster, because of its braces: %w", main, driver.ErrInvalid)
	}
	return nil
}

// oneSlot reports whether the keys derived from main are in its slot of a Redis Cluster, for Redisson too.
func oneSlot(main string) bool {
	open := strings.IndexByte(main, '{')
	if open < 0 {
		return !strings.Contains(main, "}")
	}
	return strings.IndexByte(main, '}') > open+1
}

// permitNames are the store's names of the permits of a hold: 16 bytes each. A permit of another client is known by its
// own name alone, in hex.
func permitNames(id string, n int) []string {
	if raw, err := foreignPermit(id); err == nil {
		return []string{raw}
	}
	out := make([]string, n)
	for i := range out {
		sum := sha256.Sum256([]byte(id + "/" + strconv.Itoa(i+1)))
		out[i] = string(sum[:16])
	}
	return out
}

func foreignPermit(id string) (raw string, err error) {
	b, err := hex.DecodeString(id)
	if err == nil && len(b) != 16 {
		err = errors.New("not 16 bytes")
	}
	return string(b), err
}
