package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// Mode is how a driver works with what its options, the server, a proxy in between, and the user's rights allow. The zero
// Mode is the usual one.
type Mode struct {
	// NoMessages says why waiters are not called by messages (SUBSCRIBE, PUBLISH); nil: they are. Without them the driver
	// looks at all names that somebody waits for with one pipeline every 50 to 500 ms, and each waiter tries once a second in
	// any case. Who comes first gets a mutex then, except fair ones.
	NoMessages error

	// NoScripts says why there are no scripts (EVALSHA, EVAL); nil: there are. Without them only mutexes work, by
	// transactions (WATCH, MULTI, EXEC) on connections from the client's pool, in the same layout: two to three round trips
	// for each step, repeated when another client was quicker. Waiters do not queue, and everything else answers
	// errors.ErrUnsupported.
	NoScripts error
}

func (m Mode) String() string {
	how := "scripts"
	if m.NoScripts != nil {
		how = fmt.Sprintf("transactions instead of scripts, for mutexes only (%v)", m.NoScripts)
	}
	if m.NoMessages != nil {
		return fmt.Sprintf("%s, and looking now and then instead of messages (%v)", how, m.NoMessages)
	}
	return how + " and messages"
}

// Mode is how the driver works at present, as far as it has found out: it does so when a request is refused, and asks again
// for a right to subscribe from time to time. What changes for the worse is logged once (Options.Logger).
func (d *Driver) Mode() Mode { return d.modes.get() }

type modes struct {
	log *slog.Logger

	mu     sync.Mutex
	now    Mode
	deaf   error // why SUBSCRIBE does not work
	mute   error // why PUBLISH does not work
	warned [2]bool
}

var errOption = errors.New("it is set in Options")

func newModes(o *Options) *modes {
	m := &modes{log: o.Logger}
	if m.log == nil {
		m.log = slog.Default()
	}
	if o.NoMessages {
		m.now.NoMessages = errOption
	}
	if o.NoScripts {
		m.now.NoScripts = errOption
	}
	return m
}

func (m *modes) get() Mode {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *modes) scripts() bool  { return m.get().NoScripts == nil }
func (m *modes) messages() bool { return m.get().NoMessages == nil }

// noScripts notes that a script was refused.
func (m *modes) noScripts(why error) {
	m.mu.Lock()
	warn := m.now.NoScripts == nil && !m.warned[0]
	if m.now.NoScripts == nil {
		m.now.NoScripts = why
	}
	m.warned[0] = true
	m.mu.Unlock()
	if warn {
		m.log.Warn("redislock: the server allows no scripts; mutexes work by transactions, more slowly, and nothing else does. "+
			"Allow them: ACL SETUSER … +evalsha +eval", "err", why)
	}
}

// hears notes whether the driver may subscribe.
func (m *modes) hears(why error) { m.note(&m.deaf, why, "subscribe") }

// speaks notes whether the driver may publish.
func (m *modes) speaks(why error) { m.note(&m.mute, why, "publish") }

func (m *modes) note(field *error, why error, command string) {
	m.mu.Lock()
	*field = why
	if m.now.NoMessages != errOption {
		m.now.NoMessages = errors.Join(m.deaf, m.mute)
	}
	warn := why != nil && m.now.NoMessages != errOption && !m.warned[1]
	m.warned[1] = m.warned[1] || warn
	m.mu.Unlock()
	if warn {
		m.log.Warn("redislock: the server does not let waiters be called; they look now and then, which is slower. "+
			"Allow it: ACL SETUSER … &redisson_* &pawl_* +subscribe +unsubscribe +publish", "err", why, "command", command)
	}
}

// scriptsDenied reports whether a server refused a script because there are none for this client.
func scriptsDenied(text string) bool {
	text = strings.ToLower(text)
	return denied(text) && (strings.Contains(text, "'eval") || strings.Contains(text, "`eval") || strings.Contains(text, "scripting"))
}

// denied reports whether a command is not there or not allowed.
func denied(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown command")
}

// noScriptsError is the answer to a request that only a script can carry out. It matches errors.ErrUnsupported, and
// driver.ErrNotDone.
type noScriptsError struct{ why error }

func (e *noScriptsError) Error() string {
	return fmt.Sprintf("redis: this needs scripts, and there are none (%v): allow EVALSHA and EVAL (ACL SETUSER … +evalsha +eval), "+
		"or use a Mutex, which works without", e.why)
}

func (e *noScriptsError) Is(target error) bool {
	return target == errors.ErrUnsupported || target == driver.ErrNotDone
}

func errNoScripts(why error) error { return &noScriptsError{why} }

func isDenied(err error) bool {
	var refusal wire.Refusal
	return errors.As(err, &refusal) && denied(string(refusal))
}

// speak finds out, once, whether this user may publish: the scripts go on when they may not, and tell nobody.
func (d *Driver) speak(channel string) {
	d.speaks.Do(func() {
		d.lanes.postThen(func(err error) {
			if isDenied(err) {
				d.modes.speaks(err)
			}
		}, []string{channel}, "PUBLISH", "")
	})
}

// findScripts finds out whether there are scripts, so that Mode knows it from the beginning.
func (d *Driver) findScripts(ctx context.Context) {
	_, err := d.lanes.run(ctx, minLimit, request{script: locksScript}) // of no locks
	d.without(err)
}
