package drivertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var nameRules = []Rule{
	{
		Name:     "never meet",
		Sentence: "Two different names never meet in the store, whatever bytes they have.",
		each:     []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Permits},
		check: func(c *run) {
			d1, d2 := c.pair()
			names := nastyNames(c.name)
			var holders []*asker
			for i, name := range names {
				holders = append(holders, c.ask([]driver.Driver{d1, d2}[i%2], named(name)).mustGet())
			}
			for i, a := range holders {
				if err := c.ask(d2, named(names[i])).try(1); !errors.Is(err, driver.ErrHeld) {
					c.failf("%s is held, but another request for it got: %s", show(names[i]), say(err))
				}
				a.mustHold()
			}
			for i := 0; i < len(names); i += 2 {
				holders[i].release()
			}
			for i, a := range holders {
				b := c.ask(d1, named(names[i]))
				if i%2 == 0 {
					b.mustGet().release()
				} else {
					b.mustNotGet()
					a.mustHold()
					a.release()
				}
			}
			for _, name := range names {
				c.ask(d2, named(name)).mustGet().release()
			}
		},
	},
	{
		Name:     "one family at a time",
		Sentence: "A name in use as another family is a *MismatchError, the request changes nothing, and what it says is right or left out.",
		check: func(c *run) {
			d1, d2 := c.pair()
			for _, have := range c.h.Kinds {
				name := named(c.freshName())
				a := c.ask(d1, as(have), name).mustGet()
				for _, want := range c.h.Kinds {
					if want.Family() == have.Family() {
						continue
					}
					b := c.ask(d2, as(want), name, waits)
					err := b.try(1)
					var m *driver.MismatchError
					if !errors.As(err, &m) || !errors.Is(err, driver.ErrMismatch) || errors.Is(err, driver.ErrHeld) {
						c.failf("%s on a name in use as %s should be a *MismatchError, got: %s", want, have, say(err))
					}
					if m.Have != 0 && m.Have.Family() != have.Family() || m.Want != 0 && m.Want.Family() != want.Family() {
						c.failf("the MismatchError says %q, right would be %s and %s", m, have, want)
					}
					b.leave()
				}
				a.mustHold()
				if i, ok := d2.(driver.Inspector); ok {
					if r := c.inspect(i, a.r.Name); len(r.Holds) != 1 || r.Waiters > 0 {
						c.failf("after a mismatch %d holds and %d waiters are shown, right would be 1 and 0", len(r.Holds), r.Waiters)
					}
				}
				a.release()
			}
		},
	},
	{
		Name:     "a free name may be anything",
		Sentence: "A name that is not in use may be taken as any kind and with any limit.",
		check: func(c *run) {
			d1, d2 := c.pair()
			for range 2 {
				for _, k := range c.h.Kinds {
					c.ask(d1, as(k)).mustGet().release()
					if k == driver.Permits {
						c.ask(d2, as(k), permits(2, 3)).mustGet().release()
					}
				}
			}
		},
	},
	{
		Name:     "unknown kinds are unsupported",
		Sentence: "Enter for a kind that the store cannot carry is errors.ErrUnsupported.",
		check: func(c *run) {
			d := c.driver()
			kinds := []driver.Kind{0, 99}
			for _, k := range everyKind {
				if !c.h.carries(k) {
					kinds = append(kinds, k)
				}
			}
			for _, k := range kinds {
				if _, err := d.Enter(c.ctx, c.newAsker(d, as(k)).r); !errors.Is(err, errors.ErrUnsupported) {
					c.failf("Enter for kind %s (%d) should be errors.ErrUnsupported, got: %s", k, k, say(err))
				}
			}
		},
	},
	{
		Name:     "what a stranger destroyed is over",
		Sentence: "When the name's state is destroyed in the store, the hold is ErrNotHeld and the next gets in.",
		each:     everyKind,
		needs:    deletes,
		slow:     true,
		check: func(c *run) {
			d1, d2 := c.pair()
			a := c.ask(d1).mustGet()
			b := c.rival(d2, lasting(c.short()), waits)
			b.mustNotGet()
			c.h.Delete(c.tb, c.name)
			b.mustGetWithin(c.short() + c.soon() + time.Second)
			c.mustBeOver(d1, a.r.Hold)
			c.mustNotRelease(d1, a.r.Hold)
			a.granted, a.left = false, true
			if c.h.Lost {
				a.mustHear(driver.Lost)
			}
			b.mustHold()
		},
	},
}

// nastyNames are names that careless stores take for one another or for something else. Each holds base, so that no other
// case has it.
func nastyNames(base string) []string {
	names := []string{base, strings.ToUpper(base), "{" + base + "}", "{" + base, base + "}", "}" + base + "{", " " + base, "/" + base, "../" + base}
	for _, tail := range []string{
		"A", "a", "á", "a\u0301", "ß", "ss", "SS", "İ", "i", "I", "ı", // case, accents, and the ways to write them
		" ", "  ", "\t", "\n", "\r\n", "\x00", "\x00\x00", "\x00a", "\u200d", // what gets trimmed or ends a string
		"/", "//", "/a", "/b", "/.", "/..", ":", ":a", ".", ".a", "-0000000001", // paths and prefixes
		"{}", "{a}", "{a", "{b}", "}{", "{{a}}", // hash tags
		"%", "_", "*", "?", "[a]", "^", "$", "\\", "\\0", "\\x00", "%00", "%2F", "%2f", "+", "&", "#", "@", // patterns and escapes
		"'", "\"", "`", "''", ";", "--", "$1", "\\'", // quotes
		"\xff", "\xfe", "\xff\xff", "\xc3", "\xc3\x28", "\xef\xbf\xbd", "\xed\xa0\x80", // invalid UTF-8
	} {
		names = append(names, base+tail)
	}
	long := base + strings.Repeat("x", 4096-len(base))
	for _, n := range []int{63, 64, 65, 127, 128, 191, 192, 255, 256, 511, 512, 1023, 1024, 4095} {
		names = append(names, long[:n])
	}
	return append(names, long, long[:4095]+"y", long[:4095]+"X", long[:4095]+"\x00")
}

// show prints a name.
func show(name string) string {
	if len(name) > 80 {
		return fmt.Sprintf("%q… (%d bytes)", name[:80], len(name))
	}
	return fmt.Sprintf("%q", name)
}
