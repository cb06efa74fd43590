package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// Without a right that it needs every kind says so, and what to do, and never that a hold is lost or a name taken.
func TestDeniedCommands(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"hset", "pexpire", "time", "del", "exists", "set", "zadd", "get", "hdel"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			_, url := limited(t, "-"+command)
			d := open(t, url, quiet(nil))
			failed := false
			for _, kind := range everyKind {
				a := ask(t, d, kind, kind.String(), noWait, lasting(time.Second))
				err := a.try()
				if err == nil {
					err = d.Release(t.Context(), a.r.Hold, driver.End{})
				}
				if err == nil {
					continue
				}
				failed = true
				if errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrMismatch) || !strings.Contains(err.Error(), "ACL") {
					t.Errorf("%s without %s: %v; it should say what to do", kind, command, err)
				}
			}
			if !failed {
				t.Errorf("nothing needs %s", command)
			}
		})
	}
}

// A key that the user may not touch is refused before anything is done.
func TestDeniedKeys(t *testing.T) {
	t.Parallel()
	_, url := limited(t, "resetkeys", "~app:*", "~{app:*", "~pawl_*", "~redisson_*")
	d := open(t, url, quiet(nil))
	for _, kind := range everyKind[:5] {
		err := ask(t, d, kind, "other", noWait).try()
		if !errors.Is(err, driver.ErrNotDone) || !strings.Contains(err.Error(), "ACL") {
			t.Errorf("%s: %v; it should match ErrNotDone and say what to do", kind, err)
		}
	}
}
