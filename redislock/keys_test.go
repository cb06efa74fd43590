package redislock

import (
	"testing"
)

func TestNames(t *testing.T) {
	t.Parallel()
	const owner = "U:7"
	for _, c := range []struct{ what, got, want string }{
		{"lock channel", keysOf("orders").lockChannel(), "redisson_lock__channel:{orders}"},
		{"token", keysOf("orders").counter(), "redisson_lock_token:{orders}"},
		{"fair queue", keysOf("orders").queue(), "redisson_lock_queue:{orders}"},
		{"fair deadlines", keysOf("orders").queueDue(), "redisson_lock_timeout:{orders}"},
		{"read/write channel", keysOf("orders").rwChannel(), "redisson_rwlock:{orders}"},
		{"read hold", keysOf("orders").readHold(owner), "{orders}:U:7:rwlock_timeout:1"},
		{"semaphore channel", keysOf("orders").semChannel(), "redisson_sc:{orders}"},
		{"permit set", keysOf("orders").set(), "{orders}:timeout"},
		{"lock channel", keysOf("{t1}:orders").lockChannel(), "redisson_lock__channel:{t1}:orders"},
		{"read hold", keysOf("{t1}:orders").readHold(owner), "{t1}:orders:U:7:rwlock_timeout:1"},
		{"permit set", keysOf("{t1}:orders").set(), "{t1}:orders:timeout"},
		{"line", keysOf("orders").line(), "pawl_line:{orders}"},
		{"line", keysOf("{t1}:orders").line(), "pawl_line::{t1}:orders"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, right is %q", c.what, c.got, c.want)
		}
	}
}

// No key that is derived from one name is derived from another, or is the name of a lock.
func FuzzNamesNeverMeet(f *testing.F) {
	for _, n := range []string{"orders", "{orders}", "a{b", "a}b", "{a}b}", "a{}b", "{", "}", "{}", "", ":", "{a}:timeout", "pawl_line:{a}", "redisson_lock_queue:{a}", "\x00", "a:U:7:rwlock_timeout:1"} {
		f.Add(n, "orders")
		f.Add(n, "{"+n+"}")
		f.Add(n, n+":timeout")
	}
	all := func(name string) []string {
		k := keysOf(name)
		return []string{name, k.line(), k.due(), k.token(), k.held(), k.permits(), k.lock(), k.queue(), k.queueDue(), k.set()}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == b || a == "" || b == "" || checkName(a, false) != nil || checkName(b, false) != nil {
			return
		}
		seen := map[string]bool{}
		for _, k := range all(a) {
			seen[k] = true
		}
		for i, k := range all(b) {
			if seen[k] {
				t.Errorf("%q and %q share the key %q (number %d)", a, b, k, i)
			}
		}
	})
}

func TestClusterNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"orders": true, "{t1}:orders": true, "a{b}c": true, "x:{t}": true,
		"a{b": false, "a}b": false, "a{}b": false, "}{a}": false, "{}x": false,
	} {
		if err := checkName(name, true); (err == nil) != ok {
			t.Errorf("%q on a cluster: %v", name, err)
		}
	}
}

func TestPermitNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, id := range []string{"U:1", "U:11", "U:1/1", "V:1"} {
		for _, n := range permitNames(id, 12) {
			if len(n) != 16 || seen[n] {
				t.Errorf("permit %x of %q", n, id)
			}
			seen[n] = true
		}
	}
	if got := permitNames("00112233445566778899aabbccddeeff", 1); len(got) != 1 || got[0] != "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff" {
		t.Errorf("a foreign permit is %q", got)
	}
}

func TestErrorCodes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                                           "OOM",
		"ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -OOM command not allowed": "OOM",
		"ERR unknown": "ERR",
		"":            "",
	} {
		if got := code(text); got != want {
			t.Errorf("the code of %q is %q, right is %q", text, got, want)
		}
	}
}

func TestRecent(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"6.2.0": true, "7.0.15": true, "10.1": true, "6.0.16": false, "5.0.7": false, "": false, "x.y": false} {
		if got := recent(version); got != want {
			t.Errorf("version %q: %v", version, got)
		}
	}
}

func TestKeysTogether(t *testing.T) {
	for _, name := range []string{"a", "stock:1001", "{a}", "{a}b", "x{y}z"} {
		k := keysOf(name)
		if got, want := k.toLock(), [4]string{k.main, k.due(), k.lock(), k.token()}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got, want := k.toUnlock(), [4]string{k.main, k.due(), k.queue()}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
