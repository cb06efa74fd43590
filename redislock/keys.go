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
	bare bool   // there is no brace in it

	// Redisson cannot tell the fair queue and the permits of "{a}" from those of "a". pawl keeps them apart, and for "{a}"
	// does not share them.
	braced bool
}

// keysOf derives the names. Redisson's rule puts braces around a name that has none, so that "a" and "{a}" share their
// derived keys; pawl's own keys tell the two apart by one more colon.
func keysOf(main string) keys {
	if !strings.Contains(main, "{") {
		return keys{main: main, bare: true}
	}
	return keys{main: main, braced: strings.HasPrefix(main, "{") && strings.HasSuffix(main, "}") && strings.Count(main, "{") == 1}
}

// around is what stands before and behind main in a derived key, so that it is in the slot of main: braces, or colon.
func (k keys) around(colon string) (open, end string) {
	if k.bare {
		return "{", "}"
	}
	return colon, ""
}

// own is a key of pawl's own.
func (k keys) own(what string) string {
	open, end := k.around(":")
	return what + open + k.main + end
}

// tag is a key or channel whose name Redisson derives.
func (k keys) tag(what string) string {
	open, end := k.around("")
	return what + open + k.main + end
}

// base is what Redisson's suffixed keys begin with.
func (k keys) base() string { return k.tag("") }

func (k keys) line() string    { return k.own("pawl_line:") }
func (k keys) due() string     { return k.own(pawlDue) }
func (k keys) token() string   { return k.own(pawlToken) }
func (k keys) held() string    { return k.own("pawl_held:") }
func (k keys) permits() string { return k.own("pawl_permits:") }
func (k keys) lock() string    { return k.own(pawlLock) }
func (k keys) watch() string   { return k.own("pawl_watch:") }

const (
	pawlDue       = "pawl_due:"
	pawlLock      = "pawl_lock:"
	pawlToken     = "pawl_token:"
	pawlQueue     = "pawl_queue:"
	redissonQueue = "redisson_lock_queue:"
)

// toLock and toUnlock are the keys of the quick scripts, made with one allocation.
func (k keys) toLock() [4]string {
	open, end := k.around(":")
	all := pawlDue + open + k.main + end + pawlLock + open + k.main + end + pawlToken + open + k.main + end
	n := len(open) + len(k.main) + len(end)
	a := len(pawlDue) + n
	b := a + len(pawlLock) + n
	return [4]string{k.main, all[:a], all[a:b], all[b:]}
}

func (k keys) toUnlock() [4]string {
	queue, colon := redissonQueue, ""
	if k.braced {
		queue, colon = pawlQueue, ":"
	}
	open, end := k.around(":")
	before, _ := k.around(colon)
	all := pawlDue + open + k.main + end + queue + before + k.main + end
	a := len(pawlDue) + len(open) + len(k.main) + len(end)
	return [4]string{k.main, all[:a], all[a:]}
}

// clockKey remembers the highest token that was stamped on any name of the server. No lock can be named like that.
const clockKey = "pawl_clock:"

func (k keys) counter() string { return k.tag("redisson_lock_token:") }

func (k keys) queue() string {
	if k.braced {
		return k.own(pawlQueue)
	}
	return k.tag(redissonQueue)
}

func (k keys) queueDue() string {
	if k.braced {
		return k.own("pawl_timeout:")
	}
	return k.tag("redisson_lock_timeout:")
}

func (k keys) set() string {
	if k.braced {
		return k.own("pawl_set:")
	}
	return k.base() + ":timeout"
}

func (k keys) readHold(id string) string {
	return k.base() + ":" + id + ":rwlock_timeout:1"
}

func (k keys) lockChannel() string { return k.tag("redisson_lock__channel:") }
func (k keys) rwChannel() string   { return k.tag("redisson_rwlock:") }
func (k keys) semChannel() string  { return k.tag("redisson_sc:") }

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
