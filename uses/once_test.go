package uses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// made is an order, by the process that made it.
type made struct {
	By    int
	Token int64
}

// onceProcess makes the order of each key that it is told, unless it was made: "quick key" at once, "slow key" when it is told to go on.
func onceProcess(w *worker) error {
	locks, err := w.open(ttl)
	if err != nil {
		return err
	}
	defer locks.Close()
	w.say("ready to go")
	for {
		text, ok := w.told()
		if !ok {
			return nil
		}
		how, key, _ := strings.Cut(text, " ")
		begin := time.Now()
	again:
		o, err := pawl.Once(context.Background(), locks, key, time.Hour, func(ctx context.Context) (made, error) {
			token := pawl.FromContext(ctx, key).Token()
			w.say("run %s %d", key, token)
			if how == "slow" {
				w.told()
			}
			return made{w.id, token}, nil
		})
		switch {
		case err == nil:
			b, err := json.Marshal(o)
			if err != nil {
				return err
			}
			w.say("got %s %s", key, b)
		case errors.Is(err, pawl.ErrLost), errors.Is(err, pawl.ErrUnknown):
			w.say("doubt %s", key)
		case time.Since(begin) < patience: // the server is down
			time.Sleep(20 * time.Millisecond)
			goto again
		default:
			return err
		}
	}
}

// once: four processes make orders. Each key has one run; that of a killed process is repeated, with a larger token; one that was stopped for
// longer than a TTL changes nothing; and a restart of the server leaves one answer for everybody.
func once(t *testing.T, b *backend) {
	ps := b.processes(t, 4, "once")
	for _, p := range ps {
		p.await(0, "ready")
	}
	runs := func(key string) (rs []line) {
		for _, l := range all(ps) {
			if l.is("run") && l.words[1] == key {
				rs = append(rs, l)
			}
		}
		return rs
	}
	// ask lets processes ask for a key; all must get one answer, which is answered.
	ask := func(key string, by []*process) string {
		t.Helper()
		ns := map[*process]int{}
		for _, p := range by {
			ns[p] = len(p.said())
			p.tell("quick " + key)
		}
		answer := ""
		for _, p := range by {
			got := ""
			within(t, fmt.Sprintf("process %d answers about %s; it said %v", p.id, key, p.said()), func() bool {
				for _, l := range p.said()[ns[p]:] {
					switch {
					case l.is("got") && l.words[1] == key:
						got = l.words[2]
					case l.is("doubt") && l.words[1] == key: // it was too slow to say
						ns[p] = len(p.said())
						p.tell("quick " + key)
					}
				}
				return got != ""
			})
			if answer != "" && got != answer {
				t.Errorf("%s: the answers %s and %s", key, answer, got)
			}
			answer = got
		}
		return answer
	}
	lost := func(key string) bool {
		for _, l := range all(ps) {
			if (l.is("lost") || l.is("doubt")) && l.words[1] == key {
				return true
			}
		}
		return false
	}

	for k := range 10 {
		key := fmt.Sprint("order", k)
		ask(key, ps)
		if rs := runs(key); len(rs) != 1 && !lost(key) {
			t.Errorf("%s was made %d times: %v", key, len(rs), rs)
		}
	}

	if b.memory == nil { // the holder is killed
		ps[0].tell("slow killed")
		first := ps[0].await(0, "run", "killed")
		ps[0].kill()
		ask("killed", ps[1:])
		rs := runs("killed")
		if last := rs[len(rs)-1]; len(rs) != 2 && !lost("killed") || last.number(2) <= first.number(2) {
			t.Errorf("after a killed run: %v", rs)
		}

		// The holder is stopped for longer than its TTL.
		ps[1].tell("slow stopped")
		ps[1].await(0, "run", "stopped")
		ps[1].stop()
		answer := ask("stopped", ps[2:])
		ps[1].cont()
		ps[1].tell("go on")
		ps[1].await(0, "doubt", "stopped")
		if got := ask("stopped", ps[1:]); got != answer {
			t.Errorf("the stopped run changed the answer %s to %s", answer, got)
		}
	}

	if b.restart != nil { // the server is killed under a run
		ps[1].tell("slow restart")
		run := ps[1].await(0, "run", "restart")
		b.restart()
		ps[1].tell("go on")
		var said line
		within(t, "the caller is told", func() bool {
			for _, l := range ps[1].said() {
				if (l.is("got") || l.is("doubt")) && l.words[1] == "restart" {
					said = l
				}
			}
			return said.words != nil
		})
		answer := ask("restart", ps[1:])
		if said.is("got") && said.words[2] != answer {
			t.Errorf("the caller was told %v of its run %v, and the others %s", said, run, answer)
		}
	}
	for _, p := range ps[1:] {
		p.finish()
	}
}
