package peertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/redlock"
)

const (
	soon  = 30 * time.Second // for what must happen, on a busy machine
	brief = 300 * time.Millisecond
	long  = time.Minute
)

func open(t testing.TB, s *redistest.Server, opts *redislock.PlainOptions) *redislock.Plain {
	t.Helper()
	p, err := redislock.OpenPlain(t.Context(), s.URL, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// must wants a peer to have done something.
func must[T any](t testing.TB, what string) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// Each side excludes the other, sees its releases and expiries, and leaves its values alone.
func TestPeers(t *testing.T) {
	t.Parallel()
	type entry struct {
		name, prefix string
		careless     bool
		open         func(testing.TB, *redistest.Server) peer
	}
	all := []entry{
		{name: "redsync", open: func(t testing.TB, s *redistest.Server) peer { return newRedsync(t, s) }},
		{name: "bsm redislock", open: newBsm},
		{name: "redis-py", open: newRedisPy},
	}
	for _, k := range kinds {
		all = append(all, entry{k.name, k.prefix, k.careless, func(t testing.TB, s *redistest.Server) peer { return cliPeer{t, s, k} }})
	}
	s := redistest.Start(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, e := range all {
		run := func(t *testing.T) {
			x := &pair{T: t, who: e.name, s: s, peer: e.open(t, s), d: open(t, s, &redislock.PlainOptions{Prefix: e.prefix}), prefix: e.prefix + e.name + "/"}
			x.c = pawl.New(prefixed{x.d, e.name + "/"}).With(pawl.Options{TTL: 3 * time.Second})
			x.pawlHolds()
			x.peerHolds()
			x.peerDies()
			x.pawlDies()
			x.theft()
			x.both()
			if e.careless {
				x.carelessly()
			} else {
				x.late()
			}
		}
		wg.Go(func() { t.Run(e.name, run) }) // not t.Parallel: they only wait, and it runs as many as there are processors
	}
}

// prefixed keeps the peers of one server apart.
type prefixed struct {
	driver.Driver
	prefix string
}

func (p prefixed) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	r.Name = p.prefix + r.Name
	return p.Driver.Enter(ctx, r)
}

func (p prefixed) Renew(ctx context.Context, hs []driver.Hold) []error {
	out := append([]driver.Hold(nil), hs...)
	for i := range out {
		out[i].Name = p.prefix + out[i].Name
	}
	return p.Driver.Renew(ctx, out)
}

func (p prefixed) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	h.Name = p.prefix + h.Name
	return p.Driver.Release(ctx, h, end)
}

// pair is pawl and a peer over one server.
type pair struct {
	*testing.T
	s      *redistest.Server
	peer   peer
	d      *redislock.Plain
	c      *pawl.Client
	who    string
	prefix string // of a name of pawl's, in the peer's eyes
}

func (x *pair) lock(name string) *pawl.Lease {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), soon)
	defer cancel()
	return must[*pawl.Lease](x, "pawl's Lock of "+name)(x.c.Mutex(name).Lock(ctx))
}

func (x *pair) mustBeHeld(name string) {
	x.Helper()
	l, err := x.c.Mutex(name).TryLock(x.Context())
	if !errors.Is(err, pawl.ErrHeld) {
		x.Errorf("%s is the peer's, and pawl's TryLock answers %v", name, err)
	}
	l.Unlock()
}

func (x *pair) mustBeTaken(name string) {
	x.Helper()
	if l, err := x.peer.take(x.prefix+name, long); err == nil {
		x.Errorf("%s is pawl's, and the peer got it", name)
		l.release()
	}
}

// peerWaits lets the peer wait, and answers what it gets.
func (x *pair) peerWaits(name string) <-chan lock {
	out := make(chan lock, 1)
	go func() {
		defer close(out)
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		l, err := x.peer.wait(ctx, x.prefix+name, long)
		if err != nil {
			x.Errorf("the peer's wait for %s: %v", name, err)
			return
		}
		out <- l
	}()
	return out
}

// pawlWaits lets pawl wait.
func (x *pair) pawlWaits(name string) <-chan *pawl.Lease {
	out := make(chan *pawl.Lease, 1)
	go func() {
		defer close(out)
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		l, err := x.c.Mutex(name).Lock(ctx)
		if err != nil {
			x.Errorf("pawl's wait for %s: %v", name, err)
			return
		}
		out <- l
	}()
	return out
}

func (x *pair) pawlHolds() {
	x.Helper()
	lease := x.lock("mine")
	x.mustBeTaken("mine")
	got := x.peerWaits("mine")
	select {
	case <-got:
		x.Fatal("the peer did not wait for pawl")
	case <-time.After(4 * time.Second): // longer than the TTL: pawl renews
	}
	if err := lease.Unlock(); err != nil {
		x.Fatalf("Unlock: %v", err)
	}
	if l := <-got; l != nil {
		x.mustBeHeld("mine")
		if err := l.release(); err != nil {
			x.Errorf("the peer's release: %v", err)
		}
	}
}

func (x *pair) peerHolds() {
	x.Helper()
	l := must[lock](x, "the peer's take")(x.peer.take(x.prefix+"theirs", long))
	x.mustBeHeld("theirs")
	got := x.pawlWaits("theirs")
	select {
	case <-got:
		x.Fatal("pawl did not wait for the peer")
	case <-time.After(brief):
	}
	if err := l.extend(long); err != nil {
		x.Errorf("the peer's extension: %v", err)
	}
	select {
	case <-got:
		x.Fatal("pawl got what the peer extended")
	case <-time.After(brief):
	}
	if err := l.release(); err != nil {
		x.Fatalf("the peer's release: %v", err)
	}
	if lease := <-got; lease != nil {
		x.mustBeTaken("theirs")
		lease.Unlock()
	}
}

func (x *pair) peerDies() {
	x.Helper()
	must[lock](x, "the peer's take")(x.peer.take(x.prefix+"dead", time.Second))
	if lease := <-x.pawlWaits("dead"); lease != nil {
		x.mustBeTaken("dead")
		lease.Unlock()
	}
}

func (x *pair) pawlDies() {
	x.Helper()
	r := driver.Request{Notify: func(driver.Signal) {}, Hold: driver.Hold{Kind: driver.Exclusive, Permits: 1, TTL: time.Second,
		Name: x.who + "/dying", ID: uuid() + ":1"}}
	p := must[driver.Place](x, "Enter")(x.d.Enter(x.Context(), r))
	must[driver.Grant](x, "Try")(p.Try(x.Context(), 1))
	if l := <-x.peerWaits("dying"); l != nil {
		l.release()
	}
}

// theft: a key that somebody deletes is lost at the next renewal, and not made again; nor is the thief's hold ended.
func (x *pair) theft() {
	x.Helper()
	lease := x.lock("stolen")
	x.s.Do("DEL", x.prefix+"stolen")
	l := must[lock](x, "the peer's take")(x.peer.take(x.prefix+"stolen", long))
	select {
	case <-lease.Done():
	case <-time.After(soon):
		x.Fatal("the theft was not noticed")
	}
	if !errors.Is(lease.Err(), pawl.ErrLost) {
		x.Errorf("the stolen lease ended with %v", lease.Err())
	}
	lease.Unlock()
	x.mustBeHeld("stolen")
	if err := l.release(); err != nil {
		x.Errorf("the thief's release: %v", err)
	}

	lease = x.lock("deleted")
	x.s.Do("DEL", x.prefix+"deleted")
	select {
	case <-lease.Done():
	case <-time.After(soon):
		x.Fatal("the deletion was not noticed")
	}
	lease.Unlock()
	if x.s.Do("SET", x.prefix+"deleted", "free", "NX") != "OK" {
		x.Error("the deleted key was made again")
	}
}

// late: what comes from a peer after its time ends nothing of pawl's.
func (x *pair) late() {
	x.Helper()
	l := must[lock](x, "the peer's take")(x.peer.take(x.prefix+"late", time.Second))
	lease := x.lock("late")
	for what, err := range map[string]error{"extension": l.extend(long), "release": l.release()} {
		if err == nil {
			x.Errorf("the peer's late %s worked", what)
		}
	}
	if err := lease.Unlock(); err != nil {
		x.Errorf("pawl's Unlock: %v", err)
	}
}

// carelessly: a peer that deletes what it lost long ago takes the name from pawl, which notices.
func (x *pair) carelessly() {
	x.Helper()
	l := must[lock](x, "the peer's take")(x.peer.take(x.prefix+"late", time.Second))
	lease := x.lock("late")
	if err := l.release(); err != nil {
		x.Errorf("the peer's late release: %v", err)
	}
	select {
	case <-lease.Done():
	case <-time.After(soon):
		x.Error("a lease outlived its key")
	}
}

// both contend, and never hold at the same time.
func (x *pair) both() {
	x.Helper()
	var inside atomic.Int32
	var wg sync.WaitGroup
	enter := func(who string) {
		if inside.Add(1) != 1 {
			x.Errorf("%s is not alone", who)
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
	}
	wg.Go(func() {
		for range 10 {
			lease := <-x.pawlWaits("both")
			if lease == nil {
				return
			}
			enter("pawl")
			lease.Unlock()
		}
	})
	wg.Go(func() {
		for range 10 {
			l := <-x.peerWaits("both")
			if l == nil {
				return
			}
			enter("the peer")
			l.release()
		}
	})
	wg.Wait()
}

// Five servers, as redsync takes a majority of them, and pawl's quorum does.
func TestQuorum(t *testing.T) {
	t.Parallel()
	const maxTTL = 3 * time.Second
	var servers []*redistest.Server
	var members []driver.Driver
	for range 5 {
		s := redistest.Start(t)
		p, err := redislock.OpenPlain(t.Context(), s.URL, &redislock.PlainOptions{Fenced: true})
		if err != nil {
			t.Fatal(err)
		}
		servers, members = append(servers, s), append(members, p)
	}
	q := redlock.New(members, &redlock.Options{MaxTTL: maxTTL, NodeTimeout: time.Second})
	t.Cleanup(func() { q.Close() })
	locks := pawl.New(q).With(pawl.Options{TTL: maxTTL})
	rs := newRedsync(t, servers...)

	// get waits until the members vote: those that have just started do not.
	get := func(name string) *pawl.Lease {
		t.Helper()
		for end := time.Now().Add(2 * soon); ; time.Sleep(50 * time.Millisecond) {
			lease, err := locks.Mutex(name).Lock(t.Context())
			if err == nil {
				return lease
			}
			if time.Now().After(end) {
				t.Fatalf("pawl's Lock of %s: %v", name, err)
			}
		}
	}
	exclude := func(round string) {
		t.Helper()
		lease := get("orders")
		if lease.Token() == 0 {
			t.Error("no token")
		}
		if l, err := rs.take("orders", long); err == nil {
			t.Errorf("%s: redsync got what pawl holds", round)
			l.release()
		}
		waits := make(chan error, 1)
		var l lock
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			var err error
			l, err = rs.wait(ctx, "orders", long)
			waits <- err
		}()
		select {
		case <-waits:
			t.Fatalf("%s: redsync did not wait", round)
		case <-time.After(maxTTL + time.Second): // pawl renews
		}
		if err := lease.Unlock(); err != nil {
			t.Errorf("%s: Unlock: %v", round, err)
		}
		if err := <-waits; err != nil {
			t.Fatalf("%s: redsync did not get what pawl released: %v", round, err)
		}
		if lease, err := locks.Mutex("orders").TryLock(t.Context()); err == nil {
			t.Errorf("%s: pawl got what redsync holds", round)
			lease.Unlock()
		}
		got := make(chan *pawl.Lease, 1)
		go func() { got <- get("orders") }()
		select {
		case <-got:
			t.Fatalf("%s: pawl did not wait", round)
		case <-time.After(brief):
		}
		if err := l.release(); err != nil {
			t.Errorf("%s: redsync's release: %v", round, err)
		}
		next := <-got
		if next.Token() <= lease.Token() {
			t.Errorf("%s: token %d follows %d", round, next.Token(), lease.Token())
		}
		if err := next.Unlock(); err != nil {
			t.Errorf("%s: Unlock: %v", round, err)
		}
	}
	exclude("all five")

	// redsync's hold runs out; what comes of it later ends nothing.
	dead, err := rs.take("dead", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	lease := get("dead")
	if err := dead.release(); err == nil {
		t.Error("redsync released what is pawl's")
	}
	if l, err := rs.take("dead", long); err == nil {
		t.Error("redsync got what pawl holds")
		l.release()
	}
	if err := lease.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}

	servers[1].Kill()
	servers[4].Kill()
	exclude("two of five killed")
}
