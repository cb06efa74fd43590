package pawl_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/memlock"
)

// What people build on a lock, as programs.

// 07. Transfer between two accounts. All returns Leases, each with its token: `leases.Token()` does not compile, so the
// token of one account is not used for the other. from == to must not deadlock.
func Test07TwoAccounts(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		balance := map[string]int{"a": 100, "b": 100}
		var gate fence.Gate
		transfer := func(ctx context.Context, from, to string, n int) error {
			leases, err := pawl.All(locks.Mutex("acct:"+from), locks.Mutex("acct:"+to)).Lock(ctx)
			if err != nil {
				return err
			}
			defer leases.Unlock()
			if err := errors.Join(gate.Claim(from, leases[0]), gate.Claim(to, leases[1])); err != nil {
				return err
			}
			f := balance[from]
			time.Sleep(time.Millisecond)
			balance[from] = f - n
			balance[to] += n
			return nil
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				p := [][2]string{{"a", "b"}, {"b", "a"}, {"a", "a"}}[i%3]
				if err := transfer(t.Context(), p[0], p[1], 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want(t, "sum", balance["a"]+balance["b"], 200)
	})
}

// cut is one client's connection to the store; down cuts it.
type cut struct {
	*memlock.Driver // by type, not as driver.Driver: that would hide Inspector and Watcher
	down            atomic.Bool
}

func (d *cut) Renew(ctx context.Context, hs []driver.Hold) []error {
	if d.down.Load() {
		errs := make([]error, len(hs))
		for i := range errs {
			errs[i] = io.ErrUnexpectedEOF
		}
		return errs
	}
	return d.Driver.Renew(ctx, hs)
}

// 08. Leader election worker. Run is the first thing to type; Campaign returns a *Lease, nothing new to learn.
func Test08Leader(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, two *pawl.Client) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		wire := &cut{Driver: store.Share()}
		locks := pawl.New(wire)
		defer locks.Close()
		var leading atomic.Int32
		var terms []int64
		node := func(locks *pawl.Client, addr string) error {
			return locks.Election("billing").Run(ctx, addr, func(ctx context.Context) error {
				if leading.Add(1) != 1 {
					t.Error("two leaders")
				}
				defer leading.Add(-1)
				terms = append(terms, pawl.FromContext(ctx, "billing").Token())
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}
		var wg sync.WaitGroup
		wg.Go(func() { wantIs(t, node(locks, "10.0.0.1:80"), context.Canceled) })
		synctest.Wait()
		wg.Go(func() { wantIs(t, node(two, "10.0.0.2:80"), context.Canceled) })
		synctest.Wait()
		var seen []string
		for l, err := range two.Election("billing").Observe(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if l.Term == 0 {
				continue // nobody leads, for the moment
			}
			seen = append(seen, string(l.Value))
			if len(seen) == 1 {
				wire.down.Store(true) // the leader cannot renew; it must stop before another leads
			}
			if len(seen) == 2 {
				break
			}
		}
		want(t, "leaders", strings.Join(seen, " "), "10.0.0.1:80 10.0.0.2:80")
		synctest.Wait() // the second one knows it too
		stop()
		wg.Wait()
		if len(terms) < 2 || terms[0] >= terms[1] {
			t.Errorf("terms %v", terms)
		}
	})
}

// 09. Idempotent order creation. A generic function reads well because T is inferred; a method could not have T. The
// window is positional: forgetting it would mean "for ever" or "never".
func Test09IdempotentOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		type Order struct{ ID int }
		n := 0
		create := func(key string) (Order, error) {
			return pawl.Once(t.Context(), locks, "order:"+key, 24*time.Hour, func(ctx context.Context) (Order, error) {
				time.Sleep(100 * time.Millisecond)
				n++
				if n == 1 {
					return Order{}, errors.New("card service down") // not remembered
				}
				return Order{ID: n}, nil
			})
		}
		_, err := create("k1")
		want(t, "first", err != nil, true)
		var wg sync.WaitGroup
		for range 20 { // double clicks
			wg.Go(func() {
				o, err := create("k1")
				if err != nil || o.ID != 2 {
					t.Error(o, err)
				}
			})
		}
		wg.Wait()
		want(t, "created", n, 2)
		time.Sleep(25 * time.Hour)
		o, _ := create("k1")
		want(t, "after the window", o.ID, 3)
		time.Sleep(25 * time.Hour)
	})
}

// 26. Schedule: Run blocks, fn is an existing func(ctx) error, three nodes run it once per period.
func Test26Schedule(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, _ *pawl.Client) {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Hour+time.Minute)
		defer stop()
		var runs atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				locks := pawl.New(store.Share())
				defer locks.Close()
				err := locks.Schedule("report", time.Hour).Run(ctx, func(context.Context) error {
					runs.Add(1)
					time.Sleep(time.Minute)
					return nil
				})
				wantIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		want(t, "runs", runs.Load(), int32(6))
		time.Sleep(time.Hour)
	})
}

// 30. The same name as two kinds, one inside the other: refused at once, by context or by the store.
func Test30Kinds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		_, err := pawl.Once(t.Context(), locks, "order:1", time.Hour, func(ctx context.Context) (int, error) {
			return 0, locks.Mutex("order:1").Do(ctx, func(context.Context) error { return nil })
		})
		wantIs(t, err, pawl.ErrMismatch)
	})
}

// Against somebody who takes the same locks in the other order, one after another, All must not deadlock: it holds
// nothing while it waits without limit.
func TestAllAgainstAnotherOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		other := pawl.New(store.Share())
		defer other.Close()
		var in atomic.Int32
		work := func(context.Context) error {
			if in.Add(1) != 1 {
				t.Error("two at once")
			}
			time.Sleep(5 * time.Millisecond)
			in.Add(-1)
			return nil
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					if err := pawl.All(locks.Mutex("a"), locks.Mutex("b"), locks.RWMutex("c")).Do(t.Context(), work); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				b, err := other.Mutex("b").Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				if err := other.Mutex("a").Do(b.Context(t.Context()), work); err != nil {
					t.Error(err)
				}
				b.Unlock()
			}
		})
		start := time.Now()
		wg.Wait()
		if d := time.Since(start); d > 5*time.Minute {
			t.Errorf("it took %v", d)
		}
	})
}

// slow is a store that takes its time for everything.
type slow struct {
	*memlock.Driver
	by time.Duration
}

type slowPlace struct {
	driver.Place
	by time.Duration
}

func (d slow) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	p, err := d.Driver.Enter(ctx, r)
	return slowPlace{p, d.by}, err
}

func (p slowPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	time.Sleep(p.by)
	return p.Place.Try(ctx, span)
}

func (d slow) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	time.Sleep(d.by)
	return d.Driver.Release(ctx, h, end)
}

// A further lock that comes late, on a busy store, must not set those who use All against each other: nobody waits out of
// order while he holds something.
func TestAllOnASlowStore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, _ *pawl.Client) {
		const rounds, by = 10, 40 * time.Millisecond
		var wg sync.WaitGroup
		start := time.Now()
		for range 4 {
			locks := pawl.New(slow{store.Share(), by})
			defer locks.Close()
			for k := range 2 {
				wg.Go(func() {
					names := []string{"a", "b"}
					for range rounds {
						m := pawl.All(locks.Mutex(names[k]), locks.Mutex(names[1-k]))
						if err := m.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		// One after the other, each takes and releases two locks; as much again for attempts that were given up.
		if d, most := time.Since(start), 4*2*rounds*4*by*2; d > most {
			t.Errorf("it took %v, want at most %v", d, most)
		}
	})
}

func TestAll(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ctx := t.Context()
		cfg := locks.RWMutex("cfg")
		ls, err := pawl.All(cfg.RLocker(), locks.Mutex("a"), cfg, locks.Semaphore("s", 5).Weight(2), locks.Semaphore("s", 5)).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the same lease for one name", ls[0], ls[2])
		want(t, "names", ls[0].Name()+ls[1].Name()+ls[3].Name(), "cfgas")
		_, err = cfg.TryRLock(ctx)
		wantIs(t, err, pawl.ErrHeld) // taken to write
		_, err = locks.Semaphore("s", 5).Weight(3).TryLock(ctx)
		wantIs(t, err, pawl.ErrHeld) // 2 + 1 of 5 are taken
		store.Expire("a")
		work := ls.Context(ctx)
		<-work.Done()
		wantIs(t, context.Cause(work), pawl.ErrLost)
		wantIs(t, ls.Err(), pawl.ErrLost)
		i, _ := locks.Inspect(ctx, "cfg")
		want(t, "the others are still held", len(i.Holders), 1)
		wantIs(t, ls.Unlock(), pawl.ErrLost)
		for _, name := range []string{"a", "cfg", "s"} {
			i, _ := locks.Inspect(ctx, name)
			want(t, name+" is free", len(i.Holders), 0)
		}

		busy, _ := locks.Mutex("b").Lock(ctx)
		_, err = pawl.All(locks.Mutex("a"), locks.Mutex("b")).TryLock(ctx)
		wantIs(t, err, pawl.ErrHeld)
		i, _ = locks.Inspect(ctx, "a")
		want(t, "nothing is kept of a failed try", len(i.Holders), 0)
		quick := locks.With(pawl.Options{Wait: 3 * time.Second})
		start := time.Now()
		_, err = pawl.All(quick.Mutex("a"), quick.Mutex("b"), quick.Mutex("c")).Lock(ctx)
		wantIs(t, err, pawl.ErrHeld, context.DeadlineExceeded)
		want(t, "waited", time.Since(start), 3*time.Second)
		_, err = pawl.All(locks.Mutex("a"), locks.Mutex("c")).Lock(busy.Context(ctx))
		wantIs(t, err, pawl.ErrInvalid) // a comes before b
		busy.Unlock()

		for _, bad := range []*pawl.Multi{pawl.All(), pawl.All(nil), pawl.All(new(pawl.Mutex)), pawl.All(locks.Mutex("")),
			pawl.All(locks.Semaphore("s", 2), locks.Semaphore("s", 2).Weight(2))} {
			_, err := bad.TryLock(ctx)
			wantIs(t, err, pawl.ErrInvalid)
		}
		_, err = pawl.All(locks.Mutex("x"), locks.RWMutex("x")).TryLock(ctx)
		wantIs(t, err, pawl.ErrMismatch)
		_, err = pawl.All(locks.Semaphore("s", 2), locks.Semaphore("s", 3)).TryLock(ctx)
		wantIs(t, err, pawl.ErrMismatch)
	})
}

// A nested lock that comes before a held one is an event: with somebody who does it the other way round it deadlocks.
func TestOutOfOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		var ops []string
		var mu sync.Mutex
		watched := locks.With(pawl.Options{OnEvent: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			ops = append(ops, string(e.Op)+" "+e.Name)
		}})
		b, _ := watched.Mutex("b").Lock(t.Context())
		for _, name := range []string{"a", "b", "c"} {
			l, err := watched.Mutex(name).Lock(b.Context(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			l.Unlock()
		}
		b.Unlock()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want(t, "events", strings.Join(ops, ", "),
			"acquired b, out of order a, acquired a, released a, acquired c, released c, released b")
	})
}

// A leader that loses its term stops exactly once before another starts; resigning passes the term on at once.
func TestElection(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		var log []string
		var mu sync.Mutex
		note := func(s string) { mu.Lock(); log = append(log, s); mu.Unlock() }
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wires := map[string]*cut{}
		for _, name := range []string{"n1", "n2", "n3"} {
			wire := &cut{Driver: store.Share()}
			wires[name] = wire
			node := pawl.New(wire)
			wg.Go(func() {
				defer node.Close()
				node.Election("e").Run(ctx, name, func(ctx context.Context) error {
					note("start " + name)
					if !node.Election("e").IsLeader() {
						t.Error(name, "leads and does not know it")
					}
					<-ctx.Done()
					time.Sleep(100 * time.Millisecond) // drains
					note("stop " + name)
					return nil
				})
				if node.Election("e").IsLeader() {
					t.Error(name, "still leads")
				}
			})
			synctest.Wait()
		}
		l, err := locks.Election("e").Leader(ctx)
		want(t, "first leader", string(l.Value)+errText(err), "n1")
		wires["n1"].down.Store(true)
		time.Sleep(time.Minute)
		wires["n1"].down.Store(false)
		l, _ = locks.Election("e").Leader(ctx)
		want(t, "second leader", string(l.Value), "n2")
		stop()
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		for i, s := range log {
			if odd := i%2 == 1; odd != strings.HasPrefix(s, "stop") || odd && s[5:] != log[i-1][6:] {
				t.Errorf("starts and stops do not alternate: %v", log)
				break
			}
		}
		if len(log) < 4 {
			t.Errorf("too few terms: %v", log)
		}
		l, err = locks.Election("e").Leader(t.Context())
		want(t, "nobody leads", l.Term, int64(0))
		want(t, "and that is no error", err, error(nil))
	})
}

// late is a driver whose grants arrive when nobody waits for them any more, and whose releases take until back is closed.
type late struct {
	driver.Driver
	back chan struct{}
}

type latePlace struct{ driver.Place }

func (d *late) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	p, err := d.Driver.Enter(ctx, r)
	return latePlace{p}, err
}

func (p latePlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	g, err := p.Place.Try(ctx, span)
	<-ctx.Done()
	return g, err
}

func (d *late) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	<-d.back
	return d.Driver.Release(ctx, h, end)
}

// Nobody leads by a term that came too late, nor by one that is being given back.
func TestLeadsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		d := &late{store.Share(), make(chan struct{})}
		node := pawl.New(d)
		defer node.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := node.Election("e").Campaign(ctx, "v")
		want(t, "Campaign gave up", errors.Is(err, context.DeadlineExceeded), true)
		want(t, "it leads", node.Election("e").IsLeader(), false)
		close(d.back)
		synctest.Wait()
		l, err := locks.Election("e").Leader(t.Context())
		want(t, "the leader", l.Term, int64(0))
		want(t, "the error", err, error(nil))
	})
}

// A leader that does not stop keeps its term, with an event, for as long as Drain says. Then the next one leads.
func TestElectionDrain(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		var overran atomic.Int64
		node := locks.With(pawl.Options{TTL: 3 * time.Second, OnEvent: func(e pawl.Event) {
			if e.Op == pawl.Overrun {
				overran.Add(1)
			}
		}})
		run := func(e *pawl.Election, drains time.Duration) (term *pawl.Lease, over time.Duration, err error) {
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, stop)
			begin := time.Now()
			err = e.Run(ctx, "v", func(ctx context.Context) error {
				term = pawl.FromContext(ctx, "e")
				go func() {
					<-term.Done()
					over = time.Since(begin)
				}()
				<-ctx.Done()
				time.Sleep(drains)
				return nil
			})
			synctest.Wait()
			return term, over, err
		}
		e := node.Election("e").Drain(10 * time.Second)
		_, over, err := run(e, 9*time.Second)
		want(t, "drained in time", over, 10*time.Second)
		want(t, "no loss", errors.Is(err, context.Canceled) && !errors.Is(err, pawl.ErrLost), true)
		want(t, "one event", overran.Load(), int64(1))

		_, over, err = run(e, time.Minute)
		want(t, "limited", over, 11*time.Second)
		lost, _ := errors.AsType[*pawl.LostError](err)
		if lost == nil || lost.Reason != pawl.TooLong || !errors.Is(err, context.Canceled) {
			t.Errorf("the overrun ended with %v", err)
		}
		_, _, err = run(node.Election("e").Drain(-1), 0)
		want(t, "a negative limit", errors.Is(err, pawl.ErrInvalid), true)
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A run that was paused until others had taken over cannot overwrite their result.
func TestOncePaused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		other := pawl.New(store.Share())
		defer other.Close()
		slow := make(chan error, 1)
		go func() {
			_, err := pawl.Once(t.Context(), locks, "k", time.Hour, func(context.Context) (string, error) {
				time.Sleep(time.Second)
				return "slow", nil
			})
			slow <- err
		}()
		synctest.Wait()
		store.Expire("k")
		v, err := pawl.Once(t.Context(), other, "k", time.Hour, func(context.Context) (string, error) { return "fast", nil })
		want(t, "second run", v+errText(err), "fast")
		wantIs(t, <-slow, pawl.ErrLost)
		v, err = pawl.Once(t.Context(), other, "k", time.Hour, func(context.Context) (string, error) { return "third", nil })
		want(t, "recorded", v+errText(err), "fast")
		_, err = pawl.Once(t.Context(), other, "k2", 0, func(context.Context) (int, error) { return 0, nil })
		wantIs(t, err, pawl.ErrInvalid)
		_, err = pawl.Once(t.Context(), other, "k3", time.Hour, func(ctx context.Context) (int, error) {
			return pawl.Once(ctx, other, "k3", time.Hour, func(context.Context) (int, error) { return 0, nil })
		})
		wantIs(t, err, pawl.ErrInvalid)
		time.Sleep(2 * time.Hour)
	})
}

// Three nodes with skewed starts, a job each minute, one node cut off in the middle of a run: every tick is run to its end
// exactly once, by another node if need be.
func TestScheduleKilledNode(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, _ *pawl.Client) {
		runs := map[string]int{}
		var mu sync.Mutex
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer stop()
		victim := &cut{Driver: store.Share()}
		var wg sync.WaitGroup
		for i, d := range []driver.Driver{victim, store.Share(), store.Share()} {
			node := pawl.New(d)
			wg.Go(func() {
				defer node.Close()
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				node.Schedule("job", time.Minute).With(pawl.ScheduleOptions{Jitter: time.Second}).Run(ctx, func(ctx context.Context) error {
					if i == 0 && time.Now().Minute() >= 3 {
						victim.down.Store(true) // from here on it never renews, and none of its runs ends in time
						<-ctx.Done()
						return ctx.Err()
					}
					mu.Lock()
					defer mu.Unlock()
					runs[time.Now().Truncate(time.Minute).Format("04")]++
					return nil
				})
			})
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		total := 0
		for _, n := range runs {
			total += n
		}
		want(t, "runs of eleven ticks", total, 11)
	})
}

// quarters is a plan like those of cron libraries.
type quarters struct{}

func (quarters) Next(t time.Time) time.Time {
	return t.Truncate(15 * time.Minute).Add(15 * time.Minute)
}

func TestScheduleOn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Driver, locks *pawl.Client) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour+time.Minute)
		defer stop()
		var ran []string
		failed := 0
		watched := locks.With(pawl.Options{OnEvent: func(e pawl.Event) {
			if e.Op == pawl.JobFailed {
				failed++
			}
		}})
		err := watched.ScheduleOn("q", quarters{}).Run(ctx, func(ctx context.Context) error {
			ran = append(ran, time.Now().UTC().Format("15:04"))
			want(t, "tick", pawl.Tick(ctx), time.Now())
			return errors.New("no luck")
		})
		want(t, "no tick outside of a run", pawl.Tick(t.Context()), time.Time{})
		wantIs(t, err, context.DeadlineExceeded)
		want(t, "ran at", strings.Join(ran, " "), "00:15 00:30 00:45 01:00")
		synctest.Wait()
		want(t, "failures told", failed, 4)
		wantIs(t, locks.Schedule("bad", 0).Run(t.Context(), nil), pawl.ErrInvalid)
		time.Sleep(2 * time.Hour)
	})
}
