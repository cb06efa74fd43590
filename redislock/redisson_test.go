package redislock_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// hash reads a hash.
func hash(t testing.TB, c rueidis.Client, key string) map[string]string {
	t.Helper()
	m := do(t, c, "HGETALL", key)
	out, err := m.AsStrMap()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func text(t testing.TB, c rueidis.Client, args ...string) string {
	t.Helper()
	m := do(t, c, args...)
	if m.IsNil() {
		return ""
	}
	if m.IsInt64() {
		n, _ := m.ToInt64()
		return strconv.FormatInt(n, 10)
	}
	s, err := m.ToString()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(s, "txt:") // how RESP3 marks what INFO and CLIENT LIST say
}

func number(t testing.TB, c rueidis.Client, args ...string) int64 {
	t.Helper()
	m := do(t, c, args...)
	n, err := m.AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func list(t testing.TB, c rueidis.Client, args ...string) []string {
	t.Helper()
	m := do(t, c, args...)
	out, err := m.AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// foreignKeys are the keys that are not pawl's own.
func foreignKeys(t testing.TB, c rueidis.Client) []string {
	t.Helper()
	keys := list(t, c, "KEYS", "*")
	keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "pawl_") })
	slices.Sort(keys)
	return keys
}

// noneImmortal wants a TTL on every key of pawl's own.
func noneImmortal(t testing.TB, c rueidis.Client) {
	t.Helper()
	for _, k := range list(t, c, "KEYS", "pawl_*") {
		if ttl := number(t, c, "PTTL", k); ttl == -1 {
			t.Errorf("%s would stay for ever", k)
		}
	}
}

func start(t testing.TB, args ...string) (*redistest.Server, rueidis.Client) {
	t.Helper()
	s := redistest.Start(t, args...)
	return s, connect(t, s)
}

func TestLockOnTheWire(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	news := java.listen("redisson_lock__channel:{orders}")

	a := ask(t, d, driver.Exclusive, "orders").get()
	if got, want := hash(t, raw, "orders"), map[string]string{a.r.ID: strconv.FormatInt(a.grant.Token, 10)}; !maps.Equal(got, want) {
		t.Errorf("the lock is %v, Redisson has %v", got, want)
	}
	if ttl := number(t, raw, "PTTL", "orders"); ttl <= 29_000 || ttl > 30_000 {
		t.Errorf("the lock lives for %d ms, asked for were 30 s", ttl)
	}
	if keys := foreignKeys(t, raw); !slices.Equal(keys, []string{"orders"}) {
		t.Errorf("keys %q, a lock has one", keys)
	}
	java.mustNotLock("orders")
	if java.unlock("orders") {
		t.Error("a stranger could release the lock")
	}
	hearsNothing(t, news)
	a.release()
	hears(t, news, "0")
	if keys := foreignKeys(t, raw); len(keys) > 0 {
		t.Errorf("keys %q are left", keys)
	}

	// A field that somebody added goes with the lock.
	a = ask(t, d, driver.Exclusive, "orders").get()
	do(t, raw, "HSET", "orders", "extra", "1")
	a.release()
	hears(t, news, "0")
	if keys := foreignKeys(t, raw); len(keys) > 0 {
		t.Errorf("keys %q are left", keys)
	}

	java.mustLock("orders")
	java.mustLock("orders") // twice
	b := ask(t, d, driver.Exclusive, "orders")
	held := b.refused()
	if held.By.ID != java.owner() || held.Remaining < 29*time.Second || held.Remaining > 30*time.Second {
		t.Errorf("the holder is %q for %v", held.By.ID, held.Remaining)
	}
	if (held.By.Who != driver.Holder{}) {
		t.Errorf("the holder is described as %+v", held.By.Who)
	}
	java.unlock("orders")
	b.refused()
	java.unlock("orders")
	b.rung().get()
	b.release()
	noneImmortal(t, raw)
}

func TestStealFromJava(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	java.mustLock("orders")
	java.mustLock("orders")
	r, err := d.Inspect(t.Context(), "orders")
	if err != nil || len(r.Holds) != 1 || r.Holds[0].ID != java.owner() || r.Holds[0].Token != 0 || r.Holds[0].Kind != driver.Exclusive {
		t.Fatalf("Inspect: %+v, %v", r, err)
	}
	if err := d.Release(t.Context(), r.Holds[0].Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	if java.unlock("orders") {
		t.Error("the peer still has the lock that was stolen")
	}
	ask(t, d, driver.Exclusive, "orders").get().release()
}

// A Java client waits beside pawl's line: it is not in it, and must get its turn.
func TestForeignWaiterGetsATurn(t *testing.T) {
	s, raw := start(t)
	d1, d2 := open(t, s.URL, nil), open(t, s.URL, nil)
	java := newPeer(t, raw)
	news := java.listen("redisson_lock__channel:{orders}")
	got := make(chan struct{})
	holder := ask(t, d1, driver.Exclusive, "orders").get()
	java.mustNotLock("orders")
	go func() {
		defer close(got)
		for range news {
			if _, ok := java.lock("orders", 30*time.Second); ok {
				return
			}
		}
	}()
	ds := []*redislock.Driver{d2, d1}
	for i := 0; ; i++ {
		next := ask(t, ds[i%2], driver.Exclusive, "orders")
		next.refused()
		holder.release()
		end := time.Now().Add(10 * time.Second)
		for next.try() != nil {
			select {
			case <-got:
				if i > 200 {
					t.Errorf("the Java client got its turn after %d releases", i)
				}
				// And pawl's waiter is told when it is done.
				next.refused()
				java.unlock("orders")
				next.rung().getSoon().release()
				return
			case <-next.bell:
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(end) {
				t.Fatal("nobody gets the lock")
			}
		}
		holder = next
		if i == 1000 {
			t.Fatal("the Java client starves")
		}
	}
}

func TestFairOnTheWire(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	second := java.other(8)
	queue := func() []string { return list(t, raw, "LRANGE", "redisson_lock_queue:{orders}", "0", "-1") }
	wait := 300 * time.Second

	a := ask(t, d, driver.Fair, "orders").get()
	if got, want := hash(t, raw, "orders"), map[string]string{a.r.ID: strconv.FormatInt(a.grant.Token, 10)}; !maps.Equal(got, want) {
		t.Errorf("the lock is %v, Redisson has %v", got, want)
	}
	news := java.listen("redisson_lock__channel:{orders}:" + java.owner())
	if left, ok := java.fairLock("orders", wait, 30*time.Second); ok || left <= 0 {
		t.Fatalf("the peer got %v, %v", left, ok)
	}
	b := ask(t, d, driver.Fair, "orders")
	held := b.refused()
	if held.Ahead != 1 {
		t.Errorf("%d are ahead, right is 1", held.Ahead)
	}
	if held.Again <= 0 || held.Again > 10*time.Second {
		t.Errorf("a place in the queue should be renewed after %v", held.Again)
	}
	if left, ok := second.fairLock("orders", wait, 30*time.Second); ok || left <= 0 {
		t.Fatalf("the peer's second thread got %v, %v", left, ok)
	}
	if got, want := queue(), []string{java.owner(), b.r.ID, second.owner()}; !slices.Equal(got, want) {
		t.Fatalf("the queue is %q, right is %q", got, want)
	}
	if n := number(t, raw, "ZCARD", "redisson_lock_timeout:{orders}"); n != 3 {
		t.Errorf("%d have a deadline, right is 3", n)
	}
	hearsNothing(t, news)

	// pawl releases: the Java head is called, and nobody else gets in.
	a.release()
	hears(t, news, "0")
	b.refused()
	if _, ok := java.fairLock("orders", wait, 30*time.Second); !ok {
		t.Fatal("the head of the queue does not get the lock")
	}
	// The Java client has subtracted its waiting time from all behind it; pawl's place lives all the same.
	now := time.Now().UnixMilli()
	if score := number(t, raw, "ZSCORE", "redisson_lock_timeout:{orders}", b.r.ID); score < now+5_000 {
		t.Errorf("pawl's place has %d ms left", score-now)
	}
	b.refused()
	if score := number(t, raw, "ZSCORE", "redisson_lock_timeout:{orders}", b.r.ID); score > now+20_000 {
		t.Errorf("pawl's place at the head would live for %d ms without it", score-now)
	}
	// Java releases: pawl's head is called on its own channel.
	drain(b)
	java.fairUnlock("orders")
	b.rung().get()
	if got := queue(); !slices.Equal(got, []string{second.owner()}) {
		t.Errorf("the queue is %q", got)
	}
	// A place that leaves is in neither list.
	c := ask(t, d, driver.Fair, "orders")
	c.refused()
	c.leave()
	if got := queue(); !slices.Equal(got, []string{second.owner()}) {
		t.Errorf("the queue is %q after one has left", got)
	}
	if n := number(t, raw, "ZCARD", "redisson_lock_timeout:{orders}"); n != 1 {
		t.Errorf("%d have a deadline, right is 1", n)
	}
	news = java.listen("redisson_lock__channel:{orders}:" + second.owner())
	b.release()
	hears(t, news, "0")
	if _, ok := second.fairLock("orders", wait, 30*time.Second); !ok {
		t.Fatal("the last in the queue does not get the lock")
	}
	second.fairUnlock("orders")
	noneImmortal(t, raw)
	if keys := foreignKeys(t, raw); len(keys) > 0 {
		t.Errorf("keys %q are left", keys)
	}
}

func drain(a *asker) {
	select {
	case <-a.bell:
	default:
	}
}

// A dead waiter of either make holds up the queue for moments only.
func TestFairDeadHead(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	a := ask(t, d, driver.Fair, "orders").get()
	java.fairLock("orders", 300*time.Second, 30*time.Second) // and it never listens
	dead := open(t, s.URL, nil)
	ask(t, dead, driver.Fair, "orders").refused()
	dead.Close()
	b := ask(t, d, driver.Fair, "orders")
	b.refused()
	a.release()
	begin := time.Now()
	b.getSoon().release()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("two dead heads took %v", took)
	}
}

func TestReadWriteOnTheWire(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	news := java.listen("redisson_rwlock:{orders}")
	holdKey := func(owner string, i int) string { return fmt.Sprintf("{orders}:%s:rwlock_timeout:%d", owner, i) }

	r := ask(t, d, driver.Read, "orders").get()
	if _, ok := java.readLock("orders", 60*time.Second); !ok {
		t.Fatal("readers should share")
	}
	java.readLock("orders", 60*time.Second)
	if got, want := hash(t, raw, "orders"), map[string]string{"mode": "read", r.r.ID: "1", java.owner(): "2"}; !maps.Equal(got, want) {
		t.Errorf("the lock is %v, Redisson has %v", got, want)
	}
	want := []string{"orders", holdKey(r.r.ID, 1), holdKey(java.owner(), 1), holdKey(java.owner(), 2)}
	slices.Sort(want)
	if got := foreignKeys(t, raw); !slices.Equal(got, want) {
		t.Errorf("keys %q, Redisson has %q", got, want)
	}
	if got := text(t, raw, "GET", holdKey(r.r.ID, 1)); got != "1" {
		t.Errorf("the hold's key is %q, Redisson has 1", got)
	}
	if ttl := number(t, raw, "PTTL", holdKey(r.r.ID, 1)); ttl < 29_000 || ttl > 30_000 {
		t.Errorf("the hold lives for %d ms", ttl)
	}
	if ttl := number(t, raw, "PTTL", "orders"); ttl < 59_000 {
		t.Errorf("the lock lives for %d ms, the longest hold for 60 s", ttl)
	}
	if _, ok := java.other(9).writeLock("orders", 30*time.Second); ok {
		t.Fatal("a writer got in beside readers")
	}
	w := ask(t, d, driver.Write, "orders")
	w.refused()
	r.release()
	java.readUnlock("orders")
	hearsNothing(t, news)
	w.refused()
	drain(w)
	java.readUnlock("orders")
	hears(t, news, "0")
	w.rung().getSoon()

	if got, want := hash(t, raw, "orders"), map[string]string{"mode": "write", w.r.ID + ":write": "1"}; !maps.Equal(got, want) {
		t.Errorf("the lock is %v, Redisson has %v", got, want)
	}
	if _, ok := java.readLock("orders", 30*time.Second); ok {
		t.Fatal("a reader got in beside a writer")
	}
	w.release()
	hears(t, news, "1")
	if keys := foreignKeys(t, raw); len(keys) > 0 {
		t.Errorf("keys %q are left", keys)
	}

	if _, ok := java.writeLock("orders", 30*time.Second); !ok {
		t.Fatal("the lock should be free")
	}
	r = ask(t, d, driver.Read, "orders")
	if held := r.refused(); held.By.ID != java.owner() || held.By.Kind != driver.Write {
		t.Errorf("the holder is %+v", held.By)
	}
	drain(r)
	java.writeUnlock("orders")
	hears(t, news, "1")
	r.rung().get()
	java.readLock("orders", 30*time.Second)
	r.release()
	hearsNothing(t, news)
	java.readUnlock("orders")
	hears(t, news, "0")

	// The last reader of pawl's wakes a Java writer.
	r = ask(t, d, driver.Read, "orders").get()
	java.writeLock("orders", 30*time.Second)
	r.release()
	hears(t, news, "0")
	if _, ok := java.writeLock("orders", 30*time.Second); !ok {
		t.Fatal("the lock should be free")
	}
	java.writeUnlock("orders")
	noneImmortal(t, raw)
}

// A Java reader that joins pawl's readers while a pawl writer waits must wake that writer.
func TestReaderOfAnotherMakeWakesTheWriter(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	r := ask(t, d, driver.Read, "orders").get()
	w := ask(t, d, driver.Write, "orders")
	w.refused()
	java.readLock("orders", 30*time.Second)
	drain(w)
	r.release()
	w.rung().refused()
	drain(w)
	java.readUnlock("orders")
	w.rung().get().release()
}

func TestPermitsOnTheWire(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	news := java.listen("redisson_sc:{pool}")
	const set = "{pool}:timeout"

	if !java.initPermits("pool", 3) {
		t.Fatal("the semaphore should not exist yet")
	}
	hears(t, news, "3")
	a := ask(t, d, driver.Permits, "pool", permits(2, 3)).get()
	if got := text(t, raw, "GET", "pool"); got != "1" {
		t.Errorf("%s permits are free, right is 1", got)
	}
	members := list(t, raw, "ZRANGE", set, "0", "-1")
	var want []string
	for i := 1; i <= 2; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", a.r.ID, i))
		want = append(want, string(sum[:16]))
	}
	slices.Sort(want)
	slices.Sort(members)
	if !slices.Equal(members, want) {
		t.Errorf("the permits are %q, right is %q: 16 raw bytes each", members, want)
	}
	if score := number(t, raw, "ZSCORE", set, want[0]); score < time.Now().Add(29*time.Second).UnixMilli() || score > time.Now().Add(31*time.Second).UnixMilli() {
		t.Errorf("the permit expires at %d", score)
	}
	id := java.takePermit("pool", 30*time.Second)
	if id == "" || java.takePermit("pool", 30*time.Second) != "" {
		t.Fatal("the peer should get exactly one permit")
	}
	b := ask(t, d, driver.Permits, "pool", permits(1, 3))
	b.refused()
	java.returnPermit("pool", id)
	hears(t, news, "1")
	b.rung().get()
	a.release()
	hears(t, news, "2")
	b.release()
	hears(t, news, "3")
	if ttl := number(t, raw, "PTTL", "pool"); ttl != -1 {
		t.Errorf("a semaphore that another client made got a TTL of %d ms", ttl)
	}
	err := ask(t, d, driver.Permits, "pool", permits(1, 4)).try()
	if m, ok := err.(*driver.MismatchError); !ok || m.HaveLimit != 3 || m.WantLimit != 4 {
		t.Errorf("another limit: %v", err)
	}

	// What Java took is shown, can be stolen, and comes back when it expires.
	id = java.takePermit("pool", 30*time.Second)
	in, err := d.Inspect(t.Context(), "pool")
	if err != nil || len(in.Holds) != 1 || in.Holds[0].ID != fmt.Sprintf("%x", id) || in.Limit != 3 {
		t.Fatalf("Inspect: %+v, %v", in, err)
	}
	if err := d.Release(t.Context(), in.Holds[0].Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	hears(t, news, "3")
	if java.returnPermit("pool", id) {
		t.Error("the peer still has the permit that was stolen")
	}
	java.takePermit("pool", 100*time.Millisecond)
	c := ask(t, d, driver.Permits, "pool", permits(3, 3))
	c.getSoon().release()
	noneImmortal(t, raw)
}

// A semaphore of pawl's own is there for Java too, for a day after its last use.
func TestPermitsMadeByPawl(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, nil)
	java := newPeer(t, raw)
	a := ask(t, d, driver.Permits, "pool", permits(2, 2)).get()
	if ttl := number(t, raw, "PTTL", "pool"); ttl < 86_400_000 || ttl > 86_500_000 {
		t.Errorf("the semaphore lives for %d ms, right is a day and the TTL", ttl)
	}
	if java.initPermits("pool", 5) {
		t.Error("the semaphore should exist")
	}
	if java.takePermit("pool", time.Second) != "" {
		t.Error("the peer got a third permit of two")
	}
	a.release()
	id := java.takePermit("pool", 30*time.Second)
	if id == "" {
		t.Fatal("the peer should get a permit")
	}
	ask(t, d, driver.Permits, "pool", permits(2, 2), noWait).refused()
	ask(t, d, driver.Permits, "pool", permits(1, 2)).get().release()
	if err := ask(t, d, driver.Exclusive, "pool").try(); err == nil || err.Error() != "name is in use as a semaphore, not a mutex" {
		t.Errorf("a mutex of that name: %v", err)
	}
	java.returnPermit("pool", id)
}

func TestFencedTokensAreShared(t *testing.T) {
	s, raw := start(t)
	d := open(t, s.URL, &redislock.Options{Fenced: true})
	java := newPeer(t, raw)
	fencedLock := func() int64 {
		n, refused := java.eval(`
			if redis.call('exists', KEYS[1]) == 1 then return -1 end
			local token = redis.call('incr', KEYS[2])
			redis.call('hincrby', KEYS[1], ARGV[1], 1)
			redis.call('pexpire', KEYS[1], 30000)
			return token`, []string{"orders", "redisson_lock_token:{orders}"}, []string{java.owner()})
		if !refused || n < 0 {
			t.Fatal("the lock should be free")
		}
		return n
	}
	last := int64(0)
	for range 3 {
		if n := fencedLock(); n != last+1 {
			t.Fatalf("token %d follows %d", n, last)
		}
		java.unlock("orders")
		for _, kind := range []driver.Kind{driver.Exclusive, driver.Fair} {
			a := ask(t, d, kind, "orders")
			g, err := a.p.Try(t.Context(), 10)
			if err != nil {
				t.Fatal(say(err))
			}
			if g.Span != 1 {
				t.Errorf("%d tokens were reserved, Redisson knows one", g.Span)
			}
			last++
			if g.Token != last+1 {
				t.Fatalf("token %d follows %d", g.Token, last)
			}
			a.r.Hold.Token = g.Token
			a.release()
		}
		last++
	}
	if ttl := number(t, raw, "PTTL", "redisson_lock_token:{orders}"); ttl != -1 {
		t.Errorf("Redisson's counter got a TTL of %d ms", ttl)
	}
	// Raised, it counts on from there.
	a := ask(t, d, driver.Exclusive, "orders").get()
	if err := d.Raise(t.Context(), a.r.Hold, 1000); err != nil {
		t.Fatal(err)
	}
	a.release()
	if n := fencedLock(); n != 1001 {
		t.Errorf("token %d follows 1000", n)
	}
}
