package driver

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestNow(t *testing.T) {
	a := Now()
	time.Sleep(2 * time.Millisecond)
	b := Now()
	if d := b.Sub(a); d < 2*time.Millisecond || a <= 0 {
		t.Errorf("slept 2ms, the clock went from %d by %v", a, d)
	}
	if left := b.Add(time.Hour).Until(); left > time.Hour || left < time.Hour-time.Minute {
		t.Errorf("an hour from now is %v away", left)
	}
}

// In a bubble the clock is the bubble's, so that what is built on it can be tested in fake time.
func TestNowInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Now()
		if a <= 0 {
			t.Errorf("the clock begins at %d, which could be taken for not known", a)
		}
		time.Sleep(48 * time.Hour)
		if d := Now().Sub(a); d != 48*time.Hour {
			t.Errorf("slept 48h, the clock went on by %v", d)
		}
	})
}

func TestFamilies(t *testing.T) {
	for k, want := range map[Kind]Kind{Exclusive: Exclusive, Fair: Exclusive, Read: Read, Write: Read, Permits: Permits, Leader: Leader, Once: Once} {
		if got := k.Family(); got != want {
			t.Errorf("%s is of the family %s, not %s", k, got, want)
		}
	}
	if s := Kind(200).String(); s != "unknown" {
		t.Errorf("kind 200 is called %q", s)
	}
}

func TestErrorsMatch(t *testing.T) {
	for _, c := range []struct{ err, is error }{{&HeldError{}, ErrHeld}, {&DoneError{}, ErrDone}, {&MismatchError{}, ErrMismatch}} {
		if !errors.Is(c.err, c.is) || c.err.Error() == "" {
			t.Errorf("%T does not match %v", c.err, c.is)
		}
	}
	for want, e := range map[string]*MismatchError{
		"name is in use as a semaphore of 5 permits, not 6": {Have: Permits, Want: Permits, HaveLimit: 5, WantLimit: 6},
		"name is in use as a mutex, not a read-write lock":  {Have: Fair, Want: Write},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
