package uses

import (
	"testing"
	"time"
)

// holderProcess takes a lock, says so, and keeps it until it is told to give it back; again and again.
func holderProcess(w *worker) error {
	locks, err := w.open(ttl)
	if err != nil {
		return err
	}
	defer locks.Close()
	w.say("ready to go")
	for {
		if _, ok := w.told(); !ok {
			return nil
		}
		l, err := w.lock(locks.Mutex("holder"))
		if err != nil {
			return err
		}
		w.say("held %d", l.Token())
		if _, ok := w.told(); !ok {
			return nil
		}
		if l.Err() == nil {
			w.say("gives %d", l.Token())
		}
		l.Unlock()
		w.say("released %d", l.Token())
	}
}

// holder: four processes want a lock. Its holder is killed, then the next is stopped for longer than a TTL, then the server is killed
// and started again. Each time the next one gets it, with a larger token, and not before it was given back or lost.
func holder(t *testing.T, b *backend) {
	ps := b.processes(t, 4, "holder")
	for _, p := range ps {
		p.await(0, "ready")
	}
	ps[0].tell("lock")
	token := ps[0].await(0, "held").number(1)
	if b.memory == nil {
		ps[0].kill()
		killed := time.Now()
		ps[1].tell("lock")
		l := ps[1].await(0, "held")
		if l.number(1) <= token {
			t.Errorf("the token %d is followed by %d", token, l.number(1))
		}
		token = l.number(1)
		t.Logf("killed: the next held after %v", l.at.Sub(killed))

		ps[1].stop()
		stopped := time.Now()
		ps[2].tell("lock")
		l = ps[2].await(0, "held")
		if l.number(1) <= token {
			t.Errorf("the token %d is followed by %d", token, l.number(1))
		}
		t.Logf("stopped: the next held after %v", l.at.Sub(stopped))
		ps[1].cont()
		ps[1].await(0, "lost", "holder") // it is told when it goes on
		token = l.number(1)
	} else {
		ps[2].tell("lock")
		ps[0].tell("unlock")
		token = ps[2].await(0, "held").number(1)
	}
	n := len(ps[2].said())
	if b.restart != nil {
		b.restart()
		// The hold may have outlived the server, or not; then it was told.
		ps[2].tell("unlock")
		ps[2].await(n, "released")
	} else {
		ps[2].tell("unlock")
	}
	ps[3].tell("lock")
	l := ps[3].await(0, "held")
	if l.number(1) <= token {
		t.Errorf("after a restart, the token %d is followed by %d", token, l.number(1))
	}
	ps[2].await(n, "released")
	for _, gives := range ps[2].said()[n:] {
		if gives.is("gives") && !gives.at.Before(l.at) {
			t.Errorf("the next one held %v before the lease was given back", gives.at.Sub(l.at))
		}
	}
	ps[3].tell("unlock")
	ps[3].await(0, "released")
	ps[2].finish()
	ps[3].finish()
}
