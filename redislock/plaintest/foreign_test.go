package plaintest

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func sha(value string) string { return fmt.Sprintf("sha1:%x", sha1.Sum([]byte(value))) }

// The holds of others are shown and can be ended, whatever bytes their values have. They have no token.
func TestForeignHolds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := open(t, s.URL, &redislock.PlainOptions{Prefix: "app:", Fenced: true})
	locks := pawl.New(p)
	mine, err := locks.Mutex("mine").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if mine.Token() == 0 {
		t.Error("no token")
	}
	s.Do("SET", "app:text", "ADDED:host", "PX", "50000")
	s.Do("SET", "app:bytes", "\x00\xff raw", "PX", "50000")
	s.Do("SET", "app:forever", "")
	s.Do("SET", "other", "x")
	s.Do("HSET", "app:hash", "a", "1")
	want := map[string]string{"mine": mine.ID(), "text": sha("ADDED:host"), "bytes": sha("\x00\xff raw"), "forever": sha("")}
	got := map[string]string{}
	for r, err := range p.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got[r.Name] = r.Holds[0].ID
		if h := r.Holds[0]; (h.Token != 0) != (r.Name == "mine") || (h.Remaining < 0) != (r.Name == "forever") {
			t.Errorf("%s is shown with token %d, remaining %v", r.Name, h.Token, h.Remaining)
		}
	}
	if len(got) != len(want) {
		t.Errorf("listed are %q", got)
	}
	for name, id := range want {
		if got[name] != id {
			t.Errorf("%s is shown as %q, want %q", name, got[name], id)
		}
		_, err := locks.Mutex(name).TryLock(t.Context())
		var held *pawl.HeldError
		if !errors.As(err, &held) || held.Holder.ID != id && name != "mine" || strings.Contains(err.Error(), "ADDED") {
			t.Errorf("TryLock of %s: %v by %q, want %q", name, err, held.Holder.ID, id)
		}
		i, err := locks.Inspect(t.Context(), name)
		if err != nil || len(i.Holders) != 1 {
			t.Fatalf("Inspect of %s: %+v, %v", name, i, err)
		}
		if err := locks.Steal(t.Context(), name, i.Holders[0]); err != nil {
			t.Errorf("Steal of %s: %v", name, err)
		}
		if err := locks.Steal(t.Context(), name, i.Holders[0]); !errors.Is(err, pawl.ErrNotHeld) {
			t.Errorf("a second Steal of %s: %v", name, err)
		}
	}
}

// A client that was told to go on with tokens never gives one twice, also when others held the name in between, the key was
// deleted, or the tokens were.
func TestFencedBesideOthers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := pawl.New(open(t, s.URL, &redislock.PlainOptions{Fenced: true}))
	last := int64(0)
	for _, between := range [][]string{{"PING"}, {"SET", "orders", "theirs", "NX"}, {"DEL", "pawl_token:{orders}"}, {"FLUSHALL"}} {
		l, err := locks.Mutex("orders").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l.Token() <= last {
			t.Errorf("token %d follows %d", l.Token(), last)
		}
		last = l.Token()
		if err := l.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		s.Do(between...)
		s.Do("DEL", "orders")
	}
	plain := pawl.New(open(t, s.URL, nil))
	l, err := plain.Mutex("orders").Lock(t.Context())
	if err != nil || l.Token() != 0 {
		t.Errorf("without Fenced: token %d, %v", l.Token(), err)
	}
	l.Unlock()
	if err := open(t, s.URL, nil).Raise(t.Context(), request("orders").Hold, 5); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Raise without Fenced: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for query, want := range map[string]string{
		"":                               "",
		"?layout=string":                 "",
		"?layout=redisson":               "opened by Open",
		"?layout=strings":                "should be redisson or string",
		"?layout=":                       "should be redisson or string",
		"?layout=string&layout=redisson": "should be redisson or string",
		"?layout=string&tokens=yes":      "parameters that redislock does not know",
	} {
		p, err := redislock.OpenPlain(t.Context(), s.URL+query, nil)
		if err == nil {
			p.Close()
		}
		if want == "" && err != nil || want != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("OpenPlain with %q: %v, want %q", query, err, want)
		}
	}
	for query, want := range map[string]string{"?layout=redisson": "", "?layout=string": "opened by OpenPlain", "?layout=x": "redisson or string"} {
		d, err := redislock.Open(t.Context(), s.URL+query, nil)
		if err == nil {
			d.Close()
		}
		if want == "" && err != nil || want != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("Open with %q: %v, want %q", query, err, want)
		}
	}

	p := open(t, s.URL, nil)
	for name, r := range map[string]driver.Request{"no name": request(""), "a tombstone": request("pawl_gone:x"), "a token": request("pawl_token:x")} {
		if _, err := p.Enter(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := request("orders")
	r.Kind = driver.Fair
	if _, err := p.Enter(t.Context(), r); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a fair mutex: %v", err)
	}
	none := redislock.NewPlain(nil, nil)
	if _, err := none.Enter(t.Context(), request("orders")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Enter without a client: %v", err)
	}
	if err := none.Renew(t.Context(), []driver.Hold{request("orders").Hold})[0]; !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Renew without a client: %v", err)
	}
	if err := none.Close(); err != nil {
		t.Error(err)
	}
	closed := open(t, s.URL, nil)
	closed.Close()
	if _, err := closed.Watch(t.Context(), "orders"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Watch of a closed driver: %v", err)
	}
}

// The ACL in docs/redis-string.md is enough, and nothing in it is too much.
func TestDocumentedACL(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/redis-string.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "ACL SETUSER pawl on >… ")
	rules, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("the page has no ACL")
	}
	acl := strings.Fields(rules)
	s := redistest.Start(t)
	s.Do(append([]string{"ACL", "SETUSER", "pawl", "on", ">sesame"}, acl...)...)
	url := "redis://pawl:sesame@" + s.Addr
	everything := func(how string) {
		t.Helper()
		p := open(t, url, &redislock.PlainOptions{SpringRegistry: "app", Fenced: true})
		a, w := request("orders"), (*waiter)(nil)
		place, err := p.Enter(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		g, err := place.Try(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Hold.Token = g.Token
		w = wait(t, p, "orders")
		eventually(t, how, func() bool {
			if how == "tracking" {
				return trackers(s) == 1
			}
			return p.Mode().NoMessages != nil
		})
		if err := p.Renew(t.Context(), []driver.Hold{a.Hold})[0]; err != nil {
			t.Error(err)
		}
		if err := p.Raise(t.Context(), a.Hold, g.Token+5); err != nil {
			t.Error(err)
		}
		if id, _, err := p.Incarnation(t.Context()); err != nil || id == "" {
			t.Errorf("Incarnation: %q, %v", id, err)
		}
		n := 0
		for r, err := range p.List(t.Context(), "") {
			if err != nil || len(r.Holds) != 1 {
				t.Errorf("List: %+v, %v", r, err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("%d names are listed", n)
		}
		if err := p.Release(t.Context(), a.Hold, driver.End{}); err != nil {
			t.Error(err)
		}
		w.mustHear("it was released")
		w.leave()
		short := request("orders")
		short.TTL = 100 * time.Millisecond
		if place, err = p.Enter(t.Context(), short); err == nil {
			_, err = place.Try(t.Context(), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		place.Leave(t.Context())
	}
	everything("tracking")
	s.Do("ACL", "SETUSER", "pawl", "-client|tracking")
	everything("polling")
	// All of them are used.
	for _, rule := range acl {
		c, ok := strings.CutPrefix(rule, "+")
		if ok && calls(s, c) == 0 && !slices.Contains([]string{"info"}, c) { // commands leaves INFO out
			t.Errorf("%s is documented as needed, but was not used", rule)
		}
	}
}
