package uses

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// electionProcess is a candidate. While it leads it says so every few milliseconds, as one who does things.
func electionProcess(w *worker) error {
	locks, err := w.open(ttl)
	if err != nil {
		return err
	}
	ctx := w.until()
	w.say("ready to go")
	err = locks.Election("leader").Run(ctx, strconv.Itoa(w.id), func(ctx context.Context) error {
		term := pawl.FromContext(ctx, "leader").Token()
		w.say("start %d", term)
		for ctx.Err() == nil {
			w.say("lead %d", term)
			time.Sleep(10 * time.Millisecond)
		}
		w.say("stop %d", term)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return locks.Close()
}

// election: four candidates. The leader is killed, the next is stopped for longer than a TTL, the server is killed and started again, and
// the last leader resigns. Terms rise, each start has one stop, and nobody leads while another does, but for the moment in which the
// stopped one goes on: what it does then has the smaller term.
func election(t *testing.T, b *backend) {
	ps := b.processes(t, 4, "election")
	for _, p := range ps {
		p.await(0, "ready")
	}
	leader := func(after int64) (*process, int64) {
		t.Helper()
		var who *process
		var term int64
		within(t, "somebody leads with a term beyond "+strconv.FormatInt(after, 10), func() bool {
			for _, p := range ps {
				for _, l := range p.said() {
					if l.is("start") && l.number(1) > max(term, after) {
						who, term = p, l.number(1)
					}
				}
			}
			return who != nil
		})
		return who, term
	}
	var dead, paused *process
	var pausedTerm int64
	a, term := leader(0)
	if b.memory == nil {
		a.kill()
		dead = a
		a, term = leader(term)
		a.stop()
		paused, pausedTerm = a, term
		a, term = leader(term)
		paused.cont()
		paused.await(0, "stop", strconv.FormatInt(pausedTerm, 10)) // it learns it by itself
	}
	if b.restart != nil {
		b.restart()
		n := len(all(ps))
		within(t, "somebody leads after the restart", func() bool {
			for _, l := range all(ps)[n:] {
				if l.is("lead") {
					return true
				}
			}
			return false
		})
		a, term = leader(term - 1)
	}
	a.finish()
	next, _ := leader(term)
	for _, p := range ps {
		if p != dead && p != a {
			p.finish()
		}
	}
	if next == a {
		t.Error("the one that resigned leads again")
	}

	// What was said. A leader that lost its term may be late to say so, by as much as the machine keeps it from running; and it may be
	// between its last look at the context and what it does then. Only the term protects from that, so one such act is let pass.
	last := map[int]int64{} // the running term of each process; 0: none
	lost := map[int]bool{}
	late := map[int64]int{}
	var newest int64
	for _, l := range all(ps) {
		switch l.words[0] {
		case "start":
			term := l.number(1)
			if term <= newest {
				t.Errorf("the term %d is followed by %d", newest, term)
			}
			newest = term
			if last[l.id] != 0 {
				t.Errorf("process %d starts %d and has not stopped %d", l.id, term, last[l.id])
			}
			for id, other := range last {
				if other != 0 && !lost[id] && (dead == nil || id != dead.id) && !(paused != nil && id == paused.id && other == pausedTerm) {
					t.Errorf("the term %d begins while %d of process %d is not over", term, other, id)
				}
			}
			last[l.id], lost[l.id] = term, false
		case "lost":
			lost[l.id] = true
		case "lead":
			if l.number(1) != last[l.id] {
				t.Errorf("process %d leads in the term %d, but started %d", l.id, l.number(1), last[l.id])
			}
			if term := l.number(1); term < newest && term != pausedTerm {
				late[term]++
			}
			if term := l.number(1); late[term] > 1 {
				t.Errorf("process %d acts in the term %d after %d has begun", l.id, term, newest)
			}
		case "stop":
			if l.number(1) != last[l.id] {
				t.Errorf("process %d stops %d, but started %d", l.id, l.number(1), last[l.id])
			}
			last[l.id] = 0
		}
	}
	for id, term := range last {
		if term != 0 && (dead == nil || id != dead.id) {
			t.Errorf("process %d has not stopped %d", id, term)
		}
	}
}
