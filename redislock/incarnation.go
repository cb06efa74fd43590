package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var _ driver.Incarnated = (*Driver)(nil)

// Incarnation is the server's run id, and how long it runs. The server is not believed to keep anything over a restart, nor
// over a promotion: a replica that became the primary begins a new life, of which it does not know when it began, so that
// its age is 0. A cluster answers errors.ErrUnsupported: a name has another server there than the next one. The user must be
// allowed to ask INFO.
//
// The server counts by its wall clock: one that is set forward after a restart makes it look older than it is.
func (d *Driver) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	if d.bad != nil {
		return "", 0, d.bad
	}
	if d.lanes.cluster {
		return "", 0, fmt.Errorf("redislock: the life of a cluster: %w", errors.ErrUnsupported)
	}
	msg, err := d.lanes.run(ctx, inspectLimit, request{script: lifeScript})
	if err != nil {
		return "", 0, err
	}
	facts, err := msg.AsStrSlice()
	if err != nil || len(facts) != 4 || facts[0] == "" {
		return "", 0, fmt.Errorf("redis: INFO tells no run_id: %w", errors.Join(err, errors.ErrUnsupported))
	}
	run, replica := facts[0], strings.Trim(facts[3], "0") != ""
	if replica {
		return run + " " + facts[2], 0, nil
	}
	seconds, err := strconv.ParseInt(facts[1], 10, 64)
	if err != nil || seconds < 0 {
		return "", 0, fmt.Errorf("redis: INFO tells an uptime of %q", facts[1])
	}
	return run, time.Duration(seconds) * time.Second, nil
}
