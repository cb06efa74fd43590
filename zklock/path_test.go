package zklock

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{
		"stock:1001":   "stock:1001",
		"größe":        "größe",
		"a/b":          "a%2Fb",
		".":            "%2E",
		"..":           "%2E%2E",
		"...":          "...",
		"a.":           "a.",
		"a\x00":        "a%00",
		"50%":          "50%25",
		"%2F":          "%252F",
		"\xff":         "%FF",
		"\U0001F512":   "%F0%9F%94%92",
		"\u0085":       "%C2%85",
		"\ufffd":       "%EF%BF%BD",
		"zookeeper":    "%7Aookeeper",
		"zookeeper2":   "zookeeper2",
		" with space ": " with space ",
	} {
		got := escape(name)
		if got != want {
			t.Errorf("escape(%q): got %q, want %q", name, got, want)
		}
		if back, ok := unescape(got); !ok || back != name {
			t.Errorf("unescape(%q): got %q, %v, want %q", got, back, ok, name)
		}
	}
	for _, foreign := range []string{"a%2f", "a%", "a%4", "%41", "", "a%zz", "%2E%2E%2E"} {
		if name, ok := unescape(foreign); ok {
			t.Errorf("unescape(%q) should refuse what escape never makes, got %q", foreign, name)
		}
	}
}

// FuzzEscape checks that every name has a path element of its own that ZooKeeper takes.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"a", "..", "/", "%2F", "\x00", "\xff", "a/../b", "\ue000", "\U0010ffff", strings.Repeat("/", 4096)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return
		}
		e := escape(name)
		if back, ok := unescape(e); !ok || back != name {
			t.Fatalf("%q becomes %q, and that %q", name, e, back)
		}
		if e == "." || e == ".." || e == "zookeeper" || strings.ContainsAny(e, "/\x00") || !utf8.ValidString(e) {
			t.Fatalf("%q becomes %q", name, e)
		}
		for _, r := range e {
			if r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
				t.Fatalf("%q becomes %q", name, e)
			}
		}
		if back, ok := unescape(name); ok && escape(back) != name {
			t.Fatalf("%q is no spelling of %q", name, back)
		}
	})
}

func TestRoots(t *testing.T) {
	for root, want := range map[string]string{"": "", "/": "", "/a": "/a", "/a/b/": "/a/b", "///": ""} {
		if got, err := cleanRoot(root); err != nil || got != want {
			t.Errorf("root %q: got %q, %v, want %q", root, got, err, want)
		}
	}
	for _, root := range []string{"a", "/a//b", "/a/./b", "/..", "/a\x00b", "/\xff", "/zookeeper", "/zookeeper/x"} {
		if got, err := cleanRoot(root); err == nil {
			t.Errorf("root %q should be refused, got %q", root, got)
		}
	}
}
