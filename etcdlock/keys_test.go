package etcdlock

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/pawl-lock/pawl/driver"
)

func TestShapes(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555:7"
	for _, c := range []struct {
		rest string
		form byte
		ok   bool
	}{
		{"1f", formPlain, true},
		{"694d7fe65d00b112", formPlain, true},
		{"1f/x" + id, formMutex, true},
		{"1f/r" + id, formRead, true},
		{"1f/w" + id, formWrite, true},
		{"1f/p3.2." + id, formPermit, true},
		{"1f/l" + id, formLeader, true},
		{"1f/L" + id, formTerm, true},
		{"1f/o" + id, formOnce, true},
		{"1f/k" + id, formKept, true},
		{"1f/y" + id, formResult, true},
		{"", 0, false},
		{"0", 0, false},
		{"01f", 0, false},               // padded
		{"1F", 0, false},                // upper case
		{"b", formPlain, true},          // a name "…/b" has keys "…/b/1f", not "…/b"
		{"b/1f", 0, false},              // of such a name
		{"1f/2e", 0, false},             // of a name "…/1f"
		{"1f/x" + id + "/2e", 0, false}, // of a name that looks like a key
		{"1f/", 0, false},
		{"/1f", 0, false},
		{"1f/z" + id, 0, false},
		{"1f/p2.3." + id, 0, false},
		{"1f/p-1.1." + id, 0, false},
		{"12345678901234567", 0, false},
	} {
		got, ok := parse("base", &mvccpb.KeyValue{Key: []byte("base/" + c.rest), CreateRevision: 5})
		if ok != c.ok || ok && (got.form != c.form || got.rest != c.rest) {
			t.Errorf("%q: %v, form %q", c.rest, ok, got.form)
		}
		if base, found := split("base/" + c.rest); c.ok && (!found || base != "base") {
			t.Errorf("split of %q: %q, %v", c.rest, base, found)
		}
	}
}

func TestTokens(t *testing.T) {
	kv := &mvccpb.KeyValue{Key: []byte("n/1f"), CreateRevision: 10, ModRevision: 15, Lease: 0x1f}
	for value, want := range map[string]int64{
		"":                                        0,
		"a proposal":                              0,
		`{"id":"a:1","kind":"exclusive"}`:         10 << 8,
		`{"id":"a:1","kind":"fair","peer":true}`:  15,
		`{"id":"a:1","peer":true,"token":12}`:     12,
		`{"id":"a b","kind":"exclusive"}`:         0, // no ID of ours
		`{"id":"a:1","kind":"exclusive","token":`: 0,
	} {
		kv.Value = []byte(value)
		if c, ok := parse("n", kv); !ok || c.token() != want {
			t.Errorf("%q: token %d, right would be %d", value, c.token(), want)
		}
	}
}

// FuzzSplit wants every key to belong to one name at most, and to be read from both ends alike.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a/1f", "a/1f/x1:2", "a/b/1f/2e", "/", "//1f", "a/1f/p3.2.z", "\x00/1f", "a/1f/xid/2e", "a/1/1/1"} {
		f.Add(s, int64(0x1f), "id:1")
	}
	f.Fuzz(func(t *testing.T, name string, lease int64, id string) {
		if name == "" || lease <= 0 || !goodID(id) {
			return
		}
		for kind := driver.Exclusive; kind <= driver.Once; kind++ {
			h := driver.Hold{Kind: kind, Name: name, ID: id, Permits: 2}
			for _, key := range []string{plainKey(name, lease), plainKey(name, lease) + tail(h, 3, true), plainKey(name, lease) + tail(h, 3, false)} {
				base, ok := split(key)
				if !ok || base != name {
					t.Fatalf("the key %q of %q is read as one of %q, %v", key, name, base, ok)
				}
				// No prefix of the key is another name's.
				for i := range key {
					if key[i] != '/' || key[:i] == name {
						continue
					}
					if c, ok := parse(key[:i], &mvccpb.KeyValue{Key: []byte(key)}); ok {
						t.Fatalf("the key %q of %q counts for %q too: %+v", key, name, key[:i], c)
					}
				}
			}
		}
		if base, ok := split(markKey(name, lease)); ok {
			t.Fatalf("a session's mark counts as a key of %q", base)
		}
	})
}

func TestJudge(t *testing.T) {
	key := func(i int, rest string) contender {
		c, ok := parse("n", &mvccpb.KeyValue{Key: []byte("n/" + rest), CreateRevision: int64(i + 1), Value: []byte(`{"id":"m:1"}`)})
		if !ok {
			panic(rest)
		}
		return c
	}
	read, write, perm := "1/r%d", "1/w%d", "1/p3.%d.%d"
	line := func(rests ...any) *queue {
		var cs []contender
		for i, r := range rests {
			switch r := r.(type) {
			case int:
				cs = append(cs, key(i, fmt.Sprintf(perm, r, i)))
			case string:
				switch r {
				case "r":
					r = fmt.Sprintf(read, i)
				case "w":
					r = fmt.Sprintf(write, i)
				}
				cs = append(cs, key(i, r))
			}
		}
		return newQueue(cs)
	}
	for _, c := range []struct {
		q       *queue
		kind    driver.Kind
		permits int
		free    bool
		watch   string
		holders int
	}{
		{line(), driver.Exclusive, 1, true, "", 0},
		{line("1", "2"), driver.Exclusive, 1, false, "n/2", 1},
		{line("r", "r"), driver.Read, 1, true, "", 2},
		{line("r", "w", "r"), driver.Read, 1, false, "n/1/w1", 1},
		{line("r", "r"), driver.Write, 1, false, "n/1/r1", 2},
		{line("w", "r"), driver.Write, 1, false, "n/1/r1", 1},
		{line(1, 1), driver.Permits, 1, true, "", 2},
		{line(1, 1), driver.Permits, 2, false, "", 2},
		{line(2, 2, 1), driver.Permits, 1, false, "", 1}, // nobody passes the second, who waits
	} {
		r := &driver.Request{Hold: driver.Hold{Kind: c.kind, Permits: c.permits}, Limit: 3}
		v := c.q.judge(r, len(c.q.line), false)
		if v.wrong != nil || v.free != c.free || v.watch != c.watch {
			t.Errorf("%s after %d: %+v", c.kind, len(c.q.line), v)
		}
		if n, _ := c.q.holders(); n != c.holders {
			t.Errorf("%d holders, right would be %d", n, c.holders)
		}
	}
}
