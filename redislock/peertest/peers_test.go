// Package peertest tests the layout of plain string keys beside the clients that it is shared with: the real ones, where they
// can be had as a Go module or a Debian package, and the statements that the others send.
package peertest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/redislock/redistest"
)

// peer is another client.
type peer interface {
	take(key string, ttl time.Duration) (lock, error)                      // one attempt
	wait(ctx context.Context, key string, ttl time.Duration) (lock, error) // in the peer's own way
}

// lock is what a peer has got.
type lock interface {
	extend(ttl time.Duration) error
	release() error
}

var errTaken = errors.New("taken")

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silent{}) } // or it tells of every server that was killed

func goRedis(t testing.TB, s *redistest.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// redsyncPeer is redsync with one pool or several.
type redsyncPeer struct{ rs *redsync.Redsync }

type redsyncLock struct{ m *redsync.Mutex }

func newRedsync(t testing.TB, servers ...*redistest.Server) peer {
	var pools []rsredis.Pool
	for _, s := range servers {
		pools = append(pools, goredis.NewPool(goRedis(t, s)))
	}
	return redsyncPeer{redsync.New(pools...)}
}

func (p redsyncPeer) take(key string, ttl time.Duration) (lock, error) {
	m := p.rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1))
	return redsyncLock{m}, m.Lock()
}

func (p redsyncPeer) wait(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	m := p.rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1000))
	return redsyncLock{m}, m.LockContext(ctx)
}

func (l redsyncLock) extend(time.Duration) error { return sure(l.m.Extend()) }
func (l redsyncLock) release() error             { return sure(l.m.Unlock()) }

func sure(ok bool, err error) error {
	if err == nil && !ok {
		err = errors.New("not held")
	}
	return err
}

// bsmPeer is bsm/redislock.
type bsmPeer struct{ c *bsm.Client }

type bsmLock struct{ l *bsm.Lock }

func newBsm(t testing.TB, s *redistest.Server) peer { return bsmPeer{bsm.New(goRedis(t, s))} }

func (p bsmPeer) take(key string, ttl time.Duration) (lock, error) {
	l, err := p.c.Obtain(context.Background(), key, ttl, nil)
	return bsmLock{l}, err
}

func (p bsmPeer) wait(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	l, err := p.c.Obtain(ctx, key, ttl, &bsm.Options{RetryStrategy: bsm.LinearBackoff(50 * time.Millisecond), Metadata: "who I am"})
	return bsmLock{l}, err
}

func (l bsmLock) extend(ttl time.Duration) error { return l.l.Refresh(context.Background(), ttl, nil) }
func (l bsmLock) release() error                 { return l.l.Release(context.Background()) }

// pyPeer is the lock of redis-py, in a process of its own.
type pyPeer struct {
	ask func(words ...any) error
}

type pyLock struct {
	p   pyPeer
	key string
}

// newRedisPy starts a Python with redis-py (Debian: python3-redis). Its commands come one after the other.
func newRedisPy(t testing.TB, s *redistest.Server) peer {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "testdata/redispy.py", strconv.Itoa(s.Port()))
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var trouble strings.Builder
	cmd.Stderr = &trouble
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (install python3-redis)", err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	answers := bufio.NewReader(out)
	return pyPeer{func(words ...any) error {
		fmt.Fprintln(in, words...)
		line, err := answers.ReadString('\n')
		switch {
		case err != nil:
			cmd.Wait()
			t.Errorf("redis-py ended: %v (is python3-redis installed?)\n%s", err, &trouble)
			return err
		case strings.TrimSpace(line) != "ok":
			return errors.New(strings.TrimSpace(line))
		}
		return nil
	}}
}

func (p pyPeer) take(key string, ttl time.Duration) (lock, error) {
	return pyLock{p, key}, p.ask("take", key, ttl.Milliseconds())
}

func (p pyPeer) wait(_ context.Context, key string, ttl time.Duration) (lock, error) {
	return pyLock{p, key}, p.ask("wait", key, ttl.Milliseconds())
}

func (l pyLock) extend(ttl time.Duration) error { return l.p.ask("extend", l.key, ttl.Milliseconds()) }
func (l pyLock) release() error                 { return l.p.ask("release", l.key) }

// cliPeer sends what a client of that kind sends, by redis-cli. K, V and T stand for the key, the value and the TTL.
type cliPeer struct {
	t    testing.TB
	s    *redistest.Server
	kind statements
}

// statements are what a client sends, and what it is answered if that had the effect.
type statements struct {
	name                  string
	prefix                string
	take, extend, release []string
	yes                   map[string]string // by what was asked: "take", "extend", "release"
	value                 func() string
	every                 time.Duration // between two looks
	careless              bool          // its release is not compared
}

type cliLock struct {
	p          cliPeer
	key, value string
}

func (p cliPeer) run(what, key, value string, ttl time.Duration) error {
	words := map[string][]string{"take": p.kind.take, "extend": p.kind.extend, "release": p.kind.release}[what]
	args := []string{"-h", "127.0.0.1", "-p", strconv.Itoa(p.s.Port()), "--raw"}
	for _, w := range words {
		switch w {
		case "K":
			w = key
		case "V":
			w = value
		case "T":
			w = strconv.FormatInt(ttl.Milliseconds(), 10)
		}
		args = append(args, w)
	}
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	switch answer := strings.TrimSpace(string(out)); {
	case err != nil:
		return fmt.Errorf("redis-cli: %w: %s", err, answer)
	case answer != p.kind.yes[what]:
		return fmt.Errorf("%w: %q", errTaken, answer)
	}
	return nil
}

func (p cliPeer) take(key string, ttl time.Duration) (lock, error) {
	l := cliLock{p, key, p.kind.value()}
	return l, p.run("take", key, l.value, ttl)
}

func (p cliPeer) wait(ctx context.Context, key string, ttl time.Duration) (lock, error) {
	for {
		l, err := p.take(key, ttl)
		if !errors.Is(err, errTaken) || ctx.Err() != nil {
			return l, err
		}
		time.Sleep(p.kind.every)
	}
}

func (l cliLock) extend(ttl time.Duration) error { return l.p.run("extend", l.key, l.value, ttl) }
func (l cliLock) release() error                 { return l.p.run("release", l.key, l.value, 0) }

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func uuid() string {
	x := hex.EncodeToString(random(16))
	return x[:8] + "-" + x[8:12] + "-4" + x[13:16] + "-a" + x[17:20] + "-" + x[20:]
}

// Each of these scripts does what the client's does, in other words.
const (
	deleteMine  = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	unlinkMine  = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('UNLINK', KEYS[1]) or 0`
	refreshMine = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`

	nodeRedlockTake = `
		for _, k in ipairs(KEYS) do if redis.call('EXISTS', k) == 1 then return 0 end end
		for _, k in ipairs(KEYS) do redis.call('SET', k, ARGV[1], 'PX', ARGV[2]) end
		return #KEYS`
	nodeRedlockExtend = `
		for _, k in ipairs(KEYS) do if redis.call('GET', k) ~= ARGV[1] then return 0 end end
		for _, k in ipairs(KEYS) do redis.call('SET', k, ARGV[1], 'PX', ARGV[2]) end
		return #KEYS`
	springTake = `
		local id = redis.call('GET', KEYS[1])
		if id == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end
		if id then return 0 end
		redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
		return 1`
)

var kinds = []statements{
	{
		name: "redis-cli",
		take: []string{"SET", "K", "V", "NX", "PX", "T"}, extend: []string{"EVAL", refreshMine, "1", "K", "V", "T"},
		release: []string{"EVAL", deleteMine, "1", "K", "V"},
		yes:     map[string]string{"take": "OK", "extend": "1", "release": "1"},
		value:   uuid, every: 20 * time.Millisecond,
	},
	{
		name: "node-redlock",
		take: []string{"EVAL", nodeRedlockTake, "1", "K", "V", "T"}, extend: []string{"EVAL", nodeRedlockExtend, "1", "K", "V", "T"},
		release: []string{"EVAL", deleteMine, "1", "K", "V"},
		yes:     map[string]string{"take": "1", "extend": "1", "release": "1"},
		value:   func() string { return hex.EncodeToString(random(16)) }, every: 200 * time.Millisecond,
	},
	{
		name: "redis-semaphore mutex", prefix: "mutex:",
		take: []string{"SET", "K", "V", "PX", "T", "NX"}, extend: []string{"EVAL", refreshMine, "1", "K", "V", "T"},
		release: []string{"EVAL", deleteMine, "1", "K", "V"},
		yes:     map[string]string{"take": "OK", "extend": "1", "release": "1"},
		value:   func() string { return uuid() + "-suffix" }, every: 10 * time.Millisecond,
	},
	{
		name: "rueidislock of majority 1", prefix: "rueidislock:0:",
		take: []string{"SET", "K", "V", "NX", "PX", "T"}, extend: []string{"EVAL", refreshMine, "1", "K", "V", "T"},
		release: []string{"EVAL", deleteMine, "1", "K", "V"},
		yes:     map[string]string{"take": "OK", "extend": "1", "release": "1"},
		value: func() string { // raw bytes; an argument of a process has no NUL
			return strings.ReplaceAll(string(random(24)), "\x00", "\xff")
		},
		every: 20 * time.Millisecond,
	},
	{
		name: "redlock-rb",
		take: []string{"SET", "K", "V", "NX", "PX", "T"}, extend: []string{"EVAL", refreshMine, "1", "K", "V", "T"},
		release: []string{"EVAL", deleteMine, "1", "K", "V"},
		yes:     map[string]string{"take": "OK", "extend": "1", "release": "1"},
		value:   func() string { return base64.StdEncoding.EncodeToString(random(16)) }, every: 200 * time.Millisecond,
	},
	{
		name: "Spring, spinning", prefix: "registry:",
		take: []string{"EVAL", springTake, "1", "K", "V", "T"}, extend: []string{"EVAL", refreshMine, "1", "K", "V", "T"},
		release: []string{"EVAL", unlinkMine, "1", "K", "V"},
		yes:     map[string]string{"take": "1", "extend": "1", "release": "1"},
		value:   uuid, every: 100 * time.Millisecond,
	},
	{
		name: "ShedLock with safeUpdate", prefix: "job-lock:default:",
		take: []string{"SET", "K", "V", "NX", "PX", "T"}, extend: []string{"EVAL", refreshMine, "1", "K", "V", "T"},
		release: []string{"EVAL", deleteMine, "1", "K", "V"},
		yes:     map[string]string{"take": "OK", "extend": "1", "release": "1"},
		value:   func() string { return "ADDED:2026-11-30T12:00:00.000Z@host:" + uuid() }, every: 100 * time.Millisecond,
	},
	{
		name: "ShedLock", prefix: "job-lock:default:", careless: true,
		take: []string{"SET", "K", "V", "NX", "PX", "T"}, extend: []string{"SET", "K", "V", "XX", "PX", "T"},
		release: []string{"DEL", "K"},
		yes:     map[string]string{"take": "OK", "extend": "OK", "release": "1"},
		value:   func() string { return "ADDED:2026-11-30T12:00:00.000Z@host:" + uuid() }, every: 100 * time.Millisecond,
	},
}
