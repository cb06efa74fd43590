package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawl-lock/pawl/driver"
)

var errClosed = fmt.Errorf("etcdlock: the driver is closed: %w, %w", driver.ErrClosed, driver.ErrNotDone)

// errLeaseGone says that the store no longer has a session's lease, nor any key of it.
var errLeaseGone = errors.New("the session's lease is gone")

// refusals are the server's answers to a request that it did not carry out and will not carry out later.
var refusals = map[string]string{
	desc(rpctypes.ErrGRPCNoSpace):                "the cluster has raised its NOSPACE alarm and refuses writes until it is compacted, defragmented and the alarm disarmed",
	desc(rpctypes.ErrGRPCPermissionDenied):       "the user lacks a permission: locks need to read and write all keys that begin with the prefix",
	desc(rpctypes.ErrGRPCAuthFailed):             "wrong user name or password",
	desc(rpctypes.ErrGRPCUserEmpty):              "the cluster wants a user name and password",
	desc(rpctypes.ErrGRPCUserNotFound):           "the user does not exist",
	desc(rpctypes.ErrGRPCInvalidAuthToken):       "the cluster refuses the login",
	desc(rpctypes.ErrGRPCAuthOldRevision):        "users or roles were just changed",
	desc(rpctypes.ErrGRPCNoLeader):               "the cluster has no leader: it has lost its quorum, or this member is cut off from it",
	desc(rpctypes.ErrGRPCRequestTooManyRequests): "the cluster is overloaded",
	desc(rpctypes.ErrGRPCRequestTooLarge):        "the request is too large",
	desc(rpctypes.ErrGRPCCorrupt):                "the cluster has raised its CORRUPT alarm",
	desc(rpctypes.ErrGRPCNotCapable):             "the cluster is too old",
	desc(rpctypes.ErrGRPCNotSupportedForLearner): "the member is a learner, which keeps no locks",
	desc(rpctypes.ErrGRPCClusterIDMismatch):      "the member belongs to another cluster",
}

func desc(err error) string { return rpctypes.ErrorDesc(err) }

// unsent are what gRPC says of a request that never left, since there was no connection to send it on.
var unsent = []string{"Error while dialing", "error reading server preface", "no connection available", "no address available",
	"no children to pick from", "authentication handshake failed", "timed out waiting for server handshake"}

// elsewhere reports whether another member may do what this one did not.
func elsewhere(err error) bool {
	if err == nil {
		return false
	}
	st, ok := status.FromError(err)
	return ok && st.Code() == codes.Unavailable || is(err, rpctypes.ErrGRPCNoLeader) || is(err, rpctypes.ErrGRPCNotSupportedForLearner)
}

// noAnswer is the end of a request that was not answered within so long.
type noAnswer time.Duration

func (d noAnswer) Error() string {
	return fmt.Sprintf("no answer within %v: has the cluster lost its quorum?", time.Duration(d))
}

func (d noAnswer) Is(target error) bool { return target == context.DeadlineExceeded }

func is(err, want error) bool { return err != nil && desc(err) == desc(want) }

// leaseGone reports whether the store says that a lease is not there (any more).
func leaseGone(err error) bool {
	return errors.Is(err, errLeaseGone) || is(err, rpctypes.ErrGRPCLeaseNotFound)
}

// certain reports whether err says for sure that the request did nothing and will do nothing.
func certain(err error) bool { return errors.Is(err, driver.ErrNotDone) }

// translate says what became of a request that failed with err. ctx is the request's own.
func translate(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case leaseGone(err):
		return fmt.Errorf("etcd: %w: %w", errLeaseGone, driver.ErrNotDone)
	}
	text := desc(err)
	if what, ok := refusals[text]; ok {
		return fmt.Errorf("etcd: %s (%s): %w", what, strings.TrimPrefix(text, "etcdserver: "), driver.ErrNotDone)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("etcd: %w", context.Cause(ctx))
	}
	for _, u := range unsent {
		if strings.Contains(text, u) {
			return fmt.Errorf("etcd: no member can be reached (%s): %w", text, driver.ErrNotDone)
		}
	}
	if st, ok := status.FromError(err); ok && st.Code() == codes.Unimplemented {
		return fmt.Errorf("etcd: what answers there is not an etcd v3 server (%s): %w", text, driver.ErrNotDone)
	}
	return fmt.Errorf("etcd: %s", strings.TrimPrefix(text, "etcdserver: "))
}

// undone makes the failure of a preparation certain: nothing of the hold was asked for yet.
func undone(err error) error {
	if err == nil || certain(err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.ErrNotDone)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("etcdlock: %w: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}

// errDeaf says that the cluster does not let this driver watch now.
var errDeaf = errors.New("etcd: no watch is to be had: the cluster does not answer or the user may not read the keys")
