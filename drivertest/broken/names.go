package broken

import (
	"context"
	"strings"
	"sync"

	"github.com/pawl-lock/pawl/driver"
)

// misnamed keeps a name under another one.
func misnamed(fault string, as func(name string) string) Mutant {
	return Mutant{
		Rule: "names/never meet", Fault: fault,
		hooks: func() hooks { return hooks{rename: func(h driver.Hold) string { return as(h.Name) }} },
	}
}

var nameMutants = []Mutant{
	misnamed("does not tell upper from lower case", strings.ToLower),
	misnamed("cuts long names", func(name string) string { return name[:min(len(name), 4095)] }),
	misnamed("cuts names for its column", func(name string) string { return name[:min(len(name), 255)] }),
	misnamed("trims blanks", strings.TrimSpace),
	misnamed("ends names at NUL", func(name string) string {
		before, _, _ := strings.Cut(name, "\x00")
		return before
	}),
	misnamed("replaces what is not UTF-8", func(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }),
	misnamed("cleans paths", func(name string) string { return strings.TrimSuffix(name, "/") }),
	misnamed("adds hash tags without a thought", func(name string) string {
		if strings.Contains(name, "{") {
			return name
		}
		return "{" + name + "}"
	}),
	misnamed("unescapes percent signs", func(name string) string { return strings.ReplaceAll(name, "%2F", "/") }),
	{
		Rule: "names/one family at a time", Fault: "keeps each family under a key of its own",
		hooks: func() hooks {
			return hooks{rename: func(h driver.Hold) string { return h.Name + "\x00" + h.Kind.Family().String() }}
		},
	},
	{
		Rule: "names/one family at a time", Fault: "takes another family for a holder",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if _, ok := err.(*driver.MismatchError); ok {
					err = &driver.HeldError{}
				}
				return g, err
			}}
		},
	},
	{
		Rule: "names/a free name may be anything", Fault: "never forgets what a name was used as",
		hooks: func() hooks {
			var mu sync.Mutex
			families := map[string]driver.Kind{}
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				mu.Lock()
				family, known := families[p.r.Name]
				if !known {
					families[p.r.Name] = p.r.Kind.Family()
				}
				mu.Unlock()
				if known && family != p.r.Kind.Family() {
					return driver.Grant{}, &driver.MismatchError{Have: family, Want: p.r.Kind}
				}
				return p.Place.Try(ctx, span)
			}}
		},
	},
	{
		Rule: "names/unknown kinds are unsupported", Fault: "takes an unknown kind for a mutex",
		hooks: func() hooks {
			return hooks{enter: func(r *driver.Request) {
				if r.Kind < driver.Exclusive || r.Kind > driver.Once {
					r.Kind = driver.Exclusive
				}
			}}
		},
	},
	{
		Rule: "names/what a stranger destroyed is over", Fault: "confirms from memory",
		hooks: logged(func(l *log) hooks {
			return hooks{renew: eachRenewal(func(d *proxy, ctx context.Context, h driver.Hold) error {
				if ttl, _, released := l.of(h.ID); ttl > 0 && !released {
					d.renewOne(ctx, h)
					return nil
				}
				return driver.ErrNotHeld
			})}
		}),
	},
}
