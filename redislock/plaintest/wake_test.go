package plaintest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// waiter is a place that was refused, and what it was told.
type waiter struct {
	t     testing.TB
	p     *redislock.Plain
	r     driver.Request
	place driver.Place
	told  chan driver.Signal
}

var ids struct {
	sync.Mutex
	n int
}

func request(name string) driver.Request {
	ids.Lock()
	defer ids.Unlock()
	ids.n++
	return driver.Request{Notify: func(driver.Signal) {}, Hold: driver.Hold{Kind: driver.Exclusive, Name: name, Permits: 1,
		ID: fmt.Sprintf("6a3b1f5e-0000-4000-8000-00000000abcd:%d", ids.n), TTL: time.Minute}}
}

func wait(t testing.TB, p *redislock.Plain, name string) *waiter {
	t.Helper()
	w := &waiter{t: t, p: p, r: request(name), told: make(chan driver.Signal, 100)}
	w.r.Wait = true
	w.r.Notify = func(s driver.Signal) {
		select {
		case w.told <- s:
		default:
		}
	}
	var err error
	if w.place, err = p.Enter(t.Context(), w.r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.place.Try(t.Context(), 1); err == nil {
		t.Fatalf("%s was free", name)
	}
	t.Cleanup(func() { w.leave() })
	return w
}

func (w *waiter) leave() { w.place.Leave(w.t.Context()) }

func (w *waiter) mustHear(why string) {
	w.t.Helper()
	select {
	case <-w.told:
	case <-time.After(time.Minute):
		w.t.Fatalf("the waiter was not told: %s", why)
	}
}

// mustGet lets the waiter try each time it is told, until it gets the name, and release it. As a client does, it tries again by
// itself when the store fails.
func (w *waiter) mustGet(why string) {
	w.t.Helper()
	w.mustHear(why)
	for end := time.Now().Add(time.Minute); ; {
		g, err := w.place.Try(w.t.Context(), 1)
		switch {
		case err == nil:
			w.r.Hold.Token = g.Token
			if err := w.p.Release(w.t.Context(), w.r.Hold, driver.End{}); err != nil {
				w.t.Errorf("Release: %v", err)
			}
			return
		case errors.Is(err, driver.ErrHeld):
			w.mustHear(why)
		case time.Now().After(end):
			w.t.Fatalf("%s, and the waiter does not get in: %v", why, err)
		default:
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// tracked waits until each server has a connection that it tells of changes.
func tracked(t testing.TB, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		eventually(t, "a connection that is told of changes", func() bool { return trackers(s) == 1 })
	}
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// trackers counts the connections that the server tells of changes.
func trackers(s *redistest.Server) (n int) {
	for line := range strings.Lines(s.Do("CLIENT", "LIST")) {
		if i := strings.Index(line, " flags="); i >= 0 && strings.Contains(strings.Fields(line[i:])[0], "t") {
			n++
		}
	}
	return n
}

// calls is how often the server carried a command out.
func calls(s *redistest.Server, command string) int {
	_, rest, _ := strings.Cut(s.Do("INFO", "commandstats"), "cmdstat_"+command+":calls=")
	n := 0
	fmt.Sscanf(rest, "%d", &n)
	return n
}

// Whoever ends another client's hold, in whatever way, wakes those who wait at once, and nothing is asked meanwhile.
func TestTracking(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := open(t, s.URL, nil)
	if n := trackers(s); n != 0 {
		t.Errorf("nobody waits, and %d connections track", n)
	}
	take := func(name string) {
		t.Helper()
		if s.Do("SET", name, "theirs", "NX", "PX", "60000") != "OK" {
			t.Fatalf("%s is not free", name)
		}
	}
	for how, end := range map[string]func(name string){
		"deleted":      func(name string) { s.Do("DEL", name) },
		"unlinked":     func(name string) { s.Do("UNLINK", name) },
		"by a script":  func(name string) { s.Do("EVAL", "return redis.call('DEL', KEYS[1])", "1", name) },
		"has run out":  func(name string) { s.Do("PEXPIRE", name, "30") },
		"renamed":      func(name string) { s.Do("RENAME", name, name+" away") },
		"flushed":      func(string) { s.Do("FLUSHALL") },
		"another type": func(name string) { s.Do("DEL", name); s.Do("HSET", name, "a", "1") },
	} {
		take(how)
		w := wait(t, p, how)
		tracked(t, s)
		select {
		case <-w.told:
			t.Errorf("%s: the waiter was told before anything happened", how)
		case <-time.After(20 * time.Millisecond):
		}
		s.Do("PEXPIRE", how, "50000") // the holder renews: nobody is told
		s.Do("SET", how, "another", "XX", "PX", "50000")
		select {
		case <-w.told:
			t.Errorf("%s: the waiter was told, but the name is held", how)
		case <-time.After(20 * time.Millisecond):
		}
		end(how)
		w.mustHear(how)
		w.leave()
	}

	// One connection, however many wait; none when nobody does.
	var ws []*waiter
	for i := range 300 {
		name := fmt.Sprint("many ", i%100)
		if i < 100 {
			take(name)
		}
		ws = append(ws, wait(t, p, name))
	}
	tracked(t, s)
	s.Do("DEL", "many 7")
	for i, w := range ws {
		if i%100 == 7 {
			w.mustHear("one of many")
		} else if len(w.told) > 0 {
			t.Errorf("number %d was told of another name", i)
		}
	}
	for _, w := range ws {
		w.leave()
	}
	eventually(t, "no connection tracks when nobody waits", func() bool { return trackers(s) == 0 })
	if n := calls(s, "mget"); n > 0 {
		t.Errorf("%d looks besides", n)
	}
	if why := p.Mode().NoMessages; why != nil {
		t.Errorf("NoMessages: %v", why)
	}
}

// A lost connection is made again, and what happened meanwhile is seen.
func TestTrackingLost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := open(t, s.URL, nil)
	for i := range 5 {
		s.Do("SET", "orders", "theirs", "PX", "60000")
		w := wait(t, p, "orders")
		tracked(t, s)
		s.Do("EVAL", "redis.call('SET', 'last', ARGV[1])", "0", fmt.Sprint(i))
		if i%2 == 0 { // all are cut, and the key goes right behind
			s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			s.Do("DEL", "orders")
		} else {
			s.Restart()
		}
		w.mustHear("the connection was lost")
		w.leave()
		s.Do("SET", "orders", "theirs", "PX", "60000")
		again := wait(t, p, "orders")
		tracked(t, s)
		s.Do("DEL", "orders")
		again.mustHear("after the loss")
		again.leave()
	}
}

// Where the server does not tell, one command looks at all names that are due.
func TestPolling(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	url := blind(s)
	p := open(t, url, nil)
	const names = 200
	var ws []*waiter
	for i := range names {
		name := fmt.Sprint("name ", i)
		s.Do("SET", name, "theirs", "PX", "60000")
		ws = append(ws, wait(t, p, name))
	}
	eventually(t, "NoMessages says why", func() bool {
		why := p.Mode().NoMessages
		return why != nil && strings.Contains(why.Error(), "CLIENT TRACKING") && strings.Contains(why.Error(), "NOPERM")
	})
	time.Sleep(2 * time.Second) // all look at their longest pause
	began := time.Now()         // before the first count, and over after the last: counting takes time too
	before, others := calls(s, "mget"), calls(s, "get")
	time.Sleep(2 * time.Second)
	looks := calls(s, "mget") - before
	if took := time.Since(began); looks < 1 || looks > int(took/(4*time.Millisecond)) {
		t.Errorf("%d commands in %v", looks, took)
	}
	if n := calls(s, "get") - others + trackers(s); n > 0 {
		t.Errorf("%d other looks", n)
	}
	s.Do("DEL", "name 3")
	s.Do("PEXPIRE", "name 5", "20")
	for _, i := range []int{3, 5} {
		ws[i].mustHear("it is gone")
	}
	for i, w := range ws {
		if i != 3 && i != 5 && len(w.told) > 0 {
			t.Errorf("number %d was told of another name", i)
		}
		w.leave()
	}
	time.Sleep(50 * time.Millisecond)
	before = calls(s, "mget")
	time.Sleep(500 * time.Millisecond)
	if n := calls(s, "mget") - before; n > 0 {
		t.Errorf("%d looks while nobody waits", n)
	}

	// A user who may not look either still gets in.
	s.Do("ACL", "SETUSER", "blind", "-mget")
	w := wait(t, p, "name 9")
	s.Do("DEL", "name 9")
	w.mustHear("nothing can be looked at")
}

// BenchmarkHandOver measures the time from another client's release until a waiting place has the lock, told by the server or
// polling.
func BenchmarkHandOver(b *testing.B) {
	s := redistest.Start(b)
	raw := connect(b, s)
	for _, how := range []string{"tracking", "polling"} {
		b.Run(how, func(b *testing.B) {
			url := s.URL
			if how != "tracking" {
				url = blind(s)
			}
			p := open(b, url, nil)
			var took []time.Duration
			for i := range b.N {
				name := fmt.Sprint(how, i)
				s.Do("SET", name, "theirs", "PX", "60000")
				w := wait(b, p, name)
				time.Sleep(time.Duration(50+i*17%400) * time.Millisecond)
				began := time.Now()
				do(b, raw, "DEL", name)
				for {
					w.mustHear(how)
					if g, err := w.place.Try(b.Context(), 1); err == nil {
						took = append(took, time.Since(began))
						w.r.Hold.Token = g.Token
						break
					}
				}
				p.Release(b.Context(), w.r.Hold, driver.End{})
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "p90-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
