package clienttest

import (
	"testing"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// Case is one promise and the test of it.
type Case struct {
	Area, Name, Sentence string

	flavours []flavour     // run once for each of these that the store carries; nil: once
	with     []driver.Kind // runs only if all of these are carried
	needs    powers
	lacks    bool // is about what is missing
	check    func(c *run)
}

// String is the case's name as a subtest: "area/name".
func (cs Case) String() string { return cs.Area + "/" + cs.Name }

// Cases lists every case, area by area.
func Cases() []Case {
	var all []Case
	for _, area := range []struct {
		name  string
		cases []Case
	}{
		{"schedule", scheduleCases}, // the longest first
		{"loss", lossCases},
		{"close", closeCases},
		{"election", electionCases},
		{"once", onceCases},
		{"exclusion", exclusionCases},
		{"waiting", waitingCases},
		{"all", allCases},
		{"striped", stripedCases},
		{"detach", detachCases},
		{"fence", fenceCases},
		{"inspect", inspectCases},
		{"unsupported", unsupportedCases},
		{"server", serverCases},
	} {
		for _, cs := range area.cases {
			cs.Area = area.name
			all = append(all, cs)
		}
	}
	return all
}

// flavour is one way to lock a name.
type flavour struct {
	name string
	with []driver.Kind
	lock func(c *pawl.Client, name string) pawl.Locker
}

var (
	mutex = flavour{"mutex", []driver.Kind{driver.Exclusive}, func(c *pawl.Client, name string) pawl.Locker { return c.Mutex(name) }}
	fair  = flavour{"fair mutex", []driver.Kind{driver.Fair}, func(c *pawl.Client, name string) pawl.Locker { return c.FairMutex(name) }}
	write = flavour{"write lock", []driver.Kind{driver.Read, driver.Write}, func(c *pawl.Client, name string) pawl.Locker { return c.RWMutex(name) }}
	one   = flavour{"semaphore of one", []driver.Kind{driver.Permits}, func(c *pawl.Client, name string) pawl.Locker { return c.Semaphore(name, 1) }}

	// exclusive are those that let in one holder.
	exclusive = []flavour{mutex, fair, write, one}
)

// Applies reports whether the case applies to the store of h, of which d is a driver.
func (cs Case) Applies(h Harness, d driver.Driver) bool { return len(cs.leaves(h, powersOf(d))) > 0 }

// Check runs this one case in the caller's goroutine (and bubble, whatever h.Bubble says: give the Slack that goes with
// it). It fails t when the promise is broken, and when the case does not apply to the store.
func (cs Case) Check(t testing.TB, h Harness) {
	h = h.withDefaults()
	d := h.Open(t)
	can := powersOf(d)
	d.Close()
	leaves := cs.leaves(h, can)
	if len(leaves) == 0 {
		t.Fatalf("%s does not apply to this store", cs)
	}
	for _, l := range leaves {
		l.check(t, h)
	}
}

// leaf is one case in one flavour.
type leaf struct {
	Case
	flavour
}

func (cs Case) leaves(h Harness, can powers) []leaf {
	if cs.lacks {
		if can&(inspects|attaches) == inspects|attaches && h.carries(everyKind...) {
			return nil
		}
		return []leaf{{cs, mutex}}
	}
	if can |= h.powers(); cs.needs&^can != 0 || !h.carries(cs.with...) {
		return nil
	}
	if cs.flavours == nil {
		return []leaf{{cs, mutex}}
	}
	var out []leaf
	for _, f := range cs.flavours {
		if h.carries(f.with...) {
			out = append(out, leaf{cs, f})
		}
	}
	return out
}

func (l leaf) String() string {
	if l.flavours == nil {
		return l.Case.String()
	}
	return l.Case.String() + "/" + l.flavour.name
}

func (l leaf) run(t *testing.T, h Harness) {
	t.Run(l.String(), func(t *testing.T) {
		h.bubble(t, func(t *testing.T) { l.check(t, h) })
	})
}

func (l leaf) check(t testing.TB, h Harness) {
	t.Helper()
	c := newRun(t, h, l)
	defer c.end()
	l.Case.check(c)
}
