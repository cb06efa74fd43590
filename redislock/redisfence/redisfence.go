// Package redisfence is a guard on Redis: it refuses whoever is not the newest holder any more. Read package fence first.
//
// # What it guards
//
// [Guard.Claim] is a script that raises the mark of a resource. It answers for its instant only, so it is for what comes
// before the first read. What writes is a [Script]: claim and work in one step, nothing between them. Together they
// protect data in this Redis (the server, or the slot) as package fence promises.
//
// For a resource outside this Redis, only Claim is left: a holder that is paused between its claim and its write is not
// stopped. Only that resource itself could.
//
// # What it does not do
//
// Marks are as durable as this Redis is: after a restart without persistence or a failover to a replica that lagged, the
// guard has forgotten what it had seen, together with the data beside it. Keep the marks on the server that has the
// data, and not where keys are evicted.
//
// It needs Redis 6.2 or Valkey. In a cluster all keys of a Script and the resource must share a hash tag, as in the
// resource "{stock:7}" and the key "{stock:7}:left".
package redisfence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/fence"
)

// Options are for New. The zero Options are the defaults.
type Options struct {
	// Prefix begins the keys of the marks. Default "pawl_fence:".
	Prefix string
	// Keep is how long a mark stays after its last claim; at least a second. It must be longer than any holder can be
	// paused: afterwards an old token is as good as a new one. Default 0: for ever.
	Keep time.Duration
}

// Guard keeps its marks in a Redis. It is a fence.Guard, and safe for concurrent use.
type Guard struct {
	client rueidis.Client
	prefix string
	keep   string // milliseconds
	bad    error
}

var _ fence.Guard = (*Guard)(nil)

// New makes a guard on the caller's client, which stays the caller's. It does no I/O; wrong options are told by the first
// claim.
func New(client rueidis.Client, opts *Options) *Guard {
	g := &Guard{client: client, prefix: "pawl_fence:", keep: "0"}
	if client == nil {
		g.bad = errors.New("redisfence: no client")
	}
	if opts == nil {
		return g
	}
	if opts.Prefix != "" {
		g.prefix = opts.Prefix
	}
	if opts.Keep != 0 {
		if opts.Keep < time.Second {
			g.bad = fmt.Errorf("redisfence: Options.Keep of %v: it takes at least a second, or 0 for ever", opts.Keep)
		}
		g.keep = strconv.FormatInt(opts.Keep.Milliseconds(), 10)
	}
	return g
}

//go:embed claim.lua
var claimLua string

var claimOnly = rueidis.NewLuaScriptRetryable(claimLua + "return 1\n") // a claim may be repeated

// Claim raises the mark of resource to the lease's token. It blocks until Redis has answered, or ctx ends.
//
// It answers fence.ErrStale when a newer hold has claimed (*fence.StaleError) or the lease has ended or is nil, and
// fence.ErrNoToken; then the mark stays as it was. Any other error is Redis's, and the mark may have been raised. A hold may
// claim as often as it likes, so ask again.
func (g *Guard) Claim(ctx context.Context, resource string, l fence.Lease) error {
	return g.run(ctx, claimOnly, resource, l, false, nil, nil).Error()
}

// ClaimShared is Claim for one who only reads, under a read lock: see package fence.
func (g *Guard) ClaimShared(ctx context.Context, resource string, l fence.Lease) error {
	return g.run(ctx, claimOnly, resource, l, true, nil, nil).Error()
}

// Script is work in Lua that Redis does only for the newest holder, in one step with the claim. It is safe for concurrent
// use: make it once.
type Script struct {
	lua *rueidis.Lua
	bad error
}

// NewScript makes a guarded script of a body, which finds its own KEYS and ARGV as in any script of Redis. A body that fails has
// claimed nevertheless, and what it wrote before stays, as always in Redis.
func NewScript(body string) *Script {
	if strings.HasPrefix(body, "#!") {
		return &Script{bad: errors.New("redisfence: a guarded script cannot begin with a line of flags (#!): leave it out")}
	}
	return &Script{lua: rueidis.NewLuaScript(claimLua + body + "\n")}
}

// Exec claims resource for l and runs the script; its result is what the body returns. Errors are those of Claim; after one
// that is not of package fence the script may have run, as with any command.
func (s *Script) Exec(ctx context.Context, g *Guard, resource string, l fence.Lease, keys, args []string) rueidis.RedisResult {
	if s.bad != nil {
		return rueidis.NewErrorResult(s.bad)
	}
	return g.run(ctx, s.lua, resource, l, false, keys, args)
}

// ExecShared is Exec with a shared claim, for a body that only reads.
func (s *Script) ExecShared(ctx context.Context, g *Guard, resource string, l fence.Lease, keys, args []string) rueidis.RedisResult {
	if s.bad != nil {
		return rueidis.NewErrorResult(s.bad)
	}
	return g.run(ctx, s.lua, resource, l, true, keys, args)
}

// maxResource bounds a resource's name, in bytes, as fence.Table does.
const maxResource = 1024

func (g *Guard) run(ctx context.Context, lua *rueidis.Lua, resource string, l fence.Lease, shared bool, keys, args []string) rueidis.RedisResult {
	fail := rueidis.NewErrorResult
	if g.bad != nil {
		return fail(g.bad)
	}
	if resource == "" || len(resource) > maxResource {
		return fail(fmt.Errorf("redisfence: resource name %.40q: it takes 1 to %d bytes", resource, maxResource))
	}
	p, err := fence.Show(resource, l)
	if err != nil {
		return fail(err)
	}
	mark := g.prefix + resource
	for _, k := range keys { // the client would panic
		if g.client.Mode() == rueidis.ClientModeCluster && g.slot(k) != g.slot(mark) {
			return fail(fmt.Errorf("redisfence: the key %.40q and the resource %.40q are in different slots of the cluster: give them the same {tag}", k, resource))
		}
	}
	mode := "0"
	if shared {
		mode = "1"
	}
	allKeys := append(append(make([]string, 0, len(keys)+1), keys...), mark)
	allArgs := append(append(make([]string, 0, len(args)+4), args...), strconv.FormatInt(p.Token, 10), p.Hold, mode, g.keep)
	r := lua.Exec(ctx, g.client, allKeys, allArgs)
	if e, ok := errors.AsType[*rueidis.RedisError](r.Error()); ok {
		if _, seen, found := strings.Cut(e.Error(), "PAWLSTALE "); found {
			n, _ := strconv.ParseInt(seen, 10, 64)
			return fail(&fence.StaleError{Resource: resource, Token: p.Token, Seen: n})
		}
	}
	return r
}

// slot is where a key is in a cluster.
func (g *Guard) slot(key string) uint16 {
	cmd := g.client.B().Get().Key(key).Build()
	return cmd.Slot()
}
