package etcdlock

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/pawl-lock/pawl/driver"
)

// A contender's key is <base>/<lease>, as concurrency.NewMutex has it, or <base>/<lease>/<form><id>, where base is the
// prefix and the name, byte for byte, and lease is the session's in lower-case hex. Foreign clients take every key under
// <base>/ for a contender; pawl only those that have one of these two shapes, so that the keys of a name "a/b" mean
// nothing to a name "a". No two names share a key: read from its end, a key has one shape only, since a form is never a
// hex digit.
const (
	formPlain  = byte(0)   // <base>/<lease>: a mutex, pawl's or not
	formMutex  = byte('x') // a further mutex contender of one session
	formRead   = byte('r')
	formWrite  = byte('w')
	formPermit = byte('p') // p<limit>.<permits>.<id>
	formLeader = byte('l')
	formTerm   = byte('L') // a leader whose token is the plain create revision
	formOnce   = byte('o')
	formKept   = byte('k') // beside the key of a hold that ended but keeps its name: no contender
	formResult = byte('y') // what a Once left: no contender
)

// marks is where a session leaves its mark: a key that no name has, since it ends neither in a lease nor in a form.
const marks = "pawl.session/"

func markKey(prefix string, lease int64) string {
	return fmt.Sprintf("%s%s%x.mark", prefix, marks, lease)
}

// first and last bound the keys of the contenders for base.
func first(base string) string { return base + firstEnd }
func last(base string) string  { return base + lastEnd }

const firstEnd, lastEnd = "/0", "/g"

// contender is what one key says.
type contender struct {
	key      string
	rest     string // the key behind base and "/"
	rev      int64  // of creation: its place in line
	mod      int64
	attached int64 // the lease that it lives by; 0: none
	form     byte
	id       string // pawl's; "" of a foreign one
	permits  int
	limit    int
	value    []byte
	note     *record // of a mutex of pawl's, else nil
}

// record is the value of pawl's keys, but of a leader's, whose value is what it publishes. Other clients do not read it.
type record struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Label string `json:"label,omitempty"`
	Host  string `json:"host,omitempty"`
	Note  string `json:"note,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Peer  bool   `json:"peer,omitempty"`  // its token is a plain revision
	Token int64  `json:"token,omitempty"` // of a peer whose key was written again since
}

func (r record) text() string {
	b, _ := json.Marshal(r) // strings and numbers always marshal
	return string(b)
}

// notes makes records fast: all but the ID is mostly the same as the last time.
type notes struct {
	last atomic.Pointer[note]
}

type note struct {
	r    record // without an ID
	rest string
}

func (n *notes) text(r record) string {
	id := r.ID
	if strings.ContainsAny(id, "\"\\<>&") {
		return r.text()
	}
	r.ID = ""
	l := n.last.Load()
	if l == nil || l.r != r {
		l = &note{r, strings.TrimPrefix(r.text(), `{"id":""`)}
		n.last.Store(l)
	}
	return `{"id":"` + id + `"` + l.rest
}

// formOf is the form of the keys of a kind that has not the plain one.
func formOf(k driver.Kind, peer bool) byte {
	switch k {
	case driver.Read:
		return formRead
	case driver.Write:
		return formWrite
	case driver.Permits:
		return formPermit
	case driver.Leader:
		if peer {
			return formTerm
		}
		return formLeader
	case driver.Once:
		return formOnce
	}
	return formMutex
}

// tail is the part of a key behind the lease.
func tail(h driver.Hold, limit int, peer bool) string {
	f := formOf(h.Kind, peer)
	if f == formPermit {
		return fmt.Sprintf("/%c%d.%d.%s", f, limit, h.Permits, h.ID)
	}
	return "/" + string(f) + h.ID
}

func plainKey(base string, lease int64) string { return base + "/" + strconv.FormatInt(lease, 16) }

// parse reads a key under base. It answers false for one that is no contender's.
func parse(base string, kv *mvccpb.KeyValue) (contender, bool) {
	rest, ok := strings.CutPrefix(string(kv.Key), base+"/")
	if !ok {
		return contender{}, false
	}
	c := contender{key: string(kv.Key), rest: rest, rev: kv.CreateRevision, mod: kv.ModRevision, attached: kv.Lease, value: kv.Value, permits: 1}
	lease, form, formed := strings.Cut(rest, "/")
	if !isLease(lease) || formed && !c.read(form) {
		return contender{}, false
	}
	if c.form == formPlain || c.form == formMutex || c.form == formRead || c.form == formWrite || c.form == formPermit || c.form == formOnce {
		var r record
		if json.Unmarshal(kv.Value, &r) == nil && goodID(r.ID) && (c.form == formPlain || r.ID == c.id) {
			c.note, c.id = &r, r.ID
		}
	}
	return c, true
}

func (c *contender) read(form string) bool {
	if form == "" || strings.Contains(form, "/") {
		return false
	}
	c.form, c.id = form[0], form[1:]
	switch c.form {
	case formPermit:
		limit, rest, _ := strings.Cut(c.id, ".")
		n, id, _ := strings.Cut(rest, ".")
		c.id = id
		var err1, err2 error
		c.limit, err1 = strconv.Atoi(limit)
		c.permits, err2 = strconv.Atoi(n)
		if err1 != nil || err2 != nil || c.permits < 1 || c.limit < c.permits {
			return false
		}
	case formMutex, formRead, formWrite, formLeader, formTerm, formOnce, formKept, formResult:
	default:
		return false
	}
	return goodID(c.id)
}

// split finds the base of any contender's key, from the end.
func split(key string) (base string, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 1 {
		return "", false
	}
	if isLease(key[i+1:]) {
		return key[:i], true
	}
	j := strings.LastIndexByte(key[:i], '/')
	var c contender
	if j < 1 || !isLease(key[j+1:i]) || !c.read(key[i+1:]) {
		return "", false
	}
	return key[:j], true
}

// isLease reports whether s is a lease as keys have it: hex digits in lower case without leading zeros.
func isLease(s string) bool {
	if len(s) == 0 || len(s) > 16 || s[0] == '0' {
		return false
	}
	for _, b := range []byte(s) {
		if (b < '0' || b > '9') && (b < 'a' || b > 'f') {
			return false
		}
	}
	return true
}

// goodID reports whether an ID can be part of a key.
func goodID(id string) bool {
	if len(id) < 1 || len(id) > 256 {
		return false
	}
	for _, b := range []byte(id) {
		if b <= ' ' || b >= 0x7f || b == '/' {
			return false
		}
	}
	return true
}

// family is what the name is in use as; 0: a foreign key does not tell a mutex from an election.
func (c *contender) family() driver.Kind {
	switch c.form {
	case formPlain:
		if c.note == nil {
			return 0
		}
		return driver.Exclusive
	case formMutex:
		return driver.Exclusive
	case formRead, formWrite:
		return driver.Read
	case formPermit:
		return driver.Permits
	case formLeader, formTerm:
		return driver.Leader
	}
	return driver.Once
}

func (c *contender) kind() driver.Kind {
	switch c.form {
	case formRead:
		return driver.Read
	case formWrite:
		return driver.Write
	case formPlain, formMutex:
		if c.note != nil && c.note.Kind == driver.Fair.String() {
			return driver.Fair
		}
		return driver.Exclusive
	}
	return c.family()
}

// peer reports whether the contender's token is a plain revision.
func (c *contender) peer() bool { return c.form == formTerm || c.note != nil && c.note.Peer }

// token is that of the hold, or 0: a foreign one, whose token no key tells.
func (c *contender) token() int64 {
	switch {
	case c.id == "":
		return 0
	case c.form == formTerm:
		return c.rev
	case c.note != nil && c.note.Peer && c.note.Token != 0:
		return c.note.Token
	case c.note != nil && c.note.Peer:
		return c.mod
	}
	return c.rev << spanBits
}

// spanBits is how many low bits of a token number the hand-offs of one hold.
const spanBits = 8

func contenders(base string, kvs []*mvccpb.KeyValue) []contender {
	cs := make([]contender, 0, len(kvs))
	for _, kv := range kvs {
		if c, ok := parse(base, kv); ok {
			cs = append(cs, c)
		}
	}
	slices.SortStableFunc(cs, func(a, b contender) int {
		if a.rev != b.rev {
			return int(max(min(a.rev-b.rev, 1), -1))
		}
		return strings.Compare(a.key, b.key)
	})
	return cs
}
