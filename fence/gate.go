package fence

import "sync"

// Gate guards resources that live in this process: a cache, a file, a device, a connection to something that knows no
// tokens. It keeps one mark for each resource name, as long as it lives; after a restart it has seen nothing.
//
// The zero Gate is ready. It is safe for concurrent use and must not be copied after its first use.
//
// Claim answers for the instant in which it runs. Where another goroutine could write between the claim and the caller's
// write, hold the mutex that guards the resource over both.
type Gate struct {
	mu    sync.Mutex
	marks map[string]claim
}

// Claim raises the mark of resource to the lease's token. It does not block. It answers ErrStale when a newer hold has
// claimed (*StaleError) or the lease has ended or is nil, and ErrNoToken; then the mark stays as it was. A hold may claim
// as often as it likes.
func (g *Gate) Claim(resource string, l Lease) error {
	c, err := show(resource, l) // asks the lease, so not under mu
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.marks[resource]; !c.passes(m) {
		return &StaleError{Resource: resource, Token: c.token, Seen: m.token}
	}
	if g.marks == nil {
		g.marks = map[string]claim{}
	}
	g.marks[resource] = c
	return nil
}
