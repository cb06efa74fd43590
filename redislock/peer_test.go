package redislock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
)

// peer plays a Java process with Redisson: the steps of its protocol, written down once more and apart from the driver's
// scripts, on a bare client.
type peer struct {
	t      testing.TB
	c      rueidis.Client
	uuid   string
	thread int
}

func newPeer(t testing.TB, c rueidis.Client) *peer {
	return &peer{t: t, c: c, uuid: newUUID(), thread: 7}
}

// other is another thread of the same process.
func (p *peer) other(thread int) *peer {
	q := *p
	q.thread = thread
	return &q
}

func (p *peer) owner() string { return p.uuid + ":" + strconv.Itoa(p.thread) }

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// eval runs a script. ok is false for nil, which is how Redisson's scripts say "done".
func (p *peer) eval(script string, keys, args []string) (n int64, ok bool) {
	p.t.Helper()
	r := p.c.Do(context.Background(), p.c.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	n, err := r.AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, false
	}
	if err != nil {
		p.t.Fatalf("the peer's script: %v", err)
	}
	return n, true
}

// lock answers the remaining TTL and false, or true.
func (p *peer) lock(name string, lease time.Duration) (time.Duration, bool) {
	p.t.Helper()
	n, refused := p.eval(`
		if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`,
		[]string{name}, []string{ms(lease), p.owner()})
	return time.Duration(n) * time.Millisecond, !refused
}

func (p *peer) mustLock(name string) {
	p.t.Helper()
	if left, ok := p.lock(name, 30*time.Second); !ok {
		p.t.Fatalf("the peer should get the lock, but it is held for %v", left)
	}
}

func (p *peer) mustNotLock(name string) {
	p.t.Helper()
	left, ok := p.lock(name, 30*time.Second)
	if ok {
		p.t.Fatal("the peer got a lock that is held")
	}
	if left <= 0 {
		p.t.Fatalf("the peer is told to wait %v: it would spin, or sleep for ever", left)
	}
}

// unlock answers false if the lock was not the peer's.
func (p *peer) unlock(name string) bool {
	p.t.Helper()
	_, ok := p.eval(`
		if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
			redis.call('pexpire', KEYS[1], 30000)
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call('publish', ARGV[2], '0')
		return 1`,
		[]string{name}, []string{p.owner(), "redisson_lock__channel:{" + name + "}"})
	return ok
}

// fairLock answers how long to wait, and false, or true.
func (p *peer) fairLock(name string, wait, lease time.Duration) (time.Duration, bool) {
	p.t.Helper()
	n, refused := p.eval(`
		while true do
			local head = redis.call('lindex', KEYS[2], 0)
			if not head then break end
			local score = redis.call('zscore', KEYS[3], head)
			if score and tonumber(score) <= tonumber(ARGV[4]) then
				redis.call('zrem', KEYS[3], head)
				redis.call('lpop', KEYS[2])
			else
				break
			end
		end
		local head = redis.call('lindex', KEYS[2], 0)
		if redis.call('exists', KEYS[1]) == 0 and (not head or head == ARGV[2]) then
			redis.call('lpop', KEYS[2])
			redis.call('zrem', KEYS[3], ARGV[2])
			for _, m in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), m) end
			redis.call('hset', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if redis.call('zscore', KEYS[3], ARGV[2]) then return math.max(0, redis.call('pttl', KEYS[1])) end
		local last, base = redis.call('lindex', KEYS[2], -1), nil
		if last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last) then
			base = tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
		else
			base = redis.call('pttl', KEYS[1])
		end
		if redis.call('zadd', KEYS[3], base + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then
			redis.call('rpush', KEYS[2], ARGV[2])
		end
		return base`,
		[]string{name, "redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}"},
		[]string{ms(lease), p.owner(), ms(wait), strconv.FormatInt(time.Now().UnixMilli(), 10)})
	return time.Duration(n) * time.Millisecond, !refused
}

func (p *peer) fairUnlock(name string) bool {
	p.t.Helper()
	_, ok := p.eval(`
		while true do
			local head = redis.call('lindex', KEYS[2], 0)
			if not head then break end
			local score = redis.call('zscore', KEYS[3], head)
			if score and tonumber(score) <= tonumber(ARGV[2]) then
				redis.call('zrem', KEYS[3], head)
				redis.call('lpop', KEYS[2])
			else
				break
			end
		end
		if redis.call('exists', KEYS[1]) == 1 then
			if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
			if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
			redis.call('del', KEYS[1])
		end
		local head = redis.call('lindex', KEYS[2], 0)
		if head then redis.call('publish', ARGV[3] .. ':' .. head, '0') end
		return 1`,
		[]string{name, "redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}"},
		[]string{p.owner(), strconv.FormatInt(time.Now().UnixMilli(), 10), "redisson_lock__channel:{" + name + "}"})
	return ok
}

func (p *peer) readLock(name string, lease time.Duration) (time.Duration, bool) {
	p.t.Helper()
	n, refused := p.eval(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if not mode then
			redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1)
			redis.call('set', KEYS[2] .. ':1', 1, 'px', ARGV[1])
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
			local i = redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('set', KEYS[2] .. ':' .. i, 1, 'px', ARGV[1])
			redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), tonumber(ARGV[1])))
			return nil
		end
		return redis.call('pttl', KEYS[1])`,
		[]string{name, "{" + name + "}:" + p.owner() + ":rwlock_timeout"}, []string{ms(lease), p.owner()})
	return time.Duration(n) * time.Millisecond, !refused
}

func (p *peer) readUnlock(name string) bool {
	p.t.Helper()
	_, ok := p.eval(`
		if not redis.call('hget', KEYS[1], 'mode') then
			redis.call('publish', ARGV[2], '0')
			return nil
		end
		if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		local c = redis.call('hincrby', KEYS[1], ARGV[1], -1)
		if c == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
		redis.call('del', ARGV[3] .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. (c + 1))
		if redis.call('hlen', KEYS[1]) > 1 then
			local most = -3
			for _, f in ipairs(redis.call('hkeys', KEYS[1])) do
				local n = tonumber(redis.call('hget', KEYS[1], f))
				if n then
					for i = n, 1, -1 do most = math.max(most, redis.call('pttl', ARGV[3] .. ':' .. f .. ':rwlock_timeout:' .. i)) end
				end
			end
			if most > 0 then
				redis.call('pexpire', KEYS[1], most)
				return 0
			end
			if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
		end
		redis.call('del', KEYS[1])
		redis.call('publish', ARGV[2], '0')
		return 1`,
		[]string{name}, []string{p.owner(), "redisson_rwlock:{" + name + "}", "{" + name + "}"})
	return ok
}

func (p *peer) writeLock(name string, lease time.Duration) (time.Duration, bool) {
	p.t.Helper()
	n, refused := p.eval(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if not mode then
			redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + tonumber(ARGV[1]))
			return nil
		end
		return redis.call('pttl', KEYS[1])`,
		[]string{name}, []string{ms(lease), p.owner() + ":write"})
	return time.Duration(n) * time.Millisecond, !refused
}

func (p *peer) writeUnlock(name string) bool {
	p.t.Helper()
	_, ok := p.eval(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if not mode then
			redis.call('publish', ARGV[2], '1')
			return nil
		end
		if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
		redis.call('hdel', KEYS[1], ARGV[1])
		if redis.call('hlen', KEYS[1]) == 1 then
			redis.call('del', KEYS[1])
			redis.call('publish', ARGV[2], '1')
		else
			redis.call('hset', KEYS[1], 'mode', 'read')
		end
		return 1`,
		[]string{name}, []string{p.owner() + ":write", "redisson_rwlock:{" + name + "}"})
	return ok
}

func (p *peer) initPermits(name string, n int) bool {
	p.t.Helper()
	r, _ := p.eval(`
		if redis.call('exists', KEYS[1]) == 1 then return 0 end
		redis.call('set', KEYS[1], ARGV[1])
		redis.call('publish', ARGV[2], ARGV[1])
		return 1`,
		[]string{name}, []string{strconv.Itoa(n), "redisson_sc:{" + name + "}"})
	return r == 1
}

// takePermit answers the id of a permit, or "".
func (p *peer) takePermit(name string, lease time.Duration) string {
	p.t.Helper()
	var id [16]byte
	rand.Read(id[:])
	now := time.Now()
	n, _ := p.eval(`
		local gone = redis.call('zrangebyscore', KEYS[2], 0, ARGV[4], 'limit', 0, 1)
		if #gone > 0 then
			redis.call('zrem', KEYS[2], unpack(gone))
			local v = redis.call('incrby', KEYS[1], #gone)
			if v > 0 then redis.call('publish', ARGV[3], v) end
		end
		local v = redis.call('get', KEYS[1])
		if v and tonumber(v) >= 1 then
			redis.call('decrby', KEYS[1], 1)
			redis.call('zadd', KEYS[2], ARGV[2], ARGV[1])
			local left = redis.call('pttl', KEYS[1])
			if left > 0 then redis.call('pexpire', KEYS[2], left) end
			return 1
		end
		return 0`,
		[]string{name, "{" + name + "}:timeout"},
		[]string{string(id[:]), strconv.FormatInt(now.Add(lease).UnixMilli(), 10), "redisson_sc:{" + name + "}", strconv.FormatInt(now.UnixMilli(), 10)})
	if n == 0 {
		return ""
	}
	return string(id[:])
}

func (p *peer) returnPermit(name, id string) bool {
	p.t.Helper()
	n, _ := p.eval(`
		local till = redis.call('zscore', KEYS[2], ARGV[1])
		if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then return 0 end
		redis.call('publish', ARGV[2], redis.call('incrby', KEYS[1], 1))
		if tonumber(till) <= tonumber(ARGV[3]) then return 0 end
		return 1`,
		[]string{name, "{" + name + "}:timeout"}, []string{id, "redisson_sc:{" + name + "}", strconv.FormatInt(time.Now().UnixMilli(), 10)})
	return n == 1
}

// listen subscribes as a waiting thread does.
func (p *peer) listen(channel string) <-chan string {
	p.t.Helper()
	conn, _ := p.c.Dedicate()
	out := make(chan string, 1000)
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { out <- m.Message }})
	if err := conn.Do(context.Background(), conn.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(conn.Close)
	return out
}

func hears(t testing.TB, ch <-chan string, want string) {
	t.Helper()
	select {
	case got := <-ch:
		if got != want {
			t.Fatalf("the message is %q, a Java client needs %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("no message %q", want)
	}
}

func hearsNothing(t testing.TB, ch <-chan string) {
	t.Helper()
	select {
	case got := <-ch:
		t.Fatalf("an unexpected message %q", got)
	case <-time.After(50 * time.Millisecond):
	}
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// asker is one request to a driver.
type asker struct {
	t     testing.TB
	d     *redislock.Driver
	r     driver.Request
	p     driver.Place
	bell  chan struct{}
	grant driver.Grant
}

func ask(t testing.TB, d *redislock.Driver, kind driver.Kind, name string, change ...func(*driver.Request)) *asker {
	t.Helper()
	a := &asker{t: t, d: d, bell: make(chan struct{}, 1)}
	a.r = driver.Request{
		Hold: driver.Hold{Kind: kind, Name: name, ID: idOf(d), Permits: 1, TTL: 30 * time.Second},
		Who:  driver.Holder{Label: "label", Host: "host", PID: 7, Note: "note"},
		Wait: true,
		Notify: func(s driver.Signal) {
			select {
			case a.bell <- struct{}{}:
			default:
			}
		},
	}
	if kind == driver.Permits {
		a.r.Limit = 1
	}
	for _, f := range change {
		f(&a.r)
	}
	var err error
	if a.p, err = d.Enter(t.Context(), a.r); err != nil {
		t.Fatal(err)
	}
	return a
}

var (
	ids   atomic.Int64
	uuids sync.Map // of the client over each driver
)

func idOf(d *redislock.Driver) string {
	uuid, _ := uuids.LoadOrStore(d, newUUID())
	return uuid.(string) + ":" + strconv.FormatInt(ids.Add(1), 10)
}

func noWait(r *driver.Request) { r.Wait = false }

func lasting(d time.Duration) func(*driver.Request) { return func(r *driver.Request) { r.TTL = d } }

func permits(n, limit int) func(*driver.Request) {
	return func(r *driver.Request) { r.Permits, r.Limit = n, limit }
}

func (a *asker) try() error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	g, err := a.p.Try(ctx, 1)
	if err == nil {
		a.grant = g
		a.r.Hold.Token = g.Token
	}
	return err
}

func (a *asker) get() *asker {
	a.t.Helper()
	if err := a.try(); err != nil {
		a.t.Fatalf("%s of %q: %s", a.r.Kind, a.r.Name, say(err))
	}
	return a
}

func (a *asker) refused() *driver.HeldError {
	a.t.Helper()
	err := a.try()
	held, ok := err.(*driver.HeldError)
	if !ok {
		a.t.Fatalf("%s of %q should be held, got: %v", a.r.Kind, a.r.Name, err)
	}
	return held
}

// rung waits for Changed.
func (a *asker) rung() *asker {
	a.t.Helper()
	select {
	case <-a.bell:
	case <-time.After(10 * time.Second):
		a.t.Fatalf("%s of %q was not told Changed", a.r.Kind, a.r.Name)
	}
	return a
}

// getSoon does what a client does until it is granted.
func (a *asker) getSoon() *asker {
	a.t.Helper()
	end := time.Now().Add(20 * time.Second)
	for {
		err := a.try()
		if err == nil {
			return a
		}
		held, ok := err.(*driver.HeldError)
		if !ok || time.Now().After(end) {
			a.t.Fatalf("%s of %q: %s", a.r.Kind, a.r.Name, say(err))
		}
		nap := 2 * time.Second
		if held.Remaining > 0 {
			nap = min(nap, held.Remaining+time.Millisecond)
		}
		if held.Again > 0 {
			nap = min(nap, held.Again)
		}
		select {
		case <-a.bell:
		case <-time.After(nap):
		}
	}
}

func (a *asker) release() {
	a.t.Helper()
	if err := a.d.Release(context.Background(), a.r.Hold, driver.End{}); err != nil {
		a.t.Fatalf("Release of %q: %v", a.r.Name, err)
	}
}

func (a *asker) leave() {
	a.t.Helper()
	if err := a.p.Leave(context.Background()); err != nil {
		a.t.Fatalf("Leave of %q: %v", a.r.Name, err)
	}
}

func (a *asker) renew() error {
	return a.d.Renew(context.Background(), []driver.Hold{a.r.Hold})[0]
}

func say(err error) string {
	if h, ok := err.(*driver.HeldError); ok {
		return fmt.Sprintf("held %+v", *h)
	}
	return fmt.Sprint(err)
}
