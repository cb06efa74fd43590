package zklock

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// Stranger is something in a lock's directory that pawl or the other clients of the lock cannot honour. pawl logs it and
// reports it to Options.OnStranger, once for each directory and kind of trouble.
type Stranger struct {
	Path    string // of the directory
	Node    string // the child's name
	Trouble string // what may go wrong, in a sentence
}

// strangers remembers what was reported.
type strangers struct {
	mu   sync.Mutex
	seen map[Stranger]bool // Node is empty
}

const (
	kazooTrouble = "kazoo's default lock and Curator do not see each other here, and kazoo does not see pawl: give kazoo's " +
		"Lock extra_lock_patterns=[\"-lock-\"], or both may hold the lock"
	orphanTrouble = "this is no contender's node: pawl passes over it, but Curator's clients count every child, and wait for " +
		"ever behind one whose name sorts before digits: do not put other nodes into a lock's directory"
	maxSeen = 1000
)

func (s *strangers) look(d *Driver, dir string, v view) {
	if len(v.strangers) > 0 {
		s.report(d, Stranger{dir, v.strangers[0], orphanTrouble})
	}
	for _, n := range v.nodes {
		if n.kazoo {
			s.report(d, Stranger{dir, n.name, kazooTrouble})
			return
		}
	}
}

func (s *strangers) report(d *Driver, x Stranger) {
	if strings.HasSuffix(x.Path, "/"+locksDir) && x.Trouble == kazooTrouble {
		x.Trouble = fmt.Sprintf("kazoo's Lock is used on the inside of a semaphore: %s", x.Trouble)
	}
	key := x
	key.Node = ""
	s.mu.Lock()
	known := s.seen[key]
	if s.seen == nil || len(s.seen) >= maxSeen {
		s.seen = map[Stranger]bool{}
	}
	s.seen[key] = true
	s.mu.Unlock()
	if known {
		return
	}
	d.spawn(func() {
		log := d.opts.Logger
		if log == nil {
			log = slog.Default()
		}
		log.Warn("zklock: a strange node in a lock's directory", "path", x.Path, "node", x.Node, "trouble", x.Trouble)
		if d.opts.OnStranger != nil {
			d.opts.OnStranger(x)
		}
	})
}
