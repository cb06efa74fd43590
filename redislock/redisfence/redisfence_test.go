package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/redislock/redisfence"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

func dial(t testing.TB, s *redistest.Server) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var (
	get = redisfence.NewScript("return redis.call('GET', KEYS[1]) or '0'")
	set = redisfence.NewScript("assert(#KEYS == 1 and #ARGV == 1); return redis.call('SET', KEYS[1], ARGV[1])")
)

// number is a key of Redis, as the suite wants it. It reads as most programs do: claim, then a plain read.
type number struct {
	client   rueidis.Client
	guard    *redisfence.Guard
	resource string
}

func (n number) key() string { return "number:" + n.resource }

func (n number) Read(ctx context.Context, l fence.Lease) (int, error) {
	if err := n.guard.Claim(ctx, n.resource, l); err != nil {
		return 0, err
	}
	v, err := n.client.Do(ctx, n.client.B().Get().Key(n.key()).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return int(v), err
}

func (n number) ReadShared(ctx context.Context, l fence.Lease) (int, error) {
	v, err := get.ExecShared(ctx, n.guard, n.resource, l, []string{n.key()}, nil).AsInt64()
	return int(v), err
}

func (n number) Write(ctx context.Context, l fence.Lease, v int) error {
	return set.Exec(ctx, n.guard, n.resource, l, []string{n.key()}, []string{strconv.Itoa(v)}).Error()
}

func TestGuard(t *testing.T) {
	t.Parallel()
	c := dial(t, redistest.Start(t))
	g := redisfence.New(c, nil)
	guardtest.Run(t, func(resource string) guardtest.Register { return number{c, g, resource} })
}

func hold(id string, token int64) fence.Lease {
	return guardtest.Shown{Lock: "lock", Hold: id, Number: token}
}

// A mark is kept for as long as it was said, counted from the last claim, and for ever by default.
func TestKeep(t *testing.T) {
	t.Parallel()
	c, ctx := dial(t, redistest.Start(t)), t.Context()
	ttl := func(key string) time.Duration {
		ms, err := c.Do(ctx, c.B().Pttl().Key(key).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ms) * time.Millisecond
	}
	for _, claim := range []func(context.Context, string, fence.Lease) error{
		redisfence.New(c, nil).Claim,
		redisfence.New(c, &redisfence.Options{Prefix: "a:", Keep: time.Hour}).Claim,
		redisfence.New(c, &redisfence.Options{Prefix: "b:", Keep: time.Hour}).ClaimShared,
		redisfence.New(c, &redisfence.Options{Prefix: "c:", Keep: time.Second}).Claim,
	} {
		if err := claim(ctx, "r", hold("h", 5)); err != nil {
			t.Fatal(err)
		}
	}
	if d := ttl("pawl_fence:r"); d != -time.Millisecond {
		t.Errorf("by default: kept for %v, want no limit", d)
	}
	for _, key := range []string{"a:r", "b:r"} {
		if d := ttl(key); d < 50*time.Minute || d > time.Hour {
			t.Errorf("%s: kept for %v, want an hour", key, d)
		}
	}
	short := redisfence.New(c, &redisfence.Options{Prefix: "c:", Keep: time.Second})
	for end := time.Now().Add(20 * time.Second); short.Claim(ctx, "r", hold("h", 4)) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the mark was kept for 20 s instead of one")
		}
	}
}

// A script finds the keys and arguments that it was given, its answer comes back as it is, and its errors are its own.
func TestScript(t *testing.T) {
	t.Parallel()
	c, ctx := dial(t, redistest.Start(t)), t.Context()
	g := redisfence.New(c, nil)
	l := hold("h", 5)
	all, err := redisfence.NewScript("local m = {#KEYS, #ARGV} for _, k in ipairs(KEYS) do m[#m+1] = k end for _, a in ipairs(ARGV) do m[#m+1] = a end return m -- the end").
		Exec(ctx, g, "r", l, []string{"k1", "k2"}, []string{"a1", "a2", "a3"}).ToAny()
	if err != nil || fmt.Sprint(all) != "[2 3 k1 k2 a1 a2 a3]" {
		t.Errorf("got %v, %v", all, err)
	}
	if v, err := redisfence.NewScript("return #KEYS + #ARGV").Exec(ctx, g, "r", l, nil, nil).AsInt64(); err != nil || v != 0 {
		t.Errorf("without keys and arguments: got %d, %v", v, err)
	}
	if err := redisfence.NewScript("").Exec(ctx, g, "r", l, nil, nil).Error(); !rueidis.IsRedisNil(err) {
		t.Errorf("an empty body: got %v, want nil", err)
	}
	if err := redisfence.NewScript("return redis.call('INCR', KEYS[1], 'x')").Exec(ctx, g, "failing", hold("h", 9), []string{"k"}, nil).Error(); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a failing body: got %v", err)
	}
	if err := g.Claim(ctx, "failing", hold("h", 8)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a failing body has claimed: got %v for an older token", err)
	}
	if err := redisfence.NewScript("this is not Lua").Exec(ctx, g, "unborn", hold("h", 9), nil, nil).Error(); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("no Lua: got %v", err)
	}
	// A stale script does nothing at all.
	mark := redisfence.NewScript("return redis.call('SET', KEYS[1], 'written')")
	if err := mark.Exec(ctx, g, "r", hold("h", 4), []string{"target"}, nil).Error(); !errors.Is(err, fence.ErrStale) {
		t.Errorf("stale: got %v", err)
	}
	if n, _ := c.Do(ctx, c.B().Exists().Key("target").Build()).AsInt64(); n != 0 {
		t.Error("the stale script ran")
	}
	// The server forgets its scripts.
	if err := c.Do(ctx, c.B().ScriptFlush().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := mark.Exec(ctx, g, "r", l, []string{"target"}, nil).Error(); err != nil {
		t.Errorf("after SCRIPT FLUSH: got %v", err)
	}
}

// The errors of Redis are not taken for stale tokens, and what cannot work says so.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, ctx := dial(t, s), t.Context()
	g, l := redisfence.New(c, nil), hold("h", 5)
	if err := c.Do(ctx, c.B().Set().Key("pawl_fence:text").Value("x").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	long, stop := context.WithCancel(ctx)
	stop()
	for _, e := range []struct {
		err  error
		want string
	}{
		{g.Claim(ctx, "", l), "resource name"},
		{g.Claim(ctx, strings.Repeat("x", 1025), l), "resource name"},
		{redisfence.New(nil, nil).Claim(ctx, "r", l), "no client"},
		{redisfence.New(c, &redisfence.Options{Keep: time.Millisecond}).Claim(ctx, "r", l), "at least a second"},
		{redisfence.New(c, &redisfence.Options{Keep: -time.Hour}).Claim(ctx, "r", l), "at least a second"},
		{redisfence.NewScript("#!lua flags=no-writes\nreturn 1").Exec(ctx, g, "r", l, nil, nil).Error(), "flags"},
		{g.Claim(ctx, "text", l), "WRONGTYPE"},
		{g.Claim(long, "r", l), "canceled"},
	} {
		if e.err == nil || errors.Is(e.err, fence.ErrStale) || !strings.Contains(e.err.Error(), e.want) {
			t.Errorf("got %v, want %q", e.err, e.want)
		}
	}
	s.Stop()
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if err := g.Claim(short, "r", l); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a frozen server: got %v", err)
	}
	s.Cont()
}

// In a cluster, keys of other slots are refused with a word about it; those with the resource's tag work.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--cluster-enabled", "yes")
	ctx := t.Context()
	one, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	all := make([]int64, 16384)
	for i := range all {
		all[i] = int64(i)
	}
	if err := one.Do(ctx, one.B().ClusterAddslots().Slot(all...).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := one.Do(ctx, one.B().Set().Key("x").Value("y").Build()).Error(); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	cluster, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	g := redisfence.New(cluster, nil)
	if err := set.Exec(ctx, g, "stock:1", hold("h", 5), []string{"left"}, []string{"7"}).Error(); err == nil || !strings.Contains(err.Error(), "{tag}") {
		t.Errorf("another slot: got %v", err)
	}
	if err := set.Exec(ctx, g, "{stock:1}", hold("h", 5), []string{"{stock:1}:left"}, []string{"7"}).Error(); err != nil {
		t.Errorf("the same tag: got %v", err)
	}
	if err := set.Exec(ctx, g, "{stock:1}", hold("h", 4), []string{"{stock:1}:left"}, []string{"9"}).Error(); !errors.Is(err, fence.ErrStale) {
		t.Errorf("stale: got %v", err)
	}
}
