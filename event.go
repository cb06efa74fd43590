package pawl

import (
	"sync"
	"time"
)

// Event is one thing that happened to a lock.
type Event struct {
	Op    Op
	Name  string
	Group string        // Options.Group
	Token int64         // 0: none
	Took  time.Duration // Acquired, Failed: the wait. Released, Lost: the hold
	Err   error         // Failed, Lost, and a Released whose store did not confirm
}

// Op is what happened.
type Op string

// The events.
const (
	Acquired Op = "acquired" // a lease was taken, handed over inside the process, or attached; not when one was re-entered
	Failed   Op = "failed"   // a Lock or TryLock ended with Err
	Released Op = "released" // a lease was unlocked or detached; Err if the store did not confirm it
	Lost     Op = "lost"     // a lease was lost, for the reason in Err

	OutOfOrder Op = "out of order" // a lock was asked for that comes before one which its context already holds: a deadlock can follow
	Overrun    Op = "overrun"      // a leader still works a TTL after it was asked to stop
	JobFailed  Op = "job failed"   // a scheduled function answered Err
)

// events hands Events to one callback, in order, on a goroutine that lives while there are any.
type events struct {
	mu      sync.Mutex
	queue   []delivery
	running bool
}

type delivery struct {
	to func(Event)
	ev Event
}

// backlog bounds the memory that a callback which never returns can cost; events beyond it are dropped.
const backlog = 1 << 16

func (e *events) emit(o *Options, ev Event) {
	if o.OnEvent == nil {
		return
	}
	ev.Group = o.Group
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) >= backlog {
		return
	}
	e.queue = append(e.queue, delivery{o.OnEvent, ev})
	if !e.running {
		e.running = true
		go e.run()
	}
}

func (e *events) run() {
	for {
		e.mu.Lock()
		batch := e.queue
		e.queue = nil
		if len(batch) == 0 {
			e.running = false
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		for _, d := range batch {
			d.to(d.ev)
		}
	}
}
