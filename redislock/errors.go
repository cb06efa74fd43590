package redislock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// refusals are the server's answers to a request that it did not begin to carry out. A script has no effect either when
// its first write is refused with one of them.
var refusals = map[string]string{
	"BUSY":        "a script keeps the server busy",
	"LOADING":     "the server is still loading its data",
	"READONLY":    "the server is a read-only replica; locks need the primary",
	"OOM":         "the server is out of memory (maxmemory)",
	"MISCONF":     "the server refuses writes since it cannot save its data",
	"NOREPLICAS":  "the server refuses writes since too few replicas are in reach",
	"MASTERDOWN":  "the server is a replica that lost its primary",
	"CLUSTERDOWN": "the cluster is down",
	"TRYAGAIN":    "the slot is being moved",
	"MOVED":       "the slot is on another node",
	"ASK":         "the slot is being moved",
	"CROSSSLOT":   "the keys of this name are on different nodes",
	"NOSCRIPT":    "the server keeps losing its scripts",
	"NOAUTH":      "the server wants a password",
	"WRONGPASS":   "wrong user name or password",
	"NOPERM":      "the server's user lacks a permission that locks need; package redislock documents an ACL",
	"UNBLOCKED":   "the request was cancelled on the server",
}

var errWrongType = fmt.Errorf("redis: a key of this lock holds something else (WRONGTYPE): %w", driver.ErrNotDone)

// refused translates an error that the server answered with.
func refused(err wire.Refusal) error {
	text := string(err)
	if scriptsDenied(text) {
		return errNoScripts(err)
	}
	if code(text) == "WRONGTYPE" {
		return errWrongType
	}
	if strings.Contains(text, "user executing the script can't") || strings.Contains(text, "ACL failure in script") {
		// The server does not say which command, and the script may have been stopped halfway.
		return fmt.Errorf("redis: the server's user may not run a command that the scripts need, or touch a key; ACL LOG at the server says which, "+
			"and package redislock documents an ACL: %w", err)
	}
	if strings.Contains(text, "Unknown Redis command called from") {
		return fmt.Errorf("redis: the server lacks a command that the scripts need; it must be Redis 6.2 or later, or Valkey: %w", err)
	}
	if what, ok := refusals[code(text)]; ok {
		return fmt.Errorf("redis: %s (%w): %w", what, err, driver.ErrNotDone)
	}
	return fmt.Errorf("redis: %w", err)
}

// answered translates the error of a request. One that matches driver.ErrNotDone had no effect.
func answered(err error) error {
	var refusal wire.Refusal
	var unsent wire.Unsent
	switch {
	case errors.As(err, &refusal):
		return refused(refusal)
	case errors.As(err, &unsent):
		return notSent(err)
	}
	return fmt.Errorf("redis: %w", err)
}

func noScript(err error) bool {
	var refusal wire.Refusal
	return errors.As(err, &refusal) && code(string(refusal)) == "NOSCRIPT"
}

// code is the first word of an error, also of one that Redis 6 wrapped because it came up inside a script.
func code(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if first != "ERR" {
		return first
	}
	if _, inner, ok := strings.Cut(text, ": -"); ok {
		first, _, _ = strings.Cut(inner, " ")
	}
	return first
}

func isNotDone(err error) bool { return errors.Is(err, driver.ErrNotDone) }
