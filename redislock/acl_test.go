package redislock_test

import (
	"os"
	"slices"
	"strings"
	"testing"

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
