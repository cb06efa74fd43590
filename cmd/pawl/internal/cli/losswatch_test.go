package cli

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

const ms = driver.Instant(time.Millisecond)

func TestLossWatch(t *testing.T) {
	type at struct {
		now, deadline driver.Instant // in ms
		lost          bool
		want          action
		next          driver.Instant
	}
	for name, c := range map[string]struct {
		policy lossPolicy
		steps  []at
	}{
		"renewed in time": {lossTerm, []at{
			{0, 1000, false, doNothing, 790},
			{789, 1000, false, doNothing, 790},
			{790, 1300, false, doNothing, 1090}, // renewed at the last moment
			{1089, 1300, false, doNothing, 1090},
		}},
		"not renewed: told a grace before the end, killed before the deadline": {lossTerm, []at{
			{0, 1000, false, doNothing, 790},
			{790, 1000, false, doSignal, 990},
			{791, 1000, false, doNothing, 990},
			{800, 1300, false, doNothing, 990}, // a renewal after that changes nothing
			{990, 1300, false, doKill, 0},
			{991, 1300, true, doNothing, 0},
		}},
		"revoked: told at once, killed after the grace": {lossTerm, []at{
			{0, 1000, false, doNothing, 790},
			{100, 1000, true, doSignal, 300},
			{200, 1000, true, doNothing, 300},
			{300, 1000, true, doKill, 0},
		}},
		"revoked late: killed before the deadline that was": {lossTerm, []at{
			{0, 1000, false, doNothing, 790},
			{780, 1000, true, doSignal, 980},
			{980, 5000, true, doKill, 0},
		}},
		"woken after the deadline": {lossTerm, []at{
			{0, 1000, false, doNothing, 790},
			{5000, 1000, true, doKill, 0},
		}},
		"kill": {lossKill, []at{
			{0, 1000, false, doNothing, 990},
			{989, 1000, false, doNothing, 990},
			{990, 1000, false, doKill, 0},
		}},
		"kill, revoked": {lossKill, []at{
			{0, 1000, false, doNothing, 990},
			{100, 1000, true, doKill, 0},
		}},
		"warn": {lossWarn, []at{
			{0, 1000, false, doNothing, 1000},
			{999, 1000, false, doNothing, 1000},
			{1000, 1000, true, doWarn, 0},
			{2000, 1000, true, doNothing, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := lossWatch{policy: c.policy, grace: 200 * time.Millisecond, lead: 10 * time.Millisecond}
			for i, s := range c.steps {
				act, next := w.step(s.now*ms, s.deadline*ms, s.lost)
				if act != s.want || next != s.next*ms {
					t.Errorf("step %d at %d: %v, next %v; want %v, next %v", i, s.now, act, next/ms, s.want, s.next)
				}
			}
		})
	}
}

// Whatever happens, a command is killed before its lease's last trust deadline, told at most once, and never in silence.
func TestLossWatchAlwaysKillsInTime(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		ttl := time.Duration(100+r.IntN(30000)) * time.Millisecond
		w := lossWatch{policy: lossPolicy(r.IntN(2)), grace: time.Duration(r.Int64N(int64(ttl/3) + 1)), lead: leadOf(ttl)}
		var now driver.Instant = 1
		trust := driver.Instant(ttl - ttl/10)
		deadline := now + trust
		fails := now + driver.Instant(r.Int64N(int64(5*ttl))) // no renewal from here on
		revoked := driver.Instant(1 << 62)
		if r.IntN(2) == 0 {
			revoked = now + driver.Instant(r.Int64N(int64(5*ttl)))
		}
		last, told := deadline, 0
		for step := 0; ; step++ {
			if now < fails && deadline-now < trust-driver.Instant(ttl/3) {
				deadline = now + trust
			}
			lost := now >= revoked || now >= deadline
			if !lost && told == 0 {
				last = deadline
			}
			act, next := w.step(now, deadline, lost)
			if act == doSignal {
				told++
			}
			if act == doKill {
				if now >= last {
					t.Fatalf("seed %d: killed at %v, deadline %v", seed, now, last)
				}
				break
			}
			if g := w.guardAt(); g <= 0 || g >= last {
				t.Fatalf("seed %d: the guard kills at %v, deadline %v", seed, g, last)
			}
			if next <= now || step > 10000 {
				t.Fatalf("seed %d: at %v the next step is %v", seed, now, next)
			}
			next = min(next, now+driver.Instant(ttl/12))
			if now < revoked {
				next = min(next, revoked)
			}
			now = next
		}
		if told > 1 || told == 0 && w.policy == lossTerm && w.grace > 0 {
			t.Fatalf("seed %d: told %d times", seed, told)
		}
	}
}
