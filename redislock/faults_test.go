package redislock_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// eventually repeats f until it answers true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

func certain(err error) bool {
	for _, e := range []error{driver.ErrHeld, driver.ErrDone, driver.ErrMismatch, driver.ErrInvalid, driver.ErrNotDone, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func TestServerRestartsUnderAHolder(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run("durable "+strconv.FormatBool(durable), func(t *testing.T) {
			t.Parallel()
			var args []string
			if durable {
				args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			s := redistest.Start(t, args...)
			d := open(t, s.URL, nil)
			a := ask(t, d, driver.Exclusive, "orders").get()
			w := ask(t, d, driver.Exclusive, "orders")
			w.refused()
			s.Kill()
			if err := a.renew(); err == nil || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew on a dead server should be an error that says try again: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if _, err := ask(t, d, driver.Exclusive, "other", noWait).p.Try(ctx, 1); !errors.Is(err, driver.ErrNotDone) {
				t.Errorf("Try on a dead server that cannot have got it: %v", err)
			}
			cancel()
			drain(w)
			s.Restart()
			var err error
			eventually(t, "an answer", func() bool {
				err = a.renew()
				return err == nil || errors.Is(err, driver.ErrNotHeld)
			})
			if durable != (err == nil) {
				t.Errorf("after the restart Renew says %v", err)
			}
			w.rung() // the subscription was made again
			if durable {
				w.refused()
				drain(w)
				a.release()
				w.rung()
			}
			if w.getSoon(); w.grant.Token <= a.grant.Token {
				t.Errorf("token %d follows %d", w.grant.Token, a.grant.Token)
			}
			w.release()
		})
	}
}

func TestClientPause(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	a := ask(t, d, driver.Exclusive, "orders").get()
	for round := range 3 {
		do(t, raw, "CLIENT", "PAUSE", "300", "ALL")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		b := ask(t, d, driver.Exclusive, "other"+strconv.Itoa(round), noWait)
		begin := time.Now()
		_, err := b.p.Try(ctx, 1)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("Try took %v", took)
		}
		cancel()
		if err == nil {
			t.Error("Try was granted by a server that is paused")
		}
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := d.Renew(ctx, []driver.Hold{a.r.Hold})[0]; errors.Is(err, driver.ErrNotHeld) {
			t.Error("Renew during a pause says that the hold is lost")
		}
		cancel()
		eventually(t, "Leave", func() bool { return b.p.Leave(t.Context()) == nil })
		ask(t, d, driver.Exclusive, b.r.Name).get().release()
	}
	if err := a.renew(); err != nil {
		t.Errorf("Renew after the pauses: %v", err)
	}
	a.release()
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			kinds := []driver.Kind{driver.Exclusive, driver.Fair, driver.Read, driver.Write, driver.Permits, driver.Leader}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				kind := kinds[n%len(kinds)]
				a := ask(t, d, kind, kind.Family().String()+strconv.Itoa(i))
				if err := a.try(); err != nil {
					t.Errorf("Try: %s", say(err))
					return
				}
				if err := a.renew(); err != nil {
					t.Errorf("Renew: %v", err)
				}
				if err := d.Release(t.Context(), a.r.Hold, driver.End{}); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	for range 50 {
		do(t, raw, "SCRIPT", "FLUSH")
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
}

func TestKeyDeletedByAStranger(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	a := ask(t, d, driver.Exclusive, "orders").get()
	w := ask(t, d, driver.Exclusive, "orders")
	w.refused()
	do(t, raw, "DEL", "orders")
	if err := a.renew(); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Release(t.Context(), a.r.Hold, driver.End{}); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release: %v", err)
	}
	w.get()
	// Replaced by something else, it is nobody's lock and says so.
	for _, plant := range [][]string{{"SET", "k", "hello"}, {"RPUSH", "k", "x"}, {"HSET", "k", "field", "value"}, {"SADD", "k", "x"}, {"ZADD", "k", "1", "x"}} {
		do(t, raw, "DEL", "k")
		do(t, raw, plant...)
		for _, kind := range everyKind {
			err := ask(t, d, kind, "k").try()
			if !errors.Is(err, driver.ErrMismatch) {
				t.Errorf("%s over a key made by %q: %v", kind, plant, err)
			} else if !strings.Contains(err.Error(), `"k"`) {
				t.Errorf("%s over a key made by %q: the error does not name the key: %v", kind, plant, err)
			}
			h := driver.Hold{Kind: kind, Name: "k", ID: idOf(d), Permits: 1, TTL: time.Second}
			if err := d.Renew(t.Context(), []driver.Hold{h})[0]; !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew of %s over a key made by %q: %v", kind, plant, err)
			}
			if err := d.Release(t.Context(), h, driver.End{}); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of %s over a key made by %q: %v", kind, plant, err)
			}
		}
	}
	// A lock without TTL never gets free by itself, and says that.
	do(t, raw, "DEL", "k")
	do(t, raw, "HSET", "k", "11111111-2222-4333-8444-555555555555:1", "1")
	if held := ask(t, d, driver.Exclusive, "k", noWait).refused(); held.Remaining >= 0 {
		t.Errorf("a lock without TTL is said to remain for %v", held.Remaining)
	}
	r, err := d.Inspect(t.Context(), "k")
	if err != nil || len(r.Holds) != 1 || r.Holds[0].Remaining >= 0 {
		t.Errorf("Inspect of a lock without TTL: %+v, %v", r, err)
	}
}

func TestBusyScript(t *testing.T) {
	t.Parallel()
	s, raw := start(t, "--lua-time-limit", "50")
	d := open(t, s.URL, nil)
	a := ask(t, d, driver.Exclusive, "orders").get()
	go raw.Do(context.Background(), raw.B().Eval().Script("while true do end").Numkeys(0).Build())
	killer := connect(t, s)
	eventually(t, "BUSY", func() bool {
		return strings.HasPrefix(errText(killer.Do(t.Context(), killer.B().Get().Key("x").Build()).Error()), "BUSY")
	})
	if err := ask(t, d, driver.Exclusive, "other", noWait).try(); !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("Try on a busy server: %v", err)
	}
	if err := a.renew(); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew on a busy server: %v", err)
	}
	if err := d.Release(t.Context(), a.r.Hold, driver.End{}); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release on a busy server: %v", err)
	}
	do(t, killer, "SCRIPT", "KILL")
	eventually(t, "a renewal", func() bool { return a.renew() == nil })
	a.release()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	holds := []*asker{ask(t, d, driver.Exclusive, "e").get(), ask(t, d, driver.Fair, "f").get(), ask(t, d, driver.Write, "w").get(), ask(t, d, driver.Read, "r").get()}
	do(t, raw, "CONFIG", "SET", "maxmemory", "1")
	for _, kind := range everyKind {
		if err := ask(t, d, kind, "x", noWait).try(); !errors.Is(err, driver.ErrNotDone) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("Try of %s on a full server: %v", kind, err)
		}
	}
	for _, a := range holds {
		if err := a.renew(); err != nil {
			t.Errorf("Renew of %s on a full server: %v", a.r.Kind, err)
		}
		if err := d.Release(t.Context(), a.r.Hold, driver.End{}); err != nil {
			t.Errorf("Release of %s on a full server: %v", a.r.Kind, err)
		}
	}
}

// The answer is lost: nobody knows what came of the request, and Leave undoes it.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	x := newProxy(t, s.Addr)
	d := open(t, "redis://"+x.addr, nil)
	direct := open(t, s.URL, nil)
	for _, kind := range everyKind {
		ask(t, d, kind, "warm").get().release()
		x.lose()
		a := ask(t, d, kind, "lost "+kind.String())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		done := make(chan error)
		go func() {
			_, err := a.p.Try(ctx, 1)
			done <- err
		}()
		eventually(t, "the request arrives", func() bool {
			r, err := direct.Inspect(t.Context(), a.r.Name)
			return err == nil && len(r.Holds) == 1
		})
		cancel()
		err := <-done
		if err == nil || certain(err) {
			t.Errorf("Try of %s whose answer was lost: %v", kind, err)
		}
		x.cut()
		x.release()
		eventually(t, "Leave", func() bool { return a.p.Leave(t.Context()) == nil })
		if r, err := direct.Inspect(t.Context(), a.r.Name); err != nil || len(r.Holds) != 0 {
			t.Errorf("%s: left behind: %+v, %v", kind, r, err)
		}
		ask(t, direct, kind, a.r.Name, noWait).get().release()
	}
	noneImmortal(t, raw)
}

// A server falls silent under many requests whose contexts never end: each ends by itself, after its TTL or at Close.
func TestSilenceEndsWithoutAContext(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	x := newProxy(t, s.Addr)
	d := open(t, "redis://"+x.addr, nil)
	ask(t, d, driver.Exclusive, "warm").get().release()
	for _, c := range []struct {
		what string
		ttl  time.Duration
		end  func()
	}{
		{"a short TTL", 50 * time.Millisecond, func() {}},
		{"a TTL", 600 * time.Millisecond, func() {}},
		{"Close", time.Minute, func() {
			time.Sleep(100 * time.Millisecond)
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}},
	} {
		x.keep()
		const n = 40 // more than two pipelines take at first
		errs := make(chan error, n)
		for i := range n {
			a := ask(t, d, driver.Exclusive, c.what+" "+strconv.Itoa(i), lasting(c.ttl))
			go func() {
				_, err := a.p.Try(context.Background(), 1)
				errs <- err
			}()
		}
		c.end()
		for range n {
			select {
			case err := <-errs:
				if err == nil {
					t.Errorf("%s: a grant of a silent server", c.what)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: a request goes on", c.what)
			}
		}
		x.cut()
		x.release()
	}
}

// The request itself is late: it arrives after Leave, and must do nothing.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	x := newProxy(t, s.Addr)
	direct := open(t, s.URL, nil)
	for _, kind := range everyKind {
		d := open(t, "redis://"+x.addr, nil)
		ask(t, d, kind, "warm").get().release()
		x.keep()
		a := ask(t, d, kind, "late "+kind.String(), lasting(20*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := a.p.Try(ctx, 1)
		cancel()
		if err == nil || certain(err) {
			t.Errorf("Try of %s that is under way: %v", kind, err)
		}
		// Leave takes another way, as it does when a connection is silent and a new one is not.
		other := ask(t, direct, kind, a.r.Name)
		h := a.r.Hold
		h.Token = 0
		if err := direct.Release(t.Context(), h, driver.End{}); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the undo of %s: %v", kind, err)
		}
		calls := scriptCalls(t, raw)
		x.release()
		eventually(t, "the late request arrives", func() bool { return scriptCalls(t, raw) > calls })
		if r, err := direct.Inspect(t.Context(), a.r.Name); err != nil || len(r.Holds) != 0 || r.Waiters != 0 {
			t.Errorf("%s: a request that was undone got in: %+v, %v", kind, r, err)
		}
		other.get().release()
		d.Close()
	}
	noneImmortal(t, raw)
}

func scriptCalls(t testing.TB, c rueidis.Client) int64 {
	t.Helper()
	n := int64(0)
	for _, line := range strings.Split(text(t, c, "INFO", "commandstats"), "\r\n") {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, _ = strconv.ParseInt(calls, 10, 64)
		}
	}
	return n
}

// Only the subscription is lost. Who waits is told to look, and the next release is heard.
func TestSubscriptionLost(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d1, d2 := open(t, s.URL, nil), open(t, s.URL, nil)
	java := newPeer(t, raw)
	for _, foreign := range []bool{false, true} {
		name := "orders" + strconv.FormatBool(foreign)
		var a *asker
		if foreign {
			java.mustLock(name)
		} else {
			a = ask(t, d1, driver.Exclusive, name).get()
		}
		w := ask(t, d2, driver.Exclusive, name)
		w.refused()
		drain(w)
		do(t, raw, "CLIENT", "KILL", "TYPE", "pubsub")
		w.rung().refused()
		drain(w)
		if foreign {
			java.unlock(name)
		} else {
			a.release()
		}
		w.rung().get().release()
	}
}

// A server user who may not subscribe, or publish to nobody: the driver looks now and then.
func TestUserWithoutPubSub(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	do(t, raw, "ACL", "SETUSER", "worker", "on", ">sesame", "~*", "+@all", "-subscribe", "-psubscribe", "-ssubscribe", "allchannels")
	d := open(t, "redis://worker:sesame@"+s.Addr, nil)
	for _, kind := range []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Permits, driver.Leader} {
		a := ask(t, d, kind, kind.String()).get()
		w := ask(t, d, kind, kind.String())
		if held := w.refused(); held.Again <= 0 || held.Again > time.Second {
			t.Errorf("%s: a deaf place should look again after %v", kind, held.Again)
		}
		a.release()
		w.getSoon().release()
	}
}

func TestDeadHeadCostsMilliseconds(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	for _, kind := range []driver.Kind{driver.Exclusive, driver.Write, driver.Leader, driver.Once, driver.Permits} {
		d, dead := open(t, s.URL, nil), open(t, s.URL, nil)
		name := kind.String()
		a := ask(t, d, kind, name).get()
		ask(t, dead, kind, name).refused()
		live := ask(t, d, kind, name)
		live.refused()
		dead.Close()
		// One that listens and does not come.
		a.release()
		begin := time.Now()
		live.rung().getSoon()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: a dead head cost %v", kind, took)
		}
		live.release()

		// The same with a process that lives and does not come.
		a = ask(t, d, kind, name).get()
		idle := open(t, s.URL, nil)
		ask(t, idle, kind, name).refused()
		live = ask(t, d, kind, name)
		live.refused()
		a.release()
		begin = time.Now()
		live.getSoon().release()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: an idle head cost %v", kind, took)
		}
	}
}

func TestTokensRiseOverFlush(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	for _, kind := range []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Leader, driver.Once} {
		last := int64(0)
		for range 5 {
			a := ask(t, d, kind, kind.String()).get()
			if a.grant.Token <= last {
				t.Errorf("%s: token %d follows %d", kind, a.grant.Token, last)
			}
			last = a.grant.Token
			do(t, raw, "FLUSHALL")
		}
	}
}

// Tokens beyond 2^53 are exact.
func TestLargeTokens(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	for _, top := range []int64{1<<53 - 1, 1 << 53, 1<<53 + 1, 999_999_999_999_999, 9_999_999_999_999_999, 1<<62 + 12345, 1<<63 - 200} {
		for _, kind := range []driver.Kind{driver.Exclusive, driver.Fair, driver.Write} {
			name := kind.String() + strconv.FormatInt(top, 10)
			a := ask(t, d, kind, name).get()
			if err := d.Raise(t.Context(), a.r.Hold, top); err != nil {
				t.Fatal(err)
			}
			if err := d.Raise(t.Context(), a.r.Hold, 5); err != nil {
				t.Fatal(err)
			}
			if err := a.renew(); err != nil {
				t.Fatal(err)
			}
			a.release()
			want := max(top+1, a.grant.Token+1)
			b := ask(t, d, kind, name)
			g, err := b.p.Try(t.Context(), 100)
			if err != nil {
				t.Fatal(say(err))
			}
			if top > a.grant.Token && (g.Token != want || g.Span != 100) {
				t.Errorf("token %d for %d follows %d", g.Token, g.Span, top)
			}
			b.r.Hold.Token = g.Token
			if err := d.Release(t.Context(), b.r.Hold, driver.End{Last: g.Token + 2}); err != nil {
				t.Fatal(err)
			}
			c := ask(t, d, kind, name).get()
			if top > a.grant.Token && c.grant.Token != g.Token+3 {
				t.Errorf("token %d follows %d, the last one used", c.grant.Token, g.Token+2)
			}
			c.release()
		}
	}
	a := ask(t, d, driver.Exclusive, "end").get()
	if err := d.Raise(t.Context(), a.r.Hold, 1<<63-1); err != nil {
		t.Fatal(err)
	}
	a.release()
	if err := ask(t, d, driver.Exclusive, "end").try(); err == nil {
		t.Error("a token above the largest")
	}
	noneImmortal(t, raw)
}

// The clock of the server may step back: the stored number keeps the tokens rising.
func TestTokensRiseOverAStepBack(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	ahead := time.Now().Add(time.Hour).UnixMicro() // as if the clock had been an hour ahead a moment ago
	do(t, raw, "SET", "pawl_token:{orders}", strconv.FormatInt(ahead, 10), "EX", "100000")
	for i := range int64(3) {
		a := ask(t, d, driver.Exclusive, "orders").get()
		if a.grant.Token != ahead+1+i {
			t.Errorf("token %d follows %d", a.grant.Token, ahead+i)
		}
		a.release()
	}
	if ttl := number(t, raw, "PTTL", "pawl_token:{orders}"); ttl < 86_400_000+3_500_000 {
		t.Errorf("the number is kept for %d ms, the clock needs an hour to pass it, and a day more is due", ttl)
	}
}

// Where nothing is kept for the name, the clock key does the same for all names at once.
func TestStampsRiseOverAStepBack(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d, bare := open(t, s.URL, nil), open(t, s.URL, &redislock.Options{NoScripts: true})
	ahead := time.Now().Add(time.Hour).UnixMicro()
	do(t, raw, "SET", "pawl_clock:", strconv.FormatInt(ahead, 10), "EX", "100000")
	last := map[string]int64{}
	rises := func(a *asker, span int) {
		t.Helper()
		if last := max(last[a.r.Name], ahead); a.grant.Token <= last || a.grant.Token > last+100 {
			t.Errorf("%s of %q: token %d follows %d", a.r.Kind, a.r.Name, a.grant.Token, last)
		}
		last[a.r.Name] = a.grant.Token + int64(span) - 1
		if err := a.d.Release(t.Context(), a.r.Hold, driver.End{Last: last[a.r.Name]}); err != nil {
			t.Error(err)
		}
	}
	kinds := []driver.Kind{driver.Exclusive, driver.Fair, driver.Exclusive, driver.Write, driver.Read, driver.Write, driver.Leader, driver.Permits}
	for range 3 {
		for _, kind := range kinds {
			rises(ask(t, d, kind, kind.Family().String()).get(), 1)
		}
		wide := ask(t, d, driver.Exclusive, "exclusive")
		g, err := wide.p.Try(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		wide.grant, wide.r.Token = g, g.Token
		rises(wide, 5)
		rises(ask(t, bare, driver.Exclusive, "exclusive").get(), 1)
	}
	if ttl := number(t, raw, "PTTL", "pawl_clock:"); ttl < 86_400_000+3_500_000 {
		t.Errorf("the number is kept for %d ms, the clock needs an hour to pass it, and a day more is due", ttl)
	}
}

// A name that was locked and unlocked leaves nothing behind.
func TestNothingIsKeptForAName(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	for i := range 10 {
		a := ask(t, d, driver.Exclusive, "a"+strconv.Itoa(i)).get()
		b := ask(t, d, driver.Fair, "b"+strconv.Itoa(i)).get()
		a.release()
		b.release()
	}
	c, e := ask(t, d, driver.Exclusive, "c"), ask(t, d, driver.Exclusive, "e")
	gs, err := d.TryAll(t.Context(), []driver.Place{c.p, e.p})
	if err != nil {
		t.Fatal(err)
	}
	c.r.Token, e.r.Token = gs[0].Token, gs[1].Token
	c.release()
	e.release()
	for _, key := range list(t, raw, "KEYS", "*") {
		if key != "pawl_clock:" && !strings.HasPrefix(key, "pawl_who:") {
			t.Errorf("%q is left", key)
		}
	}
}

// Whatever somebody writes into the clock key, names go on.
func TestClockKeyOfOthers(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, nil)
	for _, plant := range [][]string{{"SET", "x"}, {"SET", ""}, {"SET", "9223372036854775807"}, {"SET", "123"}, {"RPUSH", "x"}, {"HSET", "f", "v"}} {
		do(t, raw, "DEL", "pawl_clock:")
		do(t, raw, append([]string{plant[0], "pawl_clock:"}, plant[1:]...)...)
		var last int64
		for range 3 {
			a := ask(t, d, driver.Exclusive, "orders").get()
			if a.grant.Token <= last || a.grant.Token > time.Now().Add(time.Minute).UnixMicro() {
				t.Errorf("%q: token %d follows %d", plant, a.grant.Token, last)
			}
			last = a.grant.Token
			a.release()
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s, raw := start(t)
	do(t, raw, "PING") // the bare client starts its goroutines
	goroutines := settled()
	for range 5 {
		d, err := redislock.Open(t.Context(), s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := ask(t, d, driver.Exclusive, "orders", lasting(time.Second)).get()
		ask(t, d, driver.Exclusive, "orders").refused()
		ask(t, d, driver.Fair, "fair").get().release()
		if _, err := d.Watch(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		d.Close()
		d.Close()
		if err := a.renew(); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Renew after Close: %v", err)
		}
		if _, err := d.Enter(t.Context(), a.r); !errors.Is(err, driver.ErrClosed) || !errors.Is(err, driver.ErrNotDone) {
			t.Errorf("Enter after Close: %v", err)
		}
		if number(t, raw, "EXISTS", "orders") != 1 {
			t.Error("Close released a hold")
		}
		do(t, raw, "FLUSHALL")
	}
	eventually(t, "no goroutine is left", func() bool { return settled() <= goroutines })
	eventually(t, "no connection is left", func() bool {
		return strings.TrimSpace(text(t, raw, "CLIENT", "LIST", "TYPE", "pubsub")) == ""
	})
}

func settled() int {
	time.Sleep(20 * time.Millisecond)
	return runtime.NumGoroutine()
}

// Connections die all the time: no two holders at once, tokens rise, and everybody gets on.
func TestConnectionsKilled(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	kinds := []driver.Kind{driver.Exclusive, driver.Fair, driver.Write, driver.Permits, driver.Leader}
	ds := make([]*redislock.Driver, 3*len(kinds))
	for i := range ds {
		d := redislock.New(connect(t, s), nil)
		t.Cleanup(func() { d.Close() })
		ds[i] = d
	}
	stop := make(chan struct{})
	var killer, wg sync.WaitGroup
	killer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			// SKIPME is the default, so the killer's own connection lives.
			raw.Do(context.Background(), raw.B().Arbitrary("CLIENT", "KILL", "TYPE", []string{"normal", "pubsub"}[i%2]).Build())
		}
	})
	for i, kind := range kinds {
		var mu sync.Mutex
		var last int64
		for _, d := range ds[3*i : 3*i+3] {
			for range 2 {
				wg.Go(func() {
					for done := 0; done < 15; {
						a := ask(t, d, kind, "hot "+kind.String())
						if !getThrough(a) {
							continue
						}
						if !mu.TryLock() {
							t.Errorf("%s: two holders at once", kind)
							return
						}
						if a.grant.Token <= last {
							t.Errorf("%s: token %d follows %d", kind, a.grant.Token, last)
						}
						last = a.grant.Token
						mu.Unlock()
						eventually(t, "Release", func() bool {
							err := d.Release(context.Background(), a.r.Hold, driver.End{})
							return err == nil || errors.Is(err, driver.ErrNotHeld)
						})
						done++
					}
				})
			}
		}
	}
	wg.Wait()
	close(stop)
	killer.Wait()
}

// getThrough does what a client does with a failing store: it gives up a place of which it does not know what became.
func getThrough(a *asker) bool {
	for {
		err := a.try()
		if err == nil {
			return true
		}
		var held *driver.HeldError
		switch {
		case errors.As(err, &held):
			nap := 2 * time.Second
			if held.Remaining > 0 {
				nap = min(nap, held.Remaining)
			}
			if held.Again > 0 {
				nap = min(nap, held.Again)
			}
			select {
			case <-a.bell:
			case <-time.After(nap):
			}
		case errors.Is(err, driver.ErrNotDone):
			time.Sleep(5 * time.Millisecond)
		default:
			eventually(a.t, "Leave", func() bool { return a.p.Leave(context.Background()) == nil })
			return false
		}
	}
}
