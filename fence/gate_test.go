package fence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/memlock"
)

// cell is a number in this process behind a Gate.
type cell struct {
	mu       sync.Mutex
	gate     *fence.Gate
	resource string
	v        int
}

func (c *cell) Read(_ context.Context, l fence.Lease) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.v, c.gate.Claim(c.resource, l)
}

func (c *cell) ReadShared(_ context.Context, l fence.Lease) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.v, c.gate.ClaimShared(c.resource, l)
}

func (c *cell) Write(_ context.Context, l fence.Lease, v int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.gate.Claim(c.resource, l); err != nil {
		return err
	}
	c.v = v
	return nil
}

// cells opens each once.
func cells() func(resource string) *cell {
	var mu sync.Mutex
	var gate fence.Gate
	all := map[string]*cell{}
	return func(resource string) *cell {
		mu.Lock()
		defer mu.Unlock()
		if all[resource] == nil {
			all[resource] = &cell{gate: &gate, resource: resource}
		}
		return all[resource]
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	open := cells()
	guardtest.Run(t, func(resource string) guardtest.Register { return open(resource) })
}

// nameless has no ID: it is told apart by its name.
type nameless struct {
	name  string
	token int64
}

func (n nameless) Name() string { return n.name }
func (n nameless) Token() int64 { return n.token }
func (n nameless) Err() error   { return nil }

func TestLeaseWithoutID(t *testing.T) {
	var g fence.Gate
	for i, c := range []struct {
		l  nameless
		ok bool
	}{{nameless{"a", 7}, true}, {nameless{"a", 7}, true}, {nameless{"b", 7}, false}, {nameless{"b", 8}, true}, {nameless{"a", 7}, false}} {
		if err := g.Claim("r", c.l); (err == nil) != c.ok || err != nil && !errors.Is(err, fence.ErrStale) {
			t.Errorf("claim %d: got %v", i, err)
		}
	}
}

func TestGateConcurrently(t *testing.T) {
	var g fence.Gate
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for n := range int64(1000) {
				g.Claim("r", nameless{"k", n*8 + i + 1})
			}
		})
	}
	wg.Wait()
	if err := g.Claim("r", nameless{"k", 8000}); err != nil {
		t.Errorf("the largest token: got %v, want nil", err)
	}
	if err := g.Claim("r", nameless{"k", 7999}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a smaller token: got %v, want ErrStale", err)
	}
}

// Leases that were handed over in one process share their hold and differ by token: the earlier one is refused.
func TestHandOff(t *testing.T) {
	locks := pawl.New(memlock.New())
	defer locks.Close()
	first, err := locks.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var g fence.Gate
	late := guardtest.Freeze(first)
	if err := g.Claim("r", first); err != nil {
		t.Fatal(err)
	}
	second := make(chan *pawl.Lease)
	go func() {
		l, err := locks.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	first.Unlock()
	l := <-second
	defer l.Unlock()
	if err := g.Claim("r", l); err != nil {
		t.Errorf("the next holder: got %v, want nil", err)
	}
	if err := g.Claim("r", late); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the one before: got %v, want ErrStale", err)
	}
}

// A file that a nightly job writes: whoever was paused must not write it after a newer job has begun.
func ExampleGate() {
	ctx := context.Background()
	store := memlock.New()
	locks := pawl.New(store)
	defer locks.Close()

	var gate fence.Gate // beside the file, in the process that has it
	file := 1

	slow, err := locks.Mutex("report").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slow.Unlock()
	fmt.Println("slow may read:", gate.Claim("report.csv", slow) == nil)
	read := file
	asleep := guardtest.Freeze(slow) // it has looked at its lease, and is paused here
	store.Expire("report")           // meanwhile its lease runs out

	err = locks.Mutex("report").Do(ctx, func(ctx context.Context) error {
		if err := gate.Claim("report.csv", pawl.FromContext(ctx, "report")); err != nil {
			return err
		}
		file += 10
		return nil
	})
	fmt.Println("quick wrote:", err == nil)

	if err := gate.Claim("report.csv", asleep); err != nil {
		fmt.Println("slow is refused:", errors.Is(err, fence.ErrStale))
	} else {
		file = read + 1
	}
	fmt.Println("the file has", file)
	// Output:
	// slow may read: true
	// quick wrote: true
	// slow is refused: true
	// the file has 11
}
