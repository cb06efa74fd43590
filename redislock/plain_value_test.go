package redislock

import (
	"strings"
	"testing"
)

func TestValueOfPlain(t *testing.T) {
	t.Parallel()
	const uuid = "0f6b9d5e-1c2a-4b3d-8e4f-5a6b7c8d9e0f"
	ids := []string{uuid + ":1", uuid + ":10", uuid + ":18446744073709551615", uuid + ":01", uuid + ":", uuid + ":-1", uuid + ":1:2",
		uuid, strings.ToUpper(uuid) + ":1", strings.ReplaceAll(uuid, "-", "") + ":1", "test:1", "x", strings.Repeat("é", 200)}
	values := map[string]string{}
	for _, id := range ids {
		for what, v := range map[string]string{id: value(id), id + ", kept": kept(id)} {
			if len(v) != 49 || strings.Trim(v, "0123456789abcdefhkp") != "" {
				t.Errorf("the value of %q is %q", what, v)
			}
			if other, twice := values[v]; twice {
				t.Errorf("%q and %q have one value", what, other)
			}
			values[v] = what
		}
	}
	for _, id := range ids[:3] {
		if got := owner(value(id)); got != id {
			t.Errorf("the value of %q is shown as %q", id, got)
		}
	}
	// What another client put there is nobody's of pawl's.
	for _, v := range []string{"theirs", "", "\x00\xff", "é", value("test:1"), kept(ids[0]), "p" + strings.Repeat("g", 48),
		strings.ToUpper(value(ids[0])), value(ids[0])[1:], value(ids[0]) + "0", "sha1:x", uuid + ":1"} {
		if id := owner(v); len(id) != 45 || !strings.HasPrefix(id, valueForeign) || value(id) != id {
			t.Errorf("%q is shown as %q, which is asked for as %q", v, id, value(id))
		}
	}
}
