package plaintest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/drivertest"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// slottable lets the suite, which uses every byte, use a Plain that refuses names whose keys no cluster could keep on one
// node: it writes their braces in another way.
type slottable struct{ *redislock.Plain }

var writing = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

func there(h driver.Hold) driver.Hold {
	open, end := strings.IndexByte(h.Name, '{'), strings.IndexByte(h.Name, '}')
	if slots := open < 0 && end < 0 || open >= 0 && end > open+1; !slots {
		h.Name = "written:" + writing.Replace(h.Name)
	}
	return h
}

func (d slottable) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	r.Hold = there(r.Hold)
	return d.Plain.Enter(ctx, r)
}

func (d slottable) Renew(ctx context.Context, hs []driver.Hold) []error {
	var all []driver.Hold
	for _, h := range hs {
		all = append(all, there(h))
	}
	return d.Plain.Renew(ctx, all)
}

func (d slottable) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	return d.Plain.Release(ctx, there(h), end)
}

func (d slottable) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	r.Hold = there(r.Hold)
	return d.Plain.Attach(ctx, r)
}

func (d slottable) Raise(ctx context.Context, h driver.Hold, token int64) error {
	return d.Plain.Raise(ctx, there(h), token)
}

func (d slottable) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	return d.Plain.Watch(ctx, there(driver.Hold{Name: name}).Name)
}

func (d slottable) Inspect(ctx context.Context, name string) (driver.Record, error) {
	r, err := d.Plain.Inspect(ctx, there(driver.Hold{Name: name}).Name)
	return back(r), err
}

func (d slottable) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for _, p := range []string{prefix, "written:" + writing.Replace(prefix)} {
			for r, err := range d.Plain.List(ctx, p) {
				if r = back(r); (err != nil || strings.HasPrefix(r.Name, prefix)) && !yield(r, err) {
					return
				}
			}
		}
	}
}

func back(r driver.Record) driver.Record {
	name := func(s *string) {
		if rest, ok := strings.CutPrefix(*s, "written:"); ok {
			*s = strings.NewReplacer("%7B", "{", "%7D", "}", "%25", "%").Replace(rest)
		}
	}
	name(&r.Name)
	for i := range r.Holds {
		name(&r.Holds[i].Name)
	}
	return r
}

func TestConformanceInCluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, false, 60_000)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			return slottable{open(t, c.URL, &redislock.PlainOptions{Fenced: true})}
		},
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: 2 * time.Second,
		Stall: func(testing.TB) func() {
			for _, s := range c.Primaries {
				s.Stop()
			}
			return func() {
				for _, s := range c.Primaries {
					s.Cont()
				}
			}
		},
	})
}

func TestConformanceOverSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	drivertest.Run(t, drivertest.Harness{
		Open:   func(t testing.TB) driver.Driver { return open(t, s.URL, &redislock.PlainOptions{Fenced: true}) },
		Kinds:  []driver.Kind{driver.Exclusive},
		MinTTL: time.Second,
	})
}

// Waiters are told by whichever node has the key: there is one connection to each that has some, also when a slot has moved
// or a replica has taken over.
func TestTrackingInCluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, true, 2000)
	p := open(t, c.URL, nil)
	other := pawl.New(open(t, c.URL, nil)).With(pawl.Options{TTL: 30 * time.Second})
	take := func(name string) *pawl.Lease {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			l, err := other.Mutex(name).Lock(t.Context())
			if err == nil {
				return l
			}
			if time.Now().After(end) {
				t.Fatalf("%s was not granted for a minute: %v", name, err)
			}
		}
	}
	ws, ls := map[string]*waiter{}, map[string]*pawl.Lease{}
	byNode := map[*redistest.Server]string{}
	for i := range 30 {
		name := fmt.Sprint("orders:", i)
		_, node := c.Slot(name)
		byNode[node] = name
		ls[name] = take(name)
		ws[name] = wait(t, p, name)
	}
	if len(byNode) != 3 {
		t.Fatalf("the names are on %d nodes", len(byNode))
	}
	tracked(t, c.Primaries...)

	// A slot moves while somebody waits for a key in it.
	moved := byNode[c.Primaries[0]]
	slot, from := c.Slot(moved)
	c.Migrate(slot, from, c.Primaries[1], nil)
	if err := ls[moved].Unlock(); err != nil {
		t.Errorf("Unlock at the new node: %v", err)
	}
	ws[moved].mustGet("it was released at the new node")
	delete(ws, moved)

	// A primary is killed, and its replica takes over what it has.
	dead := byNode[c.Primaries[2]]
	c.Primaries[2].Kill()
	take("{" + dead + "}other").Unlock() // as soon as the replica has taken over
	tracked(t, c.Replicas[2])
	if err := ls[dead].Unlock(); err != nil && !errors.Is(err, pawl.ErrLost) {
		t.Errorf("Unlock at the replica: %v", err)
	}
	ws[dead].mustGet("it was released at the replica")
	delete(ws, dead)

	for name, w := range ws {
		if err := ls[name].Unlock(); err != nil && !errors.Is(err, pawl.ErrLost) {
			t.Errorf("Unlock of %s: %v", name, err)
		}
		w.mustGet(name)
	}
	for _, s := range append(c.Primaries[:2], c.Replicas...) {
		eventually(t, "no connection tracks when nobody waits", func() bool { return trackers(s) == 0 })
	}
}

// After a fail-over waiters are told by the new primary.
func TestTrackingOverSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	p := open(t, s.URL, nil)
	old := s.Primary()
	old.Do("SET", "orders", "theirs", "PX", "120000")
	for _, r := range s.Servers {
		eventually(t, "all replicas have the key", func() bool { return r.Do("GET", "orders") == "theirs" })
	}
	w := wait(t, p, "orders")
	eventually(t, "a connection that is told of changes", func() bool {
		old = s.Primary() // on a busy machine another one by now
		return trackers(old) == 1
	})
	old.Stop() // it hangs, so that no connection to it is lost
	defer func() { old.Cont() }()
	var now *redistest.Server
	eventually(t, "another primary", func() bool { now = s.Primary(); return now != old })
	eventually(t, "the new primary tells of changes", func() bool { now = s.Primary(); return trackers(now) == 1 })
	now.Do("DEL", "orders")
	w.mustGet("it was released at the new primary")
}
