package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/child"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/join"
	"github.com/pawl-lock/pawl/driver"
)

// supervisor keeps a command and a lease together.
type supervisor struct {
	*job
	lease   held
	turn    *turn // the lease is a turn; nil: it is our own
	signals chan os.Signal
	watch   lossWatch
	offer   *join.Offer // of the lease, to those inside the command; nil: none

	p        *child.Process
	passed   os.Signal // the last one that was passed on, and when
	passedAt driver.Instant
	lost     error // why the command was told, or should have been; nil: not lost
}

// start prints the lock, if that is wanted, and starts the command.
func (s *supervisor) start(env []string) error {
	if s.printLock > 0 {
		line := fmt.Sprintf("name=%q fence=%d ttl=%s\n", s.name, s.lease.Token(), short(s.ttl))
		if err := writeFD(s.printLock, []byte(line)); err != nil {
			s.g.say.note("--print-lock %d: %v", s.printLock, err)
		}
	}
	s.watch.step(driver.Now(), s.deadline(), false)
	c := child.Command{
		Path: s.path, Argv: s.argv, Env: env, NoStdin: !s.passStdin, Foreground: s.foreground,
		LostFD: "PAWL_LOST_FD", Suspending: s.suspending,
	}
	if s.turn != nil {
		c.Hold = s.turn.File()
	}
	if s.offer != nil {
		c.Scratch = s.offer.Path()
	}
	var err error
	s.p, err = child.Start(c, s.guardAt())
	return err
}

// deadline is the lease's trust deadline, never later than it is.
func (s *supervisor) deadline() driver.Instant {
	now := driver.Now()
	return now.Add(time.Until(s.lease.Deadline()))
}

// guardAt is the watch's instant on the clock of the guard.
func (s *supervisor) guardAt() int64 {
	at := s.watch.guardAt()
	if at == 0 {
		return 0
	}
	return child.Now() + int64(at.Until())
}

// supervise forwards signals and watches the lease until the whole command has ended.
func (s *supervisor) supervise() {
	const unkillable = 2 * time.Second
	var (
		look     = min(max(s.ttl/12, 10*time.Millisecond), time.Second) // for renewals, of which a lease does not tell
		tick     = time.NewTimer(0)
		ended    = s.p.Ended()
		lost     = s.lease.Done()
		endedAt  driver.Instant // told about what is left after that
		killedAt driver.Instant
		guarded  = s.watch.guardAt()
		gone     = s.p.Gone()
	)
	defer tick.Stop()
	defer s.p.Dismiss()
	for {
		now := driver.Now()
		lerr := s.lease.Err()
		act, next := s.watch.step(now, s.deadline(), lerr != nil)
		switch act {
		case doSignal:
			s.p.Lose()
			sig := s.onLoss.signal
			if sig == nil {
				sig = child.Term
			}
			if s.turn == nil || sig != s.passed || now.Sub(s.passedAt) > s.watch.grace { // else the one around us was faster
				s.pass(sig)
				s.signal(cont)
			}
			s.lose(lerr, "the command gets "+child.SignalName(sig))
		case doKill:
			s.p.Lose()
			s.signal(child.Kill)
			killedAt = now
			s.lose(lerr, "the command is killed")
		case doWarn:
			s.p.Lose()
			s.lose(lerr, "the command goes on without it (--on-loss warn)")
		}
		if at := s.watch.guardAt(); at != guarded {
			guarded = at
			s.p.KillAt(s.guardAt())
		}
		s.renewOffer()
		if gone == nil && s.done() {
			return
		}
		wait := look
		if gone == nil {
			wait = min(wait, 20*time.Millisecond)
		}
		if next != 0 {
			wait = min(wait, max(next.Sub(now), time.Millisecond))
		}
		tick.Reset(wait)
		select {
		case sig := <-s.signals:
			if s.turn != nil && s.lost != nil && sig == s.passed {
				continue // the one around us tells of the same loss
			}
			s.pass(sig)
			if gone == nil && s.offer != nil && slices.Contains(child.Ending(), sig) {
				s.offer.Extend(0) // those who joined are in no group of ours
			}
		case <-lost:
			lost = nil
		case <-ended:
			ended, endedAt = nil, driver.Now()
		case <-gone:
			gone = nil
			s.p.Dismiss()
		case <-tick.C:
		}
		if endedAt != 0 && driver.Now().Sub(endedAt) > noticeAfter {
			endedAt = 0
			what := "its process group: " + s.left()
			if gone == nil {
				what = "a pawl run inside it that joined the lock"
			}
			s.g.say.note("%q: the command has ended, but not %s; the lock is kept until then", s.name, what)
		}
		if killedAt != 0 && driver.Now().Sub(killedAt) > unkillable {
			killedAt = 0
			s.g.say.note("%q: SIGKILL has not ended the command: %s", s.name, s.left())
		}
	}
}

// renewOffer tells those who joined how long the lease may be trusted.
func (s *supervisor) renewOffer() {
	if s.offer == nil {
		return
	}
	until := instant(s.lease.Deadline())
	if s.lost != nil {
		until = 0
	}
	if err := s.offer.Extend(until); err != nil {
		s.g.say.detail("%q: %v", s.name, err)
	}
}

// done reports whether nobody works under the lease any more, the command's group being gone. Who joined a lease that is
// lost ends before its deadline.
func (s *supervisor) done() bool {
	return s.offer == nil || s.offer.Alone() || s.lost != nil && driver.Now() >= s.watch.deadline
}

// pass sends a signal to the command.
func (s *supervisor) pass(sig os.Signal) {
	s.passed, s.passedAt = sig, driver.Now()
	s.signal(sig)
}

func (s *supervisor) left() string {
	switch n := s.p.Members(); n {
	case -1:
		return "processes are left"
	case 1:
		return "1 process is left"
	default:
		return fmt.Sprintf("%d processes are left", n)
	}
}

func (s *supervisor) signal(sig os.Signal) {
	if err := s.p.Signal(sig); err != nil {
		s.g.say.note("%q: cannot send %s to the command: %v", s.name, child.SignalName(sig), err)
	}
}

// lose notes and tells why the lock is lost, the first time.
func (s *supervisor) lose(lerr error, what string) {
	if s.lost == nil {
		s.lost = lossReason(lerr, s.maxHold)
	}
	s.g.say.note("%q: %v: %s", s.name, s.lost, what)
}

func lossReason(lerr error, maxHold time.Duration) error {
	var l *pawl.LostError
	switch {
	case lerr == nil:
		return errors.New("the lock is being lost: the store did not confirm it in time")
	case !errors.As(lerr, &l):
		return lerr
	case l.Reason == pawl.Expired && l.Err != nil:
		return fmt.Errorf("the lock is lost: the store did not confirm it in time: %w", l.Err)
	case l.Reason == pawl.Expired:
		return errors.New("the lock is lost: the store did not confirm it in time")
	case l.Reason == pawl.Revoked:
		return errors.New("the lock is lost: the store says that it is gone (deleted, stolen, or expired)")
	case l.Reason == pawl.TooLong:
		return fmt.Errorf("the lock was held for --max-hold %s", short(maxHold))
	}
	return fmt.Errorf("the lock is lost: %s", l.Reason)
}

// ending says how the command of a lost lock ended.
func (s *supervisor) ending() string {
	r := s.p.Result()
	if r.Signal != nil {
		return "the command was ended by " + child.SignalName(r.Signal)
	}
	return fmt.Sprintf("the command ended with code %d", r.Code)
}

// suspending tells a user who pressed Ctrl-Z what that means.
func (s *supervisor) suspending() {
	left := short(max(0, time.Until(s.lease.Deadline())).Round(time.Second))
	if s.onLoss.policy == lossWarn {
		s.g.say.note("%q: stopped: the lock is lost unless you continue within %s", s.name, left)
		return
	}
	s.g.say.note("%q: stopped: the lock is lost and the command killed unless you continue within %s", s.name, left)
}
