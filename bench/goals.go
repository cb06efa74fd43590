package main

import (
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// verdict is one goal with the figure that was measured.
type verdict struct {
	what, goal    string
	pawl, beside  string
	ratio, spread string
	hit           bool
	known         bool // false: something that it needs was not measured, or failed
}

// judge is what was measured, for goals.
type judge struct {
	rs  []bench.Result
	out []verdict
}

func (j *judge) pawl(name, backend string) *bench.Result {
	return bench.Find(j.rs, name, backend, "pawl")
}

// plain is no library but two commands, which nobody else's wait disturbs when keys are not shared: it is judged by itself there.
const plain = "SET NX PX, every 10 ms"

// best is the peer with the best measure, and its name.
func (j *judge) best(name, backend, field string, more bool) *bench.Result {
	var best *bench.Result
	for _, client := range clients[backend] {
		r := bench.Find(j.rs, name, backend, client)
		if client == "pawl" || client == limit || r == nil || client == plain && strings.HasPrefix(name, "uncontended-") && name != "uncontended-1" {
			continue
		}
		x, ok := r.Get(field)
		if !ok {
			continue
		}
		if best == nil {
			best = r
			continue
		}
		if y, _ := best.Get(field); more && x > y || !more && x < y {
			best = r
		}
	}
	return best
}

// show prints a measure of a result.
func show(r *bench.Result, field string) string {
	x, ok := r.Get(field)
	if !ok {
		return "-"
	}
	switch {
	case field == "cycles_per_s":
		return bench.Number(&x, 0) + "/s"
	case strings.HasSuffix(field, "_us"):
		return bench.Micros(&x)
	case field == "heap_bytes_per_item":
		return bench.Number(&x, 0) + " B"
	case field == "commands_per_s":
		return bench.Number(&x, 1) + "/s"
	}
	return bench.Number(&x, 3)
}

// ratio judges pawl beside another result: at least bound times as much, or at most.
func (j *judge) ratio(what string, a, b *bench.Result, field string, atLeast bool, bound float64, length float64) {
	v := verdict{what: what}
	v.goal = fmt.Sprintf("≤ %g ×", bound)
	if atLeast {
		v.goal = fmt.Sprintf("≥ %g ×", bound)
	}
	least := 0.0
	if field == "cycles_per_s" {
		least = 1 / length
	}
	mid, low, high, ok := bench.Ratio(a, b, field, least)
	v.known = ok
	if a != nil {
		v.pawl = show(a, field)
	}
	if b != nil {
		v.beside = show(b, field) + " " + b.Client
	}
	if ok {
		v.ratio, v.spread = times(mid), times(low)+" – "+times(high)
		v.hit = atLeast && mid >= bound || !atLeast && mid <= bound
	}
	j.out = append(j.out, v)
}

func times(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f ×", x)
	case x >= 10:
		return fmt.Sprintf("%.1f ×", x)
	}
	return fmt.Sprintf("%.2f ×", x)
}

// bound judges a measure of pawl's alone.
func (j *judge) bound(what string, r *bench.Result, field string, atLeast bool, bound float64, goal string) {
	v := verdict{what: what, goal: goal}
	x, ok := r.Get(field)
	if v.known = ok; ok {
		v.pawl = show(r, field)
		v.hit = atLeast && x >= bound || !atLeast && x <= bound
		if s, ok := r.Spread[field]; ok {
			v.spread = spread(s, field)
		}
	}
	j.out = append(j.out, v)
}

func spread(s [2]float64, field string) string {
	if strings.HasSuffix(field, "_us") {
		return bench.Micros(&s[0]) + " – " + bench.Micros(&s[1])
	}
	digits := 3
	if strings.HasPrefix(field, "heap") {
		digits = 0
	} else if field == "commands_per_s" {
		digits = 1
	}
	return bench.Number(&s[0], digits) + " – " + bench.Number(&s[1], digits)
}

// shares judges how four processes share a hot key.
func (j *judge) shares(what string, r *bench.Result, low, high float64, goal string) {
	v := verdict{what: what, goal: goal}
	a, ok1 := r.Get("lowest_share")
	b, ok2 := r.Get("highest_share")
	if v.known = ok1 && ok2; v.known {
		v.pawl = fmt.Sprintf("%.1f – %.1f %%", 100*a, 100*b)
		v.hit = a >= low && b <= high
		v.spread = fmt.Sprintf("%.1f – %.1f %%", 100*r.Spread["lowest_share"][0], 100*r.Spread["highest_share"][1])
	}
	j.out = append(j.out, v)
}

// patience judges the longest wait beside the mean one.
func (j *judge) patience(what string, r *bench.Result) {
	v := verdict{what: what + ": longest wait", goal: "≤ 20 × the mean"}
	mean, ok1 := r.Get("mean_us")
	most, ok2 := r.Get("max_us")
	if v.known = ok1 && ok2 && mean > 0; v.known {
		v.pawl = bench.Micros(&most)
		v.beside = bench.Micros(&mean) + " mean"
		v.ratio = times(most / mean)
		v.hit = most <= 20*mean
	}
	j.out = append(j.out, v)
}

// judgeAll has every goal of the project, in their order.
func judgeAll(rs []bench.Result, length float64) []verdict {
	j := &judge{rs: rs}
	const more, less = true, false

	u1 := j.pawl("uncontended-1", "redis")
	j.ratio("Redis, uncontended-1, p50", u1, j.best("uncontended-1", "redis", "p50_us", less), "p50_us", less, 0.8, length)
	j.ratio("Redis, uncontended-1, p50, beside the raw pair", u1, bench.Find(rs, "uncontended-1", "redis", limit), "p50_us", less, 1.25, length)
	j.ratio("Redis, uncontended-16", j.pawl("uncontended-16", "redis"), j.best("uncontended-16", "redis", "cycles_per_s", more), "cycles_per_s", more, 1.5, length)
	for _, name := range []string{"uncontended-256", "uncontended-1000"} {
		p := j.pawl(name, "redis")
		j.ratio("Redis, "+name, p, j.best(name, "redis", "cycles_per_s", more), "cycles_per_s", more, 3, length)
		j.ratio("Redis, "+name+", beside the limit", p, bench.Find(rs, name, "redis", limit), "cycles_per_s", more, 0.55, length)
		j.ratio("Redis, "+name+", p99", p, j.best(name, "redis", "p99_us", less), "p99_us", less, 0.35, length)
	}
	for _, name := range []string{"uncontended-16", "uncontended-256", "uncontended-1000"} {
		j.ratio("Redis, "+name+", beside plain SET NX PX", j.pawl(name, "redis"), bench.Find(rs, name, "redis", plain), "cycles_per_s", more, 1, length)
	}
	h1 := j.pawl("hot-1", "redis")
	j.ratio("Redis, hot-1", h1, j.best("hot-1", "redis", "cycles_per_s", more), "cycles_per_s", more, 20, length)
	j.bound("Redis, hot-1, Jain over goroutines", h1, "jain", more, 0.98, "≥ 0.98")
	j.bound("Redis, hot-1, goroutines starved", h1, "starved", less, 0, "0")
	j.bound("Redis, hot-1, commands a cycle", h1, "commands_per_cycle", less, 0.1, "≤ 0.1")
	h4 := j.pawl("hot-4", "redis")
	j.ratio("Redis, hot-4", h4, j.best("hot-4", "redis", "cycles_per_s", more), "cycles_per_s", more, 20, length)
	j.shares("Redis, hot-4, share of each process", h4, 0.22, 0.28, "25 % ± 3")
	j.bound("Redis, hot-4, commands a cycle", h4, "commands_per_cycle", less, 0.15, "≤ 0.15")
	j.ratio("Redis, handover, p50", j.pawl("handover", "redis"), j.best("handover", "redis", "p50_us", less), "p50_us", less, 0.8, length)
	j.ratio("etcd, handover, p50", j.pawl("handover", "etcd"), bench.Find(rs, "handover", "etcd", "concurrency.Mutex"), "p50_us", less, 0.1, length)
	idle := j.pawl("idle", "redis")
	j.bound("Redis, idle: 1,000 waiters, commands", idle, "commands_per_s", less, 5, "≤ 5/s")
	j.bound("Redis, idle, goroutines besides the caller's, each", idle, "goroutines_per_item", less, 0.01, "0")
	j.bound("Redis, idle, heap each", idle, "heap_bytes_per_item", less, 2560, "≤ 2.5 KiB")
	held := j.pawl("held", "redis")
	j.bound("Redis, held: 10,000 leases, renewal commands", held, "commands_per_s", less, 20, "≤ 20/s")
	j.bound("Redis, held, heap each", held, "heap_bytes_per_item", less, 512, "≤ 512 B")
	j.bound("Redis, held, goroutines each", held, "goroutines_per_item", less, 0.01, "0")
	for _, s := range []struct {
		name, backend, peer string
		bound               float64
	}{
		{"etcd", "etcd", "concurrency.Mutex", 50}, {"ZooKeeper", "zk", "go-zookeeper Lock", 30},
		{"MySQL", "mysql", "table, every 10 ms", 50}, {"PostgreSQL", "postgres", "table, every 10 ms", 50},
	} {
		for _, name := range []string{"hot-1", "hot-4"} {
			p := j.pawl(name, s.backend)
			j.ratio(s.name+", "+name, p, bench.Find(rs, name, s.backend, s.peer), "cycles_per_s", more, s.bound, length)
			j.bound(s.name+", "+name+", Jain over goroutines", p, "jain", more, 0.98, "≥ 0.98")
		}
		j.shares(s.name+", hot-4, share of each process", j.pawl("hot-4", s.backend), 0.22, 0.28, "25 % ± 3")
	}
	for _, s := range []struct {
		name, backend, peer string
		bound               float64
	}{
		{"etcd", "etcd", "concurrency.Mutex", 0.95}, {"MySQL", "mysql", "table, every 10 ms", 0.95},
		{"PostgreSQL", "postgres", "table, every 10 ms", 0.95}, {"ZooKeeper", "zk", "go-zookeeper Lock", 1.25},
	} {
		for _, name := range []string{"uncontended-1", "uncontended-1000"} {
			j.ratio(s.name+", "+name, j.pawl(name, s.backend), bench.Find(rs, name, s.backend, s.peer), "cycles_per_s", more, s.bound, length)
		}
	}
	j.ratio("Redis, linger, p50, beside uncontended-1 of the best peer", j.pawl("linger", "redis"), j.best("uncontended-1", "redis", "p50_us", less), "p50_us", less, 0.01, length)
	for _, st := range []string{"redis", "etcd", "zk", "mysql", "postgres", "sqlite"} {
		for _, name := range []string{"hot-1", "hot-4"} {
			j.patience(st+", "+name, j.pawl(name, st))
		}
		j.shares(st+", hot-4, smallest share", j.pawl("hot-4", st), 0.15, 1, "≥ 15 %")
	}
	return j.out
}
