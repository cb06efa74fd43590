package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

// The exit codes, after sysexits(3) and flock(1). A command that ran has its own.
const (
	exitOK          = 0
	exitConflict    = 1
	exitUsage       = 64
	exitUnavailable = 69
	exitInternal    = 70
	exitLost        = 75
	exitPermission  = 77
)

// failure ends the program with a code, and a line that says why; an empty text says nothing.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func usage(format string, args ...any) error {
	return &failure{exitUsage, fmt.Sprintf(format, args...)}
}

// storeFailure sorts what a store, or the way to it, answered.
func storeFailure(doing string, err error) *failure {
	var bad *backend.URLError
	code := exitUnavailable
	switch {
	case errors.As(err, &bad):
		return &failure{exitUsage, "--backend: " + bad.Text}
	case errors.Is(err, pawl.ErrInvalid), errors.Is(err, pawl.ErrMismatch), errors.Is(err, errors.ErrUnsupported):
		code = exitUsage
	case errors.Is(err, fs.ErrPermission) || refused(err.Error()):
		code = exitPermission
	}
	text := strings.TrimPrefix(err.Error(), "pawl: ")
	if errors.Is(err, context.DeadlineExceeded) && code == exitUnavailable {
		text = "no answer in time: " + text
	}
	return &failure{code, doing + ": " + text}
}

// refused knows the words with which servers answer a wrong password or a missing right.
func refused(text string) bool {
	for _, w := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "invalid username-password pair", "permission denied", "refuses user or password", "lacks a right",
		"wrong user name or password", "refuses the login", "wants a user name and password", "the user does not exist", "lacks a permission", // etcd
		"zookeeper: no right to", "zk: authentication failed"} {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
