// Package bench measures clients of locks beside each other: pawl over any store, and whatever else is given to it as an
// Opener. Each round runs in fresh processes of the calling program, so that heap, CPU and goroutines belong to one client
// alone; the rounds of all clients are interleaved, and results are medians with their spread. The store's commands and
// bytes are read from its own counters.
//
// It is the engine of the command "pawl bench" and of the module bench, which adds other people's locks.
package bench

import (
	"context"
	"errors"
	"time"
)

// Unlocker is a lock that is held. Unlock is called once.
type Unlocker interface{ Unlock() error }

// Session is one client in one process, connected to its store. Its functions are called concurrently.
type Session struct {
	// Lock waits for an exclusive lock, until ctx ends.
	Lock func(ctx context.Context, key string) (Unlocker, error)
	// Read waits for a shared lock, and Write for one that excludes it. nil: there are none.
	Read, Write func(ctx context.Context, key string) (Unlocker, error)
	// Permit waits for one of limit permits. nil: there are none.
	Permit func(ctx context.Context, key string, limit int) (Unlocker, error)
	// Batch locks and unlocks all keys in one go: the store's limit, not a client. If it is there, nothing else is.
	Batch func(ctx context.Context, keys []string) error
	// Calls is how often the store was asked so far, for a store that does not count. nil: not known.
	Calls func() int64
	// Close need not wait for those who still wait for a lock.
	Close func() error
}

// Opener connects a client to the store at url, for the case c. ctx bounds the connecting.
type Opener func(ctx context.Context, url string, c Case) (*Session, error)

// ErrNone is what an Opener answers for a case that its client cannot do at all: it is left out, and not a failure.
var ErrNone = errors.New("this client has no such lock")

// Kind says what is measured.
type Kind string

const (
	Cycles   Kind = "cycles"   // goroutines lock and unlock as fast as they can
	Handover Kind = "handover" // one process unlocks, another one that waits has it
	Idle     Kind = "idle"     // waiters for a lock that stays held
	Held     Kind = "held"     // leases that are held
)

// Case is one thing to measure.
type Case struct {
	Name       string
	About      string
	Kind       Kind
	Goroutines int // in all; of Held: leases; of Idle: waiters
	Processes  int
	Own        bool          // each goroutine has a key of its own
	Keys       int           // Own: so many keys, taken in turn. 0: one a goroutine
	Reads      float64       // the share of cycles that only read, of an RWMutex; 0: a mutex
	Permits    int           // a semaphore of so many permits; 0: a mutex
	Linger     time.Duration // pawl's option Linger
	Span       int           // pawl's option Span
	Slice      time.Duration // pawl's option Slice
	TTL        time.Duration // of leases; 0: 30 s
	For        time.Duration // instead of the plan's, if it is longer
}

// DefaultTTL is the TTL of the leases of a Case that names none, with every client that lets one choose.
const DefaultTTL = 30 * time.Second

func (c Case) ttl() time.Duration {
	if c.TTL > 0 {
		return c.TTL
	}
	return DefaultTTL
}

// Cases are those that have a name.
func Cases() []Case {
	return []Case{
		{Name: "uncontended-1", About: "one goroutine, a key of its own", Kind: Cycles, Goroutines: 1, Processes: 1, Own: true},
		{Name: "uncontended-16", About: "16 goroutines, each with a key of its own", Kind: Cycles, Goroutines: 16, Processes: 1, Own: true},
		{Name: "uncontended-256", About: "256 goroutines, each with a key of its own", Kind: Cycles, Goroutines: 256, Processes: 1, Own: true},
		{Name: "uncontended-1000", About: "1,000 goroutines, each with a key of its own", Kind: Cycles, Goroutines: 1000, Processes: 1, Own: true},
		{Name: "hot-1", About: "1,000 goroutines of one process, one key", Kind: Cycles, Goroutines: 1000, Processes: 1},
		{Name: "hot-4", About: "4 processes of 250 goroutines, one key", Kind: Cycles, Goroutines: 1000, Processes: 4},
		{Name: "handover", About: "one process unlocks, another one that waits has it", Kind: Handover, Goroutines: 2, Processes: 2},
		{Name: "idle", About: "1,000 goroutines wait for a lock that another process holds", Kind: Idle, Goroutines: 1000, Processes: 1},
		{Name: "held", About: "10,000 leases held at once", Kind: Held, Goroutines: 10_000, Processes: 1, For: DefaultTTL / 3},
		{Name: "read-mostly", About: "4 processes of 25 goroutines, one read-write lock, 95 % reads", Kind: Cycles, Goroutines: 100, Processes: 4, Reads: 0.95},
		{Name: "sem", About: "4 processes of 25 goroutines, one semaphore of 10 permits", Kind: Cycles, Goroutines: 100, Processes: 4, Permits: 10},
		{Name: "linger", About: "one goroutine, a key of its own, kept for 20 ms after Unlock", Kind: Cycles, Goroutines: 1, Processes: 1, Own: true, Linger: 20 * time.Millisecond},
	}
}

// Target is one client over one store.
type Target struct {
	Client  string   // the name of its Opener
	Backend string   // the kind of store, for people
	URL     string   // for the Opener
	Count   []string // URLs of the servers whose counters tell the commands. nil: URL
	Sends   []string // names of Redis commands that the client sends by itself, and not only from scripts: "set"
	Skip    []string // names of cases that are not for this client
}

// Plan is what to measure, and how.
type Plan struct {
	Cases   []Case
	Targets []Target
	Openers map[string]Opener
	Rounds  int
	For     time.Duration // each round
	Warmup  time.Duration // before it
	Timeout time.Duration // to connect, and to answer questions
	Worker  []string      // the command that makes the calling program call Worker
	Profile string        // a folder for profiles, each made in a round that does not count. "": none

	Progress func(text string) // what is being done now. nil: nobody asks
	Note     func(text string) // what somebody should know. nil: nobody asks
}
