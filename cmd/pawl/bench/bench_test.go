package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{5, 5, 5, 5}, 1}, {[]float64{8, 0, 0, 0}, 0.25}, {[]float64{1, 3}, 0.8}, {[]float64{0, 0}, 0},
	} {
		if got := jain(c.xs); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("jain(%v) = %v, want %v", c.xs, got, c.want)
		}
	}
}

func TestMedians(t *testing.T) {
	var r Result
	r.fill([]sample{{"cycles_per_s": 9, "jain": 1}, {"cycles_per_s": 1}, {"cycles_per_s": 4}, {"cycles_per_s": 6}})
	if *r.CyclesPerS != 5 || r.Spread["cycles_per_s"] != [2]float64{1, 9} || r.Rounds != 4 || *r.Jain != 1 || r.P50 != nil {
		t.Errorf("%+v", r)
	}
	var o Result
	o.fill([]sample{{"cycles_per_s": 3}, {"cycles_per_s": 1}, {"cycles_per_s": 0}})
	if mid, low, high, ok := Ratio(&r, &o, "cycles_per_s", 0.5); !ok || mid != 3 || low != 1 || high != 8 {
		t.Errorf("ratio %v, from %v to %v, %v: want that of each round: 3, 1 and 8", mid, low, high, ok)
	}
	if _, _, _, ok := Ratio(&r, nil, "cycles_per_s", 0); ok {
		t.Error("a ratio to nothing")
	}
}

// TestJSON: the names of fields are a promise.
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, []Result{{Case: "hot-1"}}); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(`case backend client goroutines processes cycles_per_s p50_us p99_us max_us commands_per_cycle
		jain client_cpu_us_per_cycle heap_bytes_per_item goroutines_per_item`) {
		if _, ok := got[0][name]; !ok {
			t.Errorf("no field %q", name)
		}
	}
	for name := range (&Result{}).fields() {
		if _, ok := got[0][name]; !ok {
			t.Errorf("a measure is called %q, and no field is", name)
		}
	}
}

func TestCompare(t *testing.T) {
	one := func(name string, fill sample) Result {
		r := Result{Case: name, Backend: "redis", Client: "pawl"}
		r.fill([]sample{fill})
		return r
	}
	for _, c := range []struct {
		name      string
		old, now  sample
		tolerance float64
		worse     string
	}{
		{"hot-1", sample{"cycles_per_s": 1000}, sample{"cycles_per_s": 901}, 0.1, ""},
		{"hot-1", sample{"cycles_per_s": 1000}, sample{"cycles_per_s": 899}, 0.1, "cycles_per_s"},
		{"hot-1", sample{"cycles_per_s": 1000}, sample{"cycles_per_s": 3000}, 0.1, ""},
		{"hot-1", sample{"commands_per_cycle": 0.003}, sample{"commands_per_cycle": 0.03}, 0.1, ""},
		{"hot-1", sample{"commands_per_cycle": 2}, sample{"commands_per_cycle": 3}, 0.1, "commands_per_cycle"},
		{"handover", sample{"p50_us": 500}, sample{"p50_us": 700}, 0.2, "p50_us"},
		{"handover", sample{"p50_us": 500}, sample{"p50_us": 590}, 0.2, ""},
		{"hot-1", sample{"p50_us": 500}, sample{"p50_us": 5000}, 0.2, ""},
		{"held", sample{"heap_bytes_per_item": 500}, sample{"heap_bytes_per_item": 900}, 0.2, "heap_bytes_per_item"},
	} {
		worse, err := Compare(&bytes.Buffer{}, []Result{one(c.name, c.old)}, []Result{one(c.name, c.now)}, c.tolerance)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(worse, " "); (c.worse == "") != (got == "") || !strings.Contains(got, c.worse) {
			t.Errorf("%s: from %v to %v: worse is %q, want %q", c.name, c.old, c.now, got, c.worse)
		}
	}
	failed := Result{Case: "hot-1", Backend: "redis", Client: "pawl", Error: "no answer"}
	if worse, _ := Compare(&bytes.Buffer{}, []Result{one("hot-1", sample{"cycles_per_s": 1})}, []Result{failed}, 9); len(worse) != 1 {
		t.Errorf("a failure is not worse: %q", worse)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		x      float64
		digits int
		want   string
	}{{0, 0, "0"}, {999, 0, "999"}, {1000, 0, "1,000"}, {1234567.891, 2, "1,234,567.89"}, {-1234, 0, "-1,234"}, {-123, 0, "-123"}, {0.0031, 3, "0.003"}} {
		if got := Number(&c.x, c.digits); got != c.want {
			t.Errorf("Number(%v, %d) = %q, want %q", c.x, c.digits, got, c.want)
		}
	}
	for _, c := range []struct {
		us   float64
		want string
	}{{0.12, "120 ns"}, {1.5, "1.5 µs"}, {99.9, "99.9 µs"}, {150, "150 µs"}, {2500, "2.5 ms"}, {150_000, "150 ms"}} {
		if got := Micros(&c.us); got != c.want {
			t.Errorf("Micros(%v) = %q, want %q", c.us, got, c.want)
		}
	}
	if Micros(nil) != "-" || Number(nil, 0) != "-" {
		t.Error("what is not known is -")
	}
}

func TestFileName(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"hot-1.redis.pawl", "hot-1.redis.pawl"}, {"bsm/redislock", "bsm-redislock"}, {"SET NX PX, every 10 ms", "SET-NX-PX--every-10-ms"},
		{"a\\b:c*d?e\"f<g>h|i\x00j\nk\xff", "a-b-c-d-e-f-g-h-i-j-k-"}, {"café_1", "café_1"},
	} {
		if got := fileName(c.text); got != c.want {
			t.Errorf("fileName(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestAuthority(t *testing.T) {
	for _, c := range []struct{ rest, hosts, user string }{
		{"//a:1,b:2/path", "a:1,b:2", ""}, {"//me:p@ss@a:1,b?x=1", "a:1,b", "me:p@ss@"}, {"//h", "h", ""},
	} {
		if hosts(c.rest) != c.hosts || user(c.rest) != c.user {
			t.Errorf("%s: hosts %q, user %q", c.rest, hosts(c.rest), user(c.rest))
		}
	}
}
