package fence

import (
	"context"
	"sync"
)

// Guard is a guard whose claim stands by itself, outside a transaction: a [Gate] by its method Guard, a redisfence.Guard,
// or one of your own. Both methods answer ErrStale and ErrNoToken as [Gate.Claim] does; any other error means that the
// guard could not be asked.
type Guard interface {
	Claim(ctx context.Context, resource string, l Lease) error
	ClaimShared(ctx context.Context, resource string, l Lease) error
}

// Gate guards resources that live in this process: a cache, a file, a device, a connection to something that knows no
// tokens. It keeps one mark for each resource name, as long as it lives; after a restart it has seen nothing.
//
// The zero Gate is ready. It is safe for concurrent use and must not be copied after its first use.
//
// Claim answers for the instant in which it runs. Where another goroutine could write between the claim and the caller's
// write, hold the mutex that guards the resource over both.
type Gate struct {
	mu    sync.Mutex
	marks map[string]mark
}

// Claim raises the mark of resource to the lease's token. It does not block. It answers ErrStale when a newer hold has
// claimed (*StaleError) or the lease has ended or is nil, and ErrNoToken; then the mark stays as it was. A hold may claim
// as often as it likes.
func (g *Gate) Claim(resource string, l Lease) error { return g.claim(resource, l, false) }

// ClaimShared is Claim for one who only reads, under a read lock: see the package documentation.
func (g *Gate) ClaimShared(resource string, l Lease) error { return g.claim(resource, l, true) }

func (g *Gate) claim(resource string, l Lease, shared bool) error {
	p, err := Show(resource, l) // asks the lease, so not under mu
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m, err := g.marks[resource].raise(resource, p, shared)
	if err != nil {
		return err
	}
	if g.marks == nil {
		g.marks = map[string]mark{}
	}
	g.marks[resource] = m
	return nil
}

// Guard is g as a Guard. It looks at no context, since g does not block.
func (g *Gate) Guard() Guard { return gateGuard{g} }

type gateGuard struct{ g *Gate }

func (g gateGuard) Claim(_ context.Context, resource string, l Lease) error {
	return g.g.Claim(resource, l)
}

func (g gateGuard) ClaimShared(_ context.Context, resource string, l Lease) error {
	return g.g.ClaimShared(resource, l)
}
