package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/child"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/join"
	"github.com/pawl-lock/pawl/driver"
)

// status is what --status-fd writes: one line of JSON at the end.
type status struct {
	Name     string `json:"name"`
	Acquired bool   `json:"acquired"`
	Joined   bool   `json:"joined,omitempty"` // under the lock of the pawl run around this one
	Lost     bool   `json:"lost"`
	Child    *int   `json:"child"` // exit code of the command; null: it did not run
	Signal   string `json:"signal,omitempty"`
	Exit     int    `json:"exit"`
	Reason   string `json:"reason,omitempty"`
	Token    int64  `json:"token,omitempty"`
	WaitedMS int64  `json:"waited_ms"`
	HeldMS   int64  `json:"held_ms"`
}

// run does the job: everything between the command line and the exit code.
func (j *job) run() error {
	// A broken pipe on our own messages must not end us: the command would go on unprotected.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	st := status{Name: j.name}
	var p *child.Process
	err := j.attempt(&st, &p)
	var f *failure
	if errors.As(err, &f) {
		st.Exit, st.Reason = f.code, f.text
	}
	if j.statusFD > 0 {
		line, _ := json.Marshal(st)
		if werr := writeFD(j.statusFD, append(line, '\n')); werr != nil {
			j.g.say.note("--status-fd %d: %v", j.statusFD, werr)
		}
	}
	if p != nil && !st.Lost && p.AtTerminal() && p.Result().Signal == os.Interrupt {
		child.DieOf(syscall.SIGINT, p.HadTerminal())
	}
	return err
}

func writeFD(fd int, b []byte) error {
	f := os.NewFile(uintptr(fd), "fd "+strconv.Itoa(fd))
	_, err := f.Write(b)
	return err
}

// attempt takes the lock, runs the command and gives the lock back.
func (j *job) attempt(st *status, started **child.Process) error {
	var err error
	if j.path, err = child.LookPath(j.argv[0]); err != nil { // before anybody waits for it
		return j.notStarted(err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, child.Ending()...)

	begin := driver.Now()
	url, err := j.g.url()
	if err != nil {
		return err
	}
	id := backend.Identity(url, j.g.prefix)
	if t, err := j.join(id, signals); t != nil || err != nil {
		st.WaitedMS = driver.Now().Sub(begin).Milliseconds()
		if err != nil {
			return err
		}
		defer t.Close()
		st.Joined = true
		j.ttl = time.Duration(t.TTL) * time.Millisecond
		j.g.say.detail("%q: joined after %s, token %d", j.name, short(driver.Now().Sub(begin)), t.Token())
		grace := j.capped()
		w := lossWatch{policy: j.onLoss.policy, grace: grace, lead: 2 * leadOf(j.ttl)} // ahead of the pawl run around this one
		s := &supervisor{job: j, lease: t, turn: t, signals: signals, watch: w, offer: j.offer(id, j.mode(), t.Hold, t)}
		return j.command(st, started, s, backend.Kind(url), func(bool, driver.Instant) error { return nil })
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := j.interruptible(signals, cancel)
	store, err := j.g.open(ctx, url)
	if s := stop(); s != nil {
		if err == nil {
			store.Close()
		}
		return j.interrupted(s)
	}
	if err != nil {
		return err
	}
	go j.g.warn(store) // while the lock is waited for
	base := pawl.New(store)
	defer closeSoon(base)
	grace := j.capped()
	policy := pawl.Options{TTL: j.ttl, Wait: j.wait, MaxHold: j.maxHold, MinHold: j.minHold, Note: j.reason, Holder: login(), Logger: j.g.say.logger()}
	lease, err := j.take(base, j.lock(base.With(policy)), signals)
	st.WaitedMS = driver.Now().Sub(begin).Milliseconds()
	if err != nil {
		return err
	}
	j.g.say.detail("%q: taken after %s, token %d", j.name, short(driver.Now().Sub(begin)), lease.Token())
	w := lossWatch{policy: j.onLoss.policy, grace: grace, lead: leadOf(j.ttl)}
	s := &supervisor{job: j, lease: lease, signals: signals, watch: w, offer: j.offer(id, j.mode(), lease.ID(), lease)}
	return j.command(st, started, s, backend.Kind(url), func(failed bool, taken driver.Instant) error {
		return j.release(base, lease, failed, taken)
	})
}

// command runs the command of s and gives its lock back.
func (j *job) command(st *status, started **child.Process, s *supervisor, kind string, release func(failed bool, taken driver.Instant) error) error {
	taken := driver.Now()
	st.Acquired, st.Token = true, s.lease.Token()
	if s.offer != nil {
		defer s.offer.Close()
	}
	signal.Notify(s.signals, child.Forwarded()...)
	err := s.start(j.environment(s, kind))
	if err == nil {
		*started = s.p
		defer s.p.Close()
		s.supervise()
		r := s.p.Result()
		st.Child = &r.Code
		if r.Signal != nil {
			st.Signal = child.SignalName(r.Signal)
		}
		st.Lost = s.lost != nil
	}
	failed := err != nil || *st.Child != 0

	unlockErr := release(failed && !st.Lost, taken)
	st.HeldMS = driver.Now().Sub(taken).Milliseconds()
	var lost *pawl.LostError
	switch {
	case err != nil:
		return j.notStarted(err)
	case st.Lost:
	case errors.As(unlockErr, &lost):
		st.Lost, s.lost = true, fmt.Errorf("lost while the command ran, which was only seen at its end (%s)", lost.Reason)
	case unlockErr != nil:
		j.g.say.note("%q: the lock could not be given back, others wait until it runs out: %v", j.name, unlockErr)
	default:
		j.g.say.detail("%q: given back after %s", j.name, short(driver.Now().Sub(taken)))
	}
	r := s.p.Result()
	switch {
	case st.Lost:
		return &failure{j.lostCode, fmt.Sprintf("%q: %v; %s (exit %d)", j.name, s.lost, s.ending(), j.lostCode)}
	case r.Signal != nil && r.Signal != os.Interrupt:
		return &failure{r.Code, fmt.Sprintf("%q: the command was ended by %s (exit %d)", j.name, child.SignalName(r.Signal), r.Code)}
	case r.Code != 0:
		return &failure{code: r.Code}
	}
	return nil
}

// capped is the grace, and says when it is not what was asked for.
func (j *job) capped() time.Duration {
	grace, capped := j.grace()
	if capped {
		j.g.say.note("--kill-after %s is cut to %s, a third of --ttl %s, so that the lock can be renewed before", short(j.killAfter), short(grace), short(j.ttl))
	}
	return grace
}

// closeSoon closes the client, but does not stay for a store that does not answer: what could not be given back runs out.
func closeSoon(c *pawl.Client) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	select {
	case <-closed:
	case <-time.After(500 * time.Millisecond):
	}
}

// interruptible lets a signal end what a context bounds, until the function that it answers is called, which tells the
// signal that came.
func (j *job) interruptible(signals <-chan os.Signal, cancel context.CancelCauseFunc) func() os.Signal {
	quit, done := make(chan struct{}), make(chan os.Signal, 1)
	go func() {
		select {
		case s := <-signals:
			cancel(context.Canceled)
			done <- s
		case <-quit:
			done <- nil
		}
	}()
	return func() os.Signal {
		close(quit)
		return <-done
	}
}

func (j *job) interrupted(s os.Signal) error {
	code := 128 + child.Number(s)
	return &failure{code, fmt.Sprintf("%q: interrupted by %s before the lock was taken (exit %d)", j.name, child.SignalName(s), code)}
}

func (j *job) notStarted(err error) error {
	var se *child.StartError
	if !errors.As(err, &se) {
		return err
	}
	return &failure{se.Code, fmt.Sprintf("%v (exit %d)", se, se.Code)}
}

// release gives the lock back, or keeps the name for the lock delay after a failure.
func (j *job) release(base *pawl.Client, lease *pawl.Lease, failed bool, taken driver.Instant) error {
	if !failed || j.lockDelay == 0 {
		return lease.Unlock()
	}
	// What a name is kept for is decided when a lease begins, so the hold passes to a lease that begins now.
	ticket, err := lease.Detach()
	if errors.Is(err, errors.ErrUnsupported) {
		j.g.say.note("%q: --lock-delay is not possible on this store: the lock is free", j.name)
		return lease.Unlock()
	} else if err != nil {
		return err
	}
	keep := max(j.lockDelay, j.minHold-driver.Now().Sub(taken))
	ctx, stop := context.WithTimeout(context.Background(), min(3*time.Second, j.ttl))
	defer stop()
	last, err := base.With(pawl.Options{MinHold: keep}).Attach(ctx, ticket)
	if err != nil {
		return err
	}
	j.g.say.note("%q: the command failed: the name stays taken for %s (--lock-delay)", j.name, short(keep))
	return last.Unlock()
}

// environment is the command's: ours, with the lock's facts.
func (j *job) environment(s *supervisor, kind string) []string {
	host, _ := os.Hostname()
	facts := []string{
		"PAWL_HELD=1",
		"PAWL_LOCK=" + j.name,
		"PAWL_FENCE=" + strconv.FormatInt(s.lease.Token(), 10),
		fmt.Sprintf("PAWL_OWNER=%s@%s:%d", login(), host, os.Getpid()),
		"PAWL_TTL_MS=" + strconv.FormatInt(j.ttl.Milliseconds(), 10),
		"PAWL_MODE=" + j.mode(),
		"PAWL_BACKEND_KIND=" + kind,
	}
	if s.offer != nil {
		facts = append(facts, join.Variable+"="+s.offer.Environ())
	}
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case join.Variable:
			if s.offer == nil {
				env = append(env, e)
			}
		case "PAWL_HELD", "PAWL_LOCK", "PAWL_FENCE", "PAWL_OWNER", "PAWL_TTL_MS", "PAWL_MODE", "PAWL_BACKEND_KIND", "PAWL_LOST_FD":
		default:
			env = append(env, e)
		}
	}
	return append(env, facts...)
}

// login is who runs us, for people.
func login() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}
