package drivertest

import (
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/driver"
)

// Rule is one sentence of the contract and the test of it.
type Rule struct {
	Area, Name, Sentence string

	each  []driver.Kind // run once for each of these that is carried; nil: once
	with  []driver.Kind // runs only if all of these are carried, for the first; nil: for the first of alone that is carried
	needs powers
	slow  bool // sleeps, or waits for a driver that may poll: in real time it runs beside others
	check func(c *run)
}

// String is the rule's name as a subtest: "area/name".
func (r Rule) String() string { return r.Area + "/" + r.Name }

// Rules lists every rule, area by area.
func Rules() []Rule {
	var all []Rule
	for _, area := range []struct {
		name  string
		rules []Rule
	}{
		{"exclusion", exclusionRules},
		{"tokens", tokenRules},
		{"renewal", renewalRules},
		{"release", releaseRules},
		{"waiting", waitingRules},
		{"cancellation", cancellationRules},
		{"unknown outcome", unknownRules},
		{"read-write", readWriteRules},
		{"fair", fairRules},
		{"semaphore", semaphoreRules},
		{"names", nameRules},
		{"inspect", inspectRules},
		{"once", onceRules},
		{"leader", leaderRules},
		{"attach", attachRules},
		{"raise", raiseRules},
		{"join", joinRules},
		{"close", closeRules},
		{"secrets", secretRules},
	} {
		for _, r := range area.rules {
			r.Area = area.name
			all = append(all, r)
		}
	}
	return all
}

var (
	// alone are the kinds that exclude all others of their name while they are held.
	alone = []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Leader, driver.Once}

	// single are those, and the semaphore of one permit.
	single = append(slices.Clone(alone), driver.Permits)

	everyKind = append(slices.Clone(single), driver.Read)
)

// Applies reports whether the rule applies to a driver that h.Open made.
func (r Rule) Applies(h Harness, d driver.Driver) bool { return len(r.leaves(h, powersOf(d))) > 0 }

// Check runs this one rule, for each kind that it is about, in the caller's goroutine (and bubble, whatever h.Bubble says:
// give the Slack that goes with it). It fails t when the rule is broken, and when it does not apply to the driver.
func (r Rule) Check(t testing.TB, h Harness) {
	h = h.withDefaults()
	d := h.Open(t)
	can := powersOf(d)
	d.Close()
	leaves := r.leaves(h, can)
	if len(leaves) == 0 {
		t.Fatalf("%s does not apply to this driver", r)
	}
	for _, l := range leaves {
		l.check(t, h)
	}
}

// leaf is one rule for one kind.
type leaf struct {
	Rule
	kind driver.Kind
}

func (r Rule) leaves(h Harness, can powers) []leaf {
	if can |= h.powers(); r.needs&^can != 0 || !h.carries(r.with...) {
		return nil
	}
	var out []leaf
	for _, k := range r.each {
		if h.carries(k) {
			out = append(out, leaf{r, k})
		}
	}
	switch {
	case r.each != nil:
	case len(r.with) > 0:
		out = append(out, leaf{r, r.with[0]})
	default:
		if i := slices.IndexFunc(alone, func(k driver.Kind) bool { return h.carries(k) }); i >= 0 {
			out = append(out, leaf{r, alone[i]})
		}
	}
	return out
}

func (l leaf) run(t *testing.T, h Harness) {
	name := l.String()
	if l.each != nil {
		name += "/" + l.kind.String()
	}
	t.Run(name, func(t *testing.T) {
		h.bubble(t, func(t *testing.T) { l.check(t, h) })
	})
}

func (l leaf) check(t testing.TB, h Harness) {
	t.Helper()
	c := newRun(t, h, l)
	defer c.end()
	l.Rule.check(c)
}
