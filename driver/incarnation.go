package driver

import (
	"context"
	"time"
)

// Incarnated is optional: a store that can tell a restart. A quorum over several stores needs it, because a store that
// came back empty has forgotten for whom it voted: it must not vote again before everything that it may have forgotten
// is over.
type Incarnated interface {
	// Incarnation names the present life of the store, in which it has forgotten nothing that it confirmed, and says how
	// long that life has lasted at least. A store that surely kept all its data over a restart may go on with its old
	// life; one that restarted and cannot be sure begins a new one. Two stores never have the same id, and one store has
	// the same id through every driver. A store that cannot tell answers errors.ErrUnsupported.
	Incarnation(ctx context.Context) (id string, age time.Duration, err error)
}
