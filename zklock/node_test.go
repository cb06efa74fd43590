package zklock

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const uuid = "0f1e2d3c-4b5a-4678-9abc-def012345678"

func TestParse(t *testing.T) {
	for name, want := range map[string]node{
		"_c_" + uuid + "-lock-0000000017":                     {role: mutex, seq: 17},
		"_c_" + uuid + "-7-lock-0000000017":                   {role: mutex, seq: 17, id: uuid + ":7"},
		"_c_" + uuid + "-7.kept-lock-0000000017":              {role: mutex, seq: 17, kept: true},
		"_c_" + uuid + "-7-__READ__0000000005":                {role: reader, seq: 5, id: uuid + ":7"},
		"_c_" + uuid + "-__WRIT__0000000005":                  {role: writer, seq: 5},
		"_c_" + uuid + "-7-latch-2147483647":                  {role: latch, seq: 2147483647, id: uuid + ":7"},
		"_c_" + uuid + "-7.9-lease-0000000005":                {role: lease, seq: 5, id: uuid + ":7", limit: 9},
		"_c_" + uuid + "-lock--2147483648":                    {role: mutex, seq: -2147483648},
		"_c_" + uuid + "-lock--000000001":                     {role: mutex, seq: -1},
		"_c_0123456789abcdef0123456789abcdef-lock-0000000003": {role: mutex, seq: 3},
		"0123456789abcdef0123456789abcdef__lock__0000000003":  {role: mutex, seq: 3, kazoo: true},
		"0123456789abcdef0123456789abcdef__rlock__0000000003": {role: reader, seq: 3, kazoo: true},
		"0123456789abcdef0123456789abcdef-lock-0000000003":    {role: mutex, seq: 3},
		"lock-0000000001":                                     {role: mutex, seq: 1},
		"a-lock-b-lock-0000000001":                            {role: mutex, seq: 1},
	} {
		want.name = name
		if got, ok := parse(name); !ok || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"0", "locks", "leases", "lock-", "lock-1", "lock-+000000001", "lock-00000000x1", "lock-2147483648",
		"lock--2147483649", "_c_", "_c_x-lock-", "", "config"} {
		if got, ok := parse(name); ok {
			t.Errorf("%q is no contender's name, got %+v", name, got)
		}
	}
}

func TestTagsAreReadBack(t *testing.T) {
	for _, id := range []string{uuid + ":0", uuid + ":1", uuid + ":18446744073709551615"} {
		if err := checkID(id); err != nil {
			t.Fatal(err)
		}
		n, ok := parse(tag(id, "") + lockBase + "0000000001")
		if !ok || n.id != id {
			t.Errorf("%q came back as %+v", id, n)
		}
	}
	for _, id := range []string{"", ":", uuid, uuid + ":", uuid + ":x", "0F1E2D3C-4b5a-4678-9abc-def012345678:1", "short:1", uuid + ":1/2"} {
		if checkID(id) == nil {
			t.Errorf("the ID %q should be refused", id)
		}
	}
}

// TestWrap: the servers count in 32 bits, with a sign; behind the largest number comes the smallest.
func TestWrap(t *testing.T) {
	name := func(seq int32) string { return fmt.Sprintf("_c_%s-lock-%010d", uuid, seq) }
	for _, first := range []int32{0, 17, 2147483640, 2147483647, -2147483648, -3, -1} {
		var names []string
		for i := range int32(8) {
			names = append(names, name(first+i))
		}
		want := append([]string{}, names...)
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		v := look(names)
		for i, n := range v.nodes {
			if n.name != want[i] {
				t.Fatalf("from %d: number %d is %q, want %q", first, i, n.name, want[i])
			}
			w := v.judge(mutex, &n)
			if i == 0 && w.blocker != "" || i > 0 && (w.blocker != want[i-1] || w.holder.name != want[0] || w.ahead != i-1) {
				t.Errorf("from %d: the judgement of number %d is %+v", first, i, w)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	name := func(base string, seq int) string { return fmt.Sprintf("_c_%s-%s%010d", uuid, base, seq) }
	r0, r1, w2, r3, w4 := name(readBase, 0), name(readBase, 1), name(writeBase, 2), name(readBase, 3), name(writeBase, 4)
	v := look([]string{w4, r3, w2, r1, r0, "stranger"})
	for _, c := range []struct {
		own, blocker, holder string
		ahead                int
	}{{r0, "", "", 0}, {r1, "", "", 0}, {w2, r1, r0, 0}, {r3, w2, r0, 1}, {w4, r3, r0, 2}} {
		n, _ := v.named(c.own)
		if w := v.judge(n.role, &n); w.blocker != c.blocker || w.holder.name != c.holder || w.ahead != c.ahead || w.mismatch != none {
			t.Errorf("%s: got %+v, want %+v", c.own, w, c)
		}
	}
	if w := v.judge(reader, nil); w.blocker != w4 {
		t.Errorf("a reader who comes now waits for %q, want %q", w.blocker, w4)
	}
	if w := v.judge(mutex, nil); w.mismatch != reader {
		t.Errorf("a mutex on a read-write lock: got %+v", w)
	}
	// Curator's downgrade: a read node with the number of its thread's own write node. The next one waits for both.
	down := look([]string{name(writeBase, 5), "_c_a" + name(readBase, 5), name(writeBase, 6)})
	last, _ := down.named(name(writeBase, 6))
	if w := down.judge(writer, &last); w.blocker == "" || w.ahead > 1 {
		t.Errorf("behind a downgrade: got %+v", w)
	}
	only := look([]string{"_c_a" + name(readBase, 5), name(writeBase, 6)})
	last, _ = only.named(name(writeBase, 6))
	if w := only.judge(writer, &last); w.blocker != "_c_a"+name(readBase, 5) {
		t.Errorf("behind the read node of a downgrade: got %+v", w)
	}
	// Two kinds that came at the same time: the later one gives way.
	mixed := look([]string{name(lockBase, 1), name(latchBase, 2)})
	first, second := mixed.nodes[0], mixed.nodes[1]
	if w := mixed.judge(mutex, &first); w.mismatch != none || w.blocker != "" {
		t.Errorf("the first kind: got %+v", w)
	}
	if w := mixed.judge(latch, &second); w.mismatch != mutex {
		t.Errorf("the second kind: got %+v", w)
	}
}
