package pawl

import (
	"cmp"
	"log/slog"
	"time"
)

// Options change how locks are taken and held. A zero field means the default, or what the client already had. One
// value is meant to be a policy that many locks share:
//
//	nightly := locks.With(pawl.Options{MinHold: time.Minute, MaxHold: time.Hour})
//
// Durations are rounded up to whole milliseconds. A duration below one millisecond, or a negative one, is ErrInvalid at
// the first Lock: a unit is missing.
type Options struct {
	TTL     time.Duration // how long the store keeps a lease nobody renews: the delay after a crash. Default 30 s, at least 6 ms
	Wait    time.Duration // Lock and Do wait at most this long. Default: until ctx ends
	MaxHold time.Duration // after this the lease is lost and no longer renewed; nothing is freed under a running fn. Default: none
	MinHold time.Duration // Unlock leaves the name taken until this long after it was taken. Default: none
	Linger  time.Duration // keep an unlocked exclusive lease this long for the next local caller; others see it held. Default: none

	// While others of this process wait, a lease passes from one to the next without the store: to at most Span holders in a
	// row, and for at most Slice. Then other processes have their turn. A smaller one costs throughput, a larger one makes
	// other processes wait longer. Stores may do with less: etcd and ZooKeeper with a Span of 256. A Span of 1 means never.
	Span  int           // default 1,024, which is also the most
	Slice time.Duration // default 5 ms

	NoKeepalive bool // do not renew: the lease is lost at its TTL

	Group  string // name for metrics, such as "stock:{id}". Default: none
	Note   string // why, for people who look at the lock. Default: none
	Holder string // who, for people. Default: program@host

	Logger  *slog.Logger // for what nobody can receive. Default slog.Default()
	OnEvent func(Event)  // called in order, one at a time, on a goroutine of the client. Default: none
}

// DefaultTTL is the TTL of a client whose Options name none.
const DefaultTTL = 30 * time.Second

// The safety part that the trust deadline is ahead of the TTL: a tenth, at most a second, for the rates at which the two
// clocks run and for the delay of a timer.
const (
	minMargin = 2 * time.Millisecond
	maxMargin = time.Second
)

func margin(ttl time.Duration) time.Duration { return min(max(ttl/10, minMargin), maxMargin) }

func (o Options) over(base Options) Options {
	o.TTL = cmp.Or(o.TTL, base.TTL)
	o.Wait = cmp.Or(o.Wait, base.Wait)
	o.MaxHold = cmp.Or(o.MaxHold, base.MaxHold)
	o.MinHold = cmp.Or(o.MinHold, base.MinHold)
	o.Linger = cmp.Or(o.Linger, base.Linger)
	o.Span = cmp.Or(o.Span, base.Span)
	o.Slice = cmp.Or(o.Slice, base.Slice)
	o.NoKeepalive = o.NoKeepalive || base.NoKeepalive
	o.Group = cmp.Or(o.Group, base.Group)
	o.Note = cmp.Or(o.Note, base.Note)
	o.Holder = cmp.Or(o.Holder, base.Holder)
	o.Logger = cmp.Or(o.Logger, base.Logger)
	if o.OnEvent == nil {
		o.OnEvent = base.OnEvent
	}
	return o
}

// check rounds the durations in place and refuses what cannot work.
func (o *Options) check() error {
	for _, f := range []struct {
		name string
		d    *time.Duration
	}{{"TTL", &o.TTL}, {"Wait", &o.Wait}, {"MaxHold", &o.MaxHold}, {"MinHold", &o.MinHold}, {"Linger", &o.Linger}, {"Slice", &o.Slice}} {
		switch d := *f.d; {
		case d < 0:
			return invalid("Options.%s is negative: %v", f.name, d)
		case d > 0 && d < time.Millisecond:
			return invalid("Options.%s is %v, below 1ms: is a unit missing?", f.name, d)
		case d%time.Millisecond != 0:
			*f.d = d.Truncate(time.Millisecond) + time.Millisecond
		}
	}
	switch {
	case o.TTL < 3*minMargin:
		return invalid("Options.TTL is %v: at least %v", o.TTL, 3*minMargin)
	case o.Span < 0 || o.Span > maxSpan:
		return invalid("Options.Span is %d: 1 to %d", o.Span, maxSpan)
	case o.MaxHold > 0 && o.MinHold > o.MaxHold:
		return invalid("Options.MinHold (%v) exceeds MaxHold (%v)", o.MinHold, o.MaxHold)
	}
	return nil
}
