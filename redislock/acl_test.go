package redislock_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
)

// The ACL in the package documentation is enough, and nothing in it is too much.
func TestDocumentedACL(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "ACL SETUSER pawl on >… ~* ")
	if !ok {
		t.Fatal("doc.go has no ACL")
	}
	rules, _, _ := strings.Cut(rest, "//\n")
	acl := strings.Fields(strings.ReplaceAll(rules, "//", ""))
	s, raw := start(t)
	set := func(rules ...string) {
		t.Helper()
		do(t, raw, append([]string{"ACL", "SETUSER", "pawl", "reset", "on", ">sesame", "~app:*", "~{app:*", "~pawl_*", "~redisson_*"}, rules...)...)
	}
	set(acl...)
	everything := func(name string) {
		d := open(t, "redis://pawl:sesame@"+s.Addr, &redislock.Options{Prefix: "app:"})
		defer d.Close()
		for _, kind := range everyKind {
			holder := kind
			if kind == driver.Read {
				holder = driver.Write
			}
			n := name + kind.String()
			a := ask(t, d, holder, n).get()
			w, l := ask(t, d, kind, n), ask(t, d, kind, n)
			w.refused()
			l.refused()
			if err := a.renew(); err != nil {
				t.Errorf("Renew of %s: %v", kind, err)
			}
			l.leave()
			if err := d.Raise(t.Context(), a.r.Hold, a.r.Hold.Token+5); err != nil {
				t.Errorf("Raise of %s: %v", kind, err)
			}
			if r, err := d.Inspect(t.Context(), n); err != nil || len(r.Holds) != 1 {
				t.Errorf("Inspect of %s: %+v, %v", kind, r, err)
			}
			a.release()
			w.rung().getSoon().release()
		}
		if id, _, err := d.Incarnation(t.Context()); err != nil || id == "" {
			t.Errorf("Incarnation: %q, %v", id, err)
		}
		for _, err := range d.List(t.Context(), name) {
			if err != nil {
				t.Errorf("List: %v", err)
			}
		}
		fenced := open(t, "redis://pawl:sesame@"+s.Addr, &redislock.Options{Prefix: "app:", Fenced: true})
		defer fenced.Close()
		ask(t, fenced, driver.Fair, name+"fenced").get().release()
	}
	everything("all")
	// All of them are used; some only when something has expired, nobody waits any more, or now and then.
	rare := []string{"unsubscribe", "zremrangebyscore", "pubsub|numsub", "info"} // commands leaves INFO out
	stats := commands(t, text(t, raw, "INFO", "commandstats"))
	for _, rule := range acl {
		if c, ok := strings.CutPrefix(rule, "+"); ok && stats[c] == 0 && !slices.Contains(rare, c) {
			t.Errorf("%s is documented as needed, but was not used", rule)
		}
	}
}

// The ACL for mutexes without scripts is enough, and nothing in it is too much.
func TestDocumentedACLWithoutScripts(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "Without scripts there are")
	_, rest, ok := strings.Cut(rest, "ACL SETUSER pawl on >… ~* ")
	if !ok {
		t.Fatal("doc.go has no ACL without scripts")
	}
	rules, _, _ := strings.Cut(rest, "//\n")
	acl := strings.Fields(strings.ReplaceAll(rules, "//", ""))
	do(t, raw, append([]string{"ACL", "SETUSER", "pawl", "reset", "on", ">sesame", "~app:*", "~{app:*", "~pawl_*", "~redisson_*"}, acl...)...)
	url := "redis://pawl:sesame@" + s.Addr
	for _, fenced := range []bool{false, true} {
		d := open(t, url, quiet(&redislock.Options{Prefix: "app:", Fenced: fenced}))
		with := open(t, s.URL, &redislock.Options{Prefix: "app:", Fenced: fenced})
		for _, other := range []driver.Kind{driver.Exclusive, driver.Fair} {
			a := ask(t, d, driver.Exclusive, "orders").getSoon()
			w := ask(t, d, driver.Exclusive, "orders")
			w.refused()
			queued := ask(t, with, other, "orders")
			queued.refused()
			if err := a.renew(); err != nil {
				t.Errorf("Renew: %v", err)
			}
			if r, err := d.Inspect(t.Context(), "orders"); err != nil || len(r.Holds) != 1 {
				t.Errorf("Inspect: %+v, %v", r, err)
			}
			a.release()
			queued.rung().getSoon().release()
			w.rung().getSoon()
			if err := d.Release(t.Context(), w.r.Hold, driver.End{Keep: time.Millisecond}); err != nil {
				t.Error(err)
			}
			undone := ask(t, d, driver.Exclusive, "undone").get()
			undone.r.Hold.Token = 0
			if err := d.Release(t.Context(), undone.r.Hold, driver.End{}); err != nil {
				t.Error(err)
			}
			for _, err := range d.List(t.Context(), "o") {
				if err != nil {
					t.Errorf("List: %v", err)
				}
			}
		}
		if d.Mode().NoMessages != nil {
			t.Errorf("without messages: %v", d.Mode())
		}
	}
	stats := commands(t, text(t, raw, "INFO", "commandstats"))
	for _, rule := range acl {
		if c, ok := strings.CutPrefix(rule, "+"); ok && stats[c] == 0 && !slices.Contains([]string{"unsubscribe", "exists"}, c) {
			t.Errorf("%s is documented as needed, but was not used", rule)
		}
	}
	eventually(t, "no command was refused", func() bool {
		log, err := raw.Do(t.Context(), raw.B().Arbitrary("ACL", "LOG").Build()).ToArray()
		for _, entry := range log {
			if e, _ := entry.AsStrMap(); e["object"] != "evalsha" {
				t.Errorf("denied: %q", e)
			}
		}
		return err == nil
	})
}
