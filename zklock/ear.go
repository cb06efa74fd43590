package zklock

import (
	"sync"

	"github.com/pawl-lock/pawl/driver"
)

// ear is the Notify of a request. After deafen has returned, nothing is told any more.
type ear struct {
	notify func(driver.Signal)

	mu   sync.Mutex // held while notify runs
	deaf bool
}

func (e *ear) tell(s driver.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.deaf {
		e.notify(s)
	}
}

func (e *ear) changed() { e.tell(driver.Changed) }

func (e *ear) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
}
