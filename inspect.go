package pawl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Holder describes a holder, for people: it decides nothing.
type Holder struct {
	Label, Host, Note string
	PID               int
	ID                string        // the hold's id in the store
	Token             int64         // 0: none, or not known
	Permits           int           // of a semaphore; else 1
	Since             time.Time     // zero: not known
	Remaining         time.Duration // by the store's clock; 0: not known; negative: it never expires
	Value             []byte        // what a leader published
	hold              driver.Hold
}

func (h Holder) String() string {
	s := h.Label
	switch {
	case s == "" && h.ID == "":
		return "an unknown holder"
	case s == "":
		s = h.ID
	}
	switch {
	case h.PID != 0 && h.Host != "":
		s += fmt.Sprintf(" (pid %d, host %s)", h.PID, h.Host)
	case h.PID != 0:
		s += fmt.Sprintf(" (pid %d)", h.PID)
	}
	if h.Note != "" {
		s += fmt.Sprintf(" %q", h.Note)
	}
	return s
}

func holder(h driver.HeldBy) Holder {
	return Holder{Label: h.Who.Label, Host: h.Who.Host, Note: h.Who.Note, PID: h.Who.PID, ID: h.ID, Token: h.Token,
		Permits: h.Permits, Since: h.Since, Remaining: h.Remaining, Value: h.Value, hold: h.Hold}
}

// Info is the state of a name.
type Info struct {
	Name    string
	Kind    string // "exclusive", "fair", "read", "write", "permits", …; empty when it is free
	Holders []Holder
	Limit   int // of a semaphore
	Waiters int // -1: not known
}

func info(r driver.Record) Info {
	i := Info{Name: r.Name, Limit: r.Limit, Waiters: r.Waiters}
	for _, h := range r.Holds {
		i.Kind = h.Kind.String()
		i.Holders = append(i.Holders, holder(h))
	}
	return i
}

func (c *Client) inspector(op string) (driver.Inspector, error) {
	if i, ok := c.d.(driver.Inspector); ok {
		return i, nil
	}
	return nil, fmt.Errorf("pawl: %s: this store cannot tell: %w", op, errors.ErrUnsupported)
}

// Inspect says who holds name; ctx bounds it. The answer may be old when it arrives: never decide by it whether to lock.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	i, err := c.inspector("inspect")
	if err != nil {
		return Info{}, err
	}
	r, err := i.Inspect(ctx, name)
	return info(r), wrap("inspect", name, err)
}

// List yields the held names that begin with prefix, in no order. After an error it stops.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		i, err := c.inspector("list")
		if err != nil {
			yield(Info{}, err)
			return
		}
		for r, err := range i.List(ctx, prefix) {
			if err == nil && len(r.Holds) == 0 {
				continue
			}
			if !yield(info(r), wrap("list", prefix, err)) || err != nil {
				return
			}
		}
	}
}

// Steal ends the hold h of name, as Inspect showed it, and lets the next one in; ErrNotHeld if that hold is over. The
// holder learns it with its next renewal at the latest, and may work until then: steal only what is known to be dead.
func (c *Client) Steal(ctx context.Context, name string, h Holder) error {
	if h.hold.ID == "" || h.hold.Name != name {
		return wrap("steal", name, ErrNotHeld)
	}
	// The holder knows how many tokens of its interval it has used, and may use more until it is told: all count as used.
	return wrap("steal", name, c.d.Release(ctx, h.hold, driver.End{Last: math.MaxInt64}))
}
