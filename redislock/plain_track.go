package redislock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

var _ tracking = (*rueidisClient)(nil)

func (c *rueidisClient) nodes() []string {
	if !c.Cluster() {
		return []string{""}
	}
	return slices.Collect(maps.Keys(c.Client.Nodes()))
}

// rueidisTracked is a connection that is told of changes.
type rueidisTracked struct {
	dedicated
	ends <-chan error
}

func (c *rueidisClient) track(ctx context.Context, node string, told func([]string)) (tracked, error) {
	dial := c.dedicate
	if node != "" {
		client := c.Client.Nodes()[node]
		if client == nil {
			return nil, errors.New("redis: the cluster has no such node any more")
		}
		dial = dedicate(client)
	}
	t := &rueidisTracked{dedicated: dial()}
	defer context.AfterFunc(ctx, t.cut)()
	// A server accepts the command from a client that speaks RESP2, and tells it nothing.
	facts, err := t.Do(ctx, t.B().Arbitrary("HELLO").Build()).AsMap()
	if err == nil {
		proto := facts["proto"]
		if n, _ := proto.AsInt64(); n < 3 {
			err = fmt.Errorf("%w over RESP2", errNoTracking)
		}
	}
	if err == nil {
		t.ends = t.SetOnInvalidations(func(keys []rueidis.RedisMessage) {
			var names []string
			for i := range keys {
				if name, err := keys[i].ToString(); err == nil {
					names = append(names, name)
				}
			}
			told(names)
		})
		err = t.Do(ctx, t.B().ClientTracking().On().Build()).Error()
	}
	if err == nil {
		return t, nil
	}
	t.cut()
	if _, refusal := rueidis.IsRedisErr(err); refusal {
		err = fmt.Errorf("%w: %w", errNoTracking, err)
	}
	return nil, err
}

func (t *rueidisTracked) get(ctx context.Context, keys []string) []wire.Result {
	cmds := make(rueidis.Commands, len(keys))
	for i, key := range keys {
		cmds[i] = t.B().Get().Key(key).Build()
	}
	out := make([]wire.Result, len(keys))
	for i, r := range t.DoMulti(ctx, cmds...) {
		out[i] = result(r)
	}
	return out
}

func (t *rueidisTracked) lost() <-chan error { return t.ends }
