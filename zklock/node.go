package zklock

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// The base names of Curator's recipes.
const (
	lockBase  = "lock-"
	readBase  = "__READ__"
	writeBase = "__WRIT__"
	latchBase = "latch-"
	leaseBase = "lease-"

	locksDir  = "locks"
	leasesDir = "leases"
)

// role is what a child of a lock's directory is there for.
type role uint8

const (
	none role = iota
	mutex
	reader
	writer
	latch
	lease
)

// bases are all base names that some client of the family counts, with their roles. Of kazoo's two, the longer one ends
// with the shorter one only in appearance: "__rlock__" does not contain "__lock__".
var bases = []struct {
	text string
	role role
}{
	{lockBase, mutex}, {readBase, reader}, {writeBase, writer}, {latchBase, latch}, {leaseBase, lease},
	{"__lock__", mutex}, {"__rlock__", reader},
}

func (r role) kind() driver.Kind {
	return [...]driver.Kind{0, driver.Exclusive, driver.Read, driver.Write, driver.Leader, driver.Permits}[r]
}

func roleOf(k driver.Kind) (role, string) {
	switch k {
	case driver.Exclusive, driver.Fair:
		return mutex, lockBase
	case driver.Read:
		return reader, readBase
	case driver.Write:
		return writer, writeBase
	case driver.Leader:
		return latch, latchBase
	case driver.Permits:
		return lease, leaseBase
	}
	return none, ""
}

// node is a contender's node, as its name tells.
type node struct {
	name  string
	role  role
	seq   int32
	id    string // of a pawl hold; "" for another client's
	kept  bool   // nobody's any more: it keeps the name taken for a while
	limit int    // of a pawl permit: the semaphore's limit
	kazoo bool   // has kazoo's own base name
}

// parse reads a child's name. It answers false for one that is no contender's.
func parse(name string) (node, bool) {
	for _, b := range bases {
		i := strings.LastIndex(name, b.text)
		if i < 0 {
			continue
		}
		digits := name[i+len(b.text):]
		seq, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || len(digits) < 10 || digits[0] == '+' {
			continue
		}
		n := node{name: name, role: b.role, seq: int32(seq), kazoo: strings.HasPrefix(b.text, "__") && strings.HasSuffix(b.text, "lock__")}
		n.readTag(name[:i])
		return n, true
	}
	return node{}, false
}

// A pawl node is named _c_<uuid>-<n><rest>-<base><sequence>, from the ID "<uuid>:<n>" of its hold. The rest is ".kept" for
// a node that outlives its hold, and ".<limit>" for a permit.
const protected = "_c_"

func (n *node) readTag(head string) {
	head, ok := strings.CutPrefix(head, protected)
	head, ok2 := strings.CutSuffix(head, "-")
	if !ok || !ok2 || len(head) < 38 || head[36] != '-' {
		return
	}
	number, rest, _ := strings.Cut(head[37:], ".")
	id := head[:36] + ":" + number
	if checkID(id) != nil {
		return
	}
	switch limit, err := strconv.Atoi(rest); {
	case rest == "":
		n.id = id
	case rest == "kept":
		n.kept = true
	case err == nil && limit > 0:
		n.id, n.limit = id, limit
	}
}

// checkID refuses an ID that no node name can be made of.
func checkID(id string) error {
	uuid, number, ok := strings.Cut(id, ":")
	ok = ok && len(uuid) == 36 && len(number) > 0 && len(number) <= 20
	for i := 0; ok && i < 36; i++ {
		c := uuid[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		ok = dash && c == '-' || !dash && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
	}
	for i := 0; ok && i < len(number); i++ {
		ok = number[i] >= '0' && number[i] <= '9'
	}
	if !ok {
		return invalid("a hold's ID is \"<uuid>:<number>\", not %q", id)
	}
	return nil
}

// tag is the part of a node's name before its base.
func tag(id, rest string) string {
	return protected + strings.Replace(id, ":", "-", 1) + rest + "-"
}

// before orders sequence numbers, which a server counts as signed 32-bit numbers that wrap around.
func before(a, b int32) bool { return a-b < 0 }

// view is a lock's directory at one moment: the contenders, by their sequence numbers.
type view struct {
	nodes     []node
	strangers []string // children that are no contender's
	semaphore bool     // has a semaphore's subdirectories, in use or not
}

func look(children []string) view {
	var v view
	for _, name := range children {
		switch n, ok := parse(name); {
		case ok:
			v.nodes = append(v.nodes, n)
		case name == locksDir || name == leasesDir:
			v.semaphore = true
		default:
			v.strangers = append(v.strangers, name)
		}
	}
	if len(v.nodes) == 0 {
		return v
	}
	ref := v.nodes[0].seq
	slices.SortFunc(v.nodes, func(a, b node) int {
		if c := int64(a.seq-ref) - int64(b.seq-ref); c != 0 {
			return int(max(min(c, 1), -1))
		}
		return strings.Compare(a.name, b.name)
	})
	return v
}

// own are the nodes of a hold, the oldest first.
func (v view) own(id string) []node {
	var out []node
	for _, n := range v.nodes {
		if n.id == id {
			out = append(out, n)
		}
	}
	return out
}

// named is the node of that name.
func (v view) named(name string) (node, bool) {
	i := slices.IndexFunc(v.nodes, func(n node) bool { return n.name == name })
	if i < 0 {
		return node{}, false
	}
	return v.nodes[i], true
}

// holders are the nodes that have the lock: the first, or the readers before the first writer.
func (v view) holders() []node {
	n := min(len(v.nodes), 1)
	if n > 0 && v.nodes[0].role == reader {
		for n < len(v.nodes) && v.nodes[n].role == reader {
			n++
		}
	}
	return v.nodes[:n]
}

// verdict says what a contender may do.
type verdict struct {
	blocker  string // the nearest node in front that must go first; "": it may get in
	holder   node   // the first of those that hold
	ahead    int    // waiters in front
	mismatch role   // somebody in front uses the name as this
}

// judge says what a contender of role r may do: own is its node, or nil for one that has none and would come last.
func (v view) judge(r role, own *node) verdict {
	var out verdict
	front := v.nodes
	if own != nil {
		front = slices.DeleteFunc(slices.Clone(front), func(n node) bool { return !before(n.seq, own.seq) })
	}
	for _, n := range front {
		if n.role.kind().Family() != r.kind().Family() {
			out.mismatch = n.role
			return out
		}
		if r != reader || n.role == writer {
			out.blocker = n.name
		}
	}
	if out.blocker != "" {
		h := view{nodes: front}.holders()
		out.holder = h[0]
		out.ahead = len(front) - len(h)
	}
	return out
}
