package broken

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl/drivertest"
)

// What the mutants are made from is in order.
func TestSound(t *testing.T) { drivertest.Run(t, Sound()) }

// Every rule can fail.
func TestEveryRuleHasAMutant(t *testing.T) {
	mutants := map[string]int{}
	for _, m := range Mutants() {
		mutants[m.Rule]++
	}
	for _, r := range drivertest.Rules() {
		if mutants[r.String()] == 0 {
			t.Errorf("no broken driver for %s: %s", r, r.Sentence)
		}
		delete(mutants, r.String())
	}
	for rule := range mutants {
		t.Errorf("a broken driver for %q, but there is no such rule", rule)
	}
}

// Every mutant fails its rule, and says which.
func TestMutants(t *testing.T) {
	rules := map[string]drivertest.Rule{}
	for _, r := range drivertest.Rules() {
		rules[r.String()] = r
	}
	for _, m := range Mutants() {
		t.Run(m.Rule+"/"+m.Fault, func(t *testing.T) {
			rule, ok := rules[m.Rule]
			if !ok {
				t.Fatalf("there is no rule %q", m.Rule)
			}
			rec := check(t, rule, m.Harness())
			if !rec.failed {
				t.Fatalf("a driver that %s passes: %s", m.Fault, rule.Sentence)
			}
			if said := strings.Join(rec.said, "\n"); !strings.Contains(said, rule.Sentence) {
				t.Errorf("the failure does not print the rule:\n%s", said)
			} else {
				t.Log(said)
			}
		})
	}
}

// check runs one rule in a bubble of its own and records what it says instead of failing t.
func check(t *testing.T, rule drivertest.Rule, h drivertest.Harness) (rec *recorder) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		rec = &recorder{TB: t, ctx: ctx}
		done := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(done)
			defer rec.cleanUp()
			defer cancel()
			rule.Check(rec, h)
		}()
		<-done
	})
	return rec
}

// recorder is a testing.TB whose failures are news, not failures.
type recorder struct {
	testing.TB
	ctx context.Context

	mu      sync.Mutex
	failed  bool
	said    []string
	cleanup []func()
}

func (r *recorder) say(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, s)
}

func (r *recorder) cleanUp() {
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Log(args ...any)          { r.say(fmt.Sprint(args...)) }
func (r *recorder) Logf(f string, args ...any) {
	r.say(fmt.Sprintf(f, args...))
}
func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}
func (r *recorder) Error(args ...any) {
	r.Log(args...)
	r.Fail()
}
func (r *recorder) Errorf(f string, args ...any) {
	r.Logf(f, args...)
	r.Fail()
}
func (r *recorder) Fatal(args ...any) {
	r.Log(args...)
	r.FailNow()
}
func (r *recorder) Fatalf(f string, args ...any) {
	r.Logf(f, args...)
	r.FailNow()
}
