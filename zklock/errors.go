package zklock

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

var errClosed = fmt.Errorf("zklock: the driver was closed: %w (%w)", driver.ErrClosed, driver.ErrNotDone)

func invalid(format string, args ...any) error {
	return fmt.Errorf("zklock: %w: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}

// describe says what an error of the client library or the server means.
func describe(what, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zookeeper: no right to %s %s: give the session credentials that the ACL there allows, or another root: %w", what, path, err)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zookeeper: Options.ACL does not fit the session, for instance scheme auth without credentials: %w", err)
	case errors.Is(err, zk.ErrNoServer):
		return fmt.Errorf("zookeeper: no server of the ensemble can be reached: %w", err)
	case errors.Is(err, zk.ErrConnectionClosed):
		return fmt.Errorf("zookeeper: the connection was lost, or the connection object was closed, during %s of %s: %w", what, path, err)
	case errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("zookeeper: the connection object was closed: %w", err)
	}
	return fmt.Errorf("zookeeper: %s %s: %w", what, path, err)
}

// refused reports an error after which a request surely had no effect: the server said no, or it was never sent.
func refused(err error) bool {
	for _, e := range []error{zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoServer, zk.ErrInvalidPath, zk.ErrNoNode, zk.ErrNodeExists,
		zk.ErrNoChildrenForEphemerals, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrBadVersion, zk.ErrSessionMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// notDone marks an error of a request that surely had no effect.
func notDone(err error) error {
	if err == nil || errors.Is(err, driver.ErrNotDone) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrNotDone, err)
}

// passing reports an error of a read that is worth asking again.
func passing(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrSessionExpired) ||
		errors.Is(err, zk.ErrSessionMoved)
}
