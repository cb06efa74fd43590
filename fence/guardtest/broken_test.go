package guardtest_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
)

// broken is a guard with one mistake. The suite must see each.
type broken struct {
	mu     sync.Mutex
	v      int
	mark   fence.Proof
	shared int64

	mistake string
}

func (b *broken) claim(l fence.Lease, shared, writes bool) error {
	p, err := fence.Show("r", l)
	if b.mistake == "asks no lease" && l != nil && l.Token() > 0 {
		p, err = fence.Proof{Token: l.Token(), Hold: l.(interface{ ID() string }).ID()}, nil
	}
	if err != nil {
		return err
	}
	if b.mistake == "checks the write only" && !writes {
		return nil
	}
	less := func(x, y int64) bool { return x < y }
	switch b.mistake {
	case "compares as text":
		less = func(x, y int64) bool { return strconv.FormatInt(x, 10) < strconv.FormatInt(y, 10) }
	case "compares as float":
		less = func(x, y int64) bool { return float64(x) < float64(y) }
	case "folds case":
		p.Hold = strings.ToLower(p.Hold)
	case "forgets the hold":
		p.Hold = ""
	case "takes no repetition":
		if p == b.mark {
			return &fence.StaleError{Resource: "r", Token: p.Token, Seen: p.Token}
		}
	}
	seen := b.mark.Token
	old := less(p.Token, seen) || p.Token == seen && p.Hold != b.mark.Hold
	if !shared && b.mistake != "forgets the readers" {
		old = old || less(p.Token, b.shared)
		seen = max(seen, b.shared)
	}
	if b.mistake == "checks nothing" {
		old = false
	}
	switch {
	case old:
		return &fence.StaleError{Resource: "r", Token: p.Token, Seen: seen}
	case shared && b.mistake != "takes readers for writers":
		b.shared = max(b.shared, p.Token)
		if b.mistake == "keeps the last reader" {
			b.shared = p.Token
		}
	default:
		b.mark = p
	}
	return nil
}

func (b *broken) read(l fence.Lease, shared bool) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.v, b.claim(l, shared, false)
}

func (b *broken) Read(_ context.Context, l fence.Lease) (int, error)       { return b.read(l, false) }
func (b *broken) ReadShared(_ context.Context, l fence.Lease) (int, error) { return b.read(l, true) }

func (b *broken) Write(_ context.Context, l fence.Lease, v int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mistake == "writes first" {
		b.v = v
	}
	err := b.claim(l, false, true)
	if err != nil {
		return err
	}
	if b.mistake == "lets go between" {
		b.mu.Unlock()
		time.Sleep(3 * time.Millisecond) // long enough for a newer holder to read
		b.mu.Lock()
	}
	b.v = v
	return nil
}

// shop opens registers; some mistakes are about which.
func shop(mistake string) func(string) guardtest.Register {
	var mu sync.Mutex
	all := map[string]*broken{}
	return func(resource string) guardtest.Register {
		mu.Lock()
		defer mu.Unlock()
		if mistake == "trims names" {
			resource = strings.TrimSpace(resource)
		}
		r := all[resource]
		if r == nil {
			r = &broken{mistake: mistake}
			all[resource] = r
		}
		return r
	}
}

func TestSuiteSeesMistakes(t *testing.T) {
	t.Parallel()
	for mistake, wants := range map[string]string{
		"":                          "",
		"asks no lease":             "ended",
		"checks nothing":            "order numbers shared holds pause",
		"checks the write only":     "order pause",
		"compares as text":          "numbers",
		"compares as float":         "numbers",
		"folds case":                "holds",
		"forgets the hold":          "order holds",
		"takes no repetition":       "order",
		"forgets the readers":       "shared",
		"takes readers for writers": "shared",
		"keeps the last reader":     "shared",
		"writes first":              "order pause",
		"lets go between":           "torture",
		"trims names":               "names",
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			for _, c := range guardtest.Cases() {
				err := c.Check(t.Context(), shop(mistake))
				want := strings.Contains(wants, c.Name)
				if want && err == nil {
					t.Errorf("the case %q sees nothing", c.Name)
				}
				if mistake == "" && err != nil {
					t.Errorf("the case %q: %v", c.Name, err)
				}
			}
		})
	}
}
