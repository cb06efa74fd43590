package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"

	"github.com/pawl-lock/pawl/driver"
)

var _ driver.Surveyed = (*Driver)(nil)

var (
	followers = regexp.MustCompile(`(?m)^connected_slaves:(\d+)`)
	logs      = regexp.MustCompile(`(?m)^aof_enabled:(\d)`)
)

// Survey asks INFO, and CONFIG GET if the user may: without it only an append-only file is known about. A cluster answers
// errors.ErrUnsupported.
func (d *Driver) Survey(ctx context.Context) (driver.Survey, error) {
	out := driver.Survey{Replicas: -1}
	if d.bad != nil {
		return out, d.bad
	}
	if d.lanes.cluster {
		return out, fmt.Errorf("redislock: a cluster is not one store: %w", errors.ErrUnsupported)
	}
	if c, ok := d.lanes.redis.(interface{ Addr() string }); ok {
		out.Host, _, _ = net.SplitHostPort(c.Addr())
	}
	ask := func(args ...string) (string, error) {
		msg, err := d.lanes.run(ctx, inspectLimit, request{args: args})
		if err != nil {
			return "", err
		}
		if pair, err := msg.AsStrSlice(); err == nil && len(pair) == 2 {
			return pair[1], nil
		}
		return msg.ToString()
	}
	info, err := ask("INFO", "replication")
	if err != nil {
		return out, err
	}
	if m := followers.FindStringSubmatch(info); m != nil {
		out.Replicas, _ = strconv.Atoi(m[1])
	}
	if info, err = ask("INFO", "persistence"); err != nil {
		return out, err
	}
	log := logs.FindStringSubmatch(info)
	switch {
	case log == nil:
	case log[1] == "1":
		out.Keeps = driver.KeepsMost
		if how, err := ask("CONFIG", "GET", "appendfsync"); err == nil && how == "always" {
			out.Keeps = driver.KeepsAll
		}
	default:
		if save, err := ask("CONFIG", "GET", "save"); err == nil && save == "" {
			out.Keeps = driver.KeepsNothing
		} else if err == nil {
			out.Keeps = driver.KeepsMost
		}
	}
	return out, nil
}
