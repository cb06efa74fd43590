package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
)

// noticeAfter is how long one waits without being told for whom.
const noticeAfter = time.Second

// take waits for the lock, and says after a second who has it.
func (j *job) take(c *pawl.Client, lock pawl.Locker, signals <-chan os.Signal) (*pawl.Lease, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	begin := driver.Now()
	type answer struct {
		lease *pawl.Lease
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		if j.nonblock {
			ctx, stop := context.WithTimeout(ctx, j.g.timeout)
			defer stop()
			l, err := lock.TryLock(ctx)
			got <- answer{l, err}
			return
		}
		l, err := lock.Lock(ctx)
		got <- answer{l, err}
	}()

	said := make(chan look, 1) // what an inspection found
	tick := time.NewTimer(noticeAfter)
	defer tick.Stop()
	var interrupt os.Signal
	var itself error
	for {
		select {
		case a := <-got:
			j.g.say.wipe()
			if interrupt != nil {
				if a.err == nil {
					a.lease.Unlock()
				}
				return nil, j.interrupted(interrupt)
			}
			if itself != nil && a.err != nil {
				return nil, itself
			}
			if a.err != nil {
				return nil, j.notTaken(a.err, driver.Now().Sub(begin))
			}
			return a.lease, nil
		case s := <-signals:
			if interrupt == nil {
				interrupt = s
				cancel(errors.New("interrupted"))
			}
		case <-tick.C:
			if !j.g.say.quiet && !j.skip {
				go j.look(ctx, c, said)
			}
		case l := <-said:
			if l.itself && itself == nil {
				itself = usage("run: %q is held by the pawl run around this one, which names the store in other words: say the same --backend, to join it", j.name)
				cancel(itself)
			}
			text := l.text
			fd := int(os.Stderr.Fd())
			if !term.IsTerminal(fd) || j.g.say.format == "json" {
				j.g.say.note("%s", text) // once: this goes to a log
				continue
			}
			text = "pawl: " + text
			if width, _, err := term.GetSize(fd); err == nil && width > 4 && len([]rune(text)) >= width {
				text = string([]rune(text)[:width-2]) + "…"
			}
			j.g.say.overwrite(text)
			tick.Reset(time.Second)
		}
	}
}

// look is what an inspection of a lock found.
type look struct {
	text   string
	itself bool // this very process runs under the hold
}

// look asks who has the lock.
func (j *job) look(ctx context.Context, c *pawl.Client, said chan<- look) {
	ctx, stop := context.WithTimeout(ctx, j.g.timeout)
	defer stop()
	l := look{text: fmt.Sprintf("waiting for %q", j.name)}
	info, err := c.Inspect(ctx, j.name)
	if err == nil && len(info.Holders) > 0 {
		l.text += ": " + heldBy(info.Holders)
		l.itself = waitsForItself(info)
	}
	if err == nil && info.Waiters > 1 {
		others := "1 other waits"
		if n := info.Waiters - 1; n > 1 {
			others = fmt.Sprintf("%d others wait", n)
		}
		l.text += ", " + others
	}
	said <- l
}

// heldBy describes the first of some holders, and counts the others.
func heldBy(hs []pawl.Holder) string {
	h := hs[0]
	s := "held by " + h.String()
	if !h.Since.IsZero() {
		s += " for " + short(max(0, time.Since(h.Since)).Round(time.Second))
	}
	switch {
	case h.Remaining > 0:
		s += ", ttl " + short(h.Remaining)
	case h.Remaining < 0:
		s += ", for ever (no ttl)"
	}
	switch n := len(hs) - 1; {
	case n == 1:
		s += ", and by 1 other"
	case n > 1:
		s += fmt.Sprintf(", and by %d others", n)
	}
	return s
}

// notTaken sorts why the lock was not taken.
func (j *job) notTaken(err error, waited time.Duration) error {
	var held *pawl.HeldError
	if !errors.As(err, &held) {
		f := storeFailure("run", err)
		if errors.Is(err, pawl.ErrMismatch) && !j.shared && !j.exclusive && j.permits == 0 {
			f.text += ". Who shares a name with -s says -x, and who shares one with --permits N says the same"
		}
		return f
	}
	if j.skip {
		return &failure{code: exitOK}
	}
	who := "held by another"
	if h := held.Holder; h.Label != "" || h.ID != "" {
		if h.Remaining == 0 {
			h.Remaining = held.Remaining
		}
		who = heldBy([]pawl.Holder{h})
	}
	if !j.nonblock {
		who += fmt.Sprintf("; gave up after %s", short(waited))
	}
	return &failure{j.conflict, fmt.Sprintf("%q: %s (exit %d)", j.name, who, j.conflict)}
}
