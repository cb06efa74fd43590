package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Run measures all cases, in order, each with all clients beside each other. A client that fails has its error in its
// Result, and the others go on. When ctx ends, what was done until then is returned, with the cause.
func (p *Plan) Run(ctx context.Context) ([]Result, error) {
	id := strings.ToLower(rand.Text()[:6])
	lost := p.reach(ctx)
	var all []Result
	for _, c := range p.Cases {
		type entrant struct {
			runner
			rounds []sample
			err    error
		}
		var es []*entrant
		for _, t := range p.Targets {
			if !slices.Contains(t.Skip, c.Name) {
				es = append(es, &entrant{runner: runner{Plan: p, t: t, c: c}})
			}
		}
		for _, e := range es {
			if e.err = lost[targetKey(e.t)]; e.err != nil {
				e.count = uncounted{}
				continue
			}
			var err error
			if e.count, err = newCounter(ctx, e.t, p.Timeout); err != nil {
				p.note("%s: its counters cannot be read, so commands are not counted: %v", e.t.Backend, err)
				e.count = uncounted{}
			}
		}
		for round := range p.Rounds {
			// Who is first changes: what one leaves behind in the store is not always the same one's burden.
			for i := range es {
				e := es[(i+round)%len(es)]
				if e.err != nil || ctx.Err() != nil {
					continue
				}
				p.progress("%s, round %d of %d: %s, %s", c.Name, round+1, p.Rounds, e.t.Backend, e.t.Client)
				// A key of its own for each round: what a client won with a request that was cut off it may never give back.
				e.key = fmt.Sprintf("bench:%s:%s:%d:%d", id, c.Name, (i+round)%len(es), round)
				s, err := e.measure(ctx)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					e.err = err
					if !errors.Is(err, ErrNone) {
						p.note("%s: %s, %s: failed: %v", c.Name, e.t.Backend, e.t.Client, err)
					}
				default:
					e.rounds = append(e.rounds, s)
				}
			}
		}
		for n, e := range es {
			if p.Profile != "" && c.Kind == Cycles && e.err == nil && ctx.Err() == nil {
				p.progress("%s: profiles of %s, %s", c.Name, e.t.Backend, e.t.Client)
				base := filepath.Join(p.Profile, fileName(c.Name+"."+e.t.Backend+"."+e.t.Client))
				for i, block := range []bool{false, true} {
					e.key = fmt.Sprintf("bench:%s:%s:profile:%d:%d", id, c.Name, n, i)
					if _, err := e.cycles(ctx, base, block); err != nil {
						p.note("%s: %s, %s: no profile: %v", c.Name, e.t.Backend, e.t.Client, err)
					}
				}
			}
			e.count.close()
			r := Result{Case: c.Name, Backend: e.t.Backend, Client: e.t.Client, Goroutines: c.Goroutines, Processes: c.Processes}
			r.fill(e.rounds)
			if e.err != nil && !errors.Is(e.err, ErrNone) {
				r.Error = e.err.Error()
			}
			if len(e.rounds) > 0 || r.Error != "" {
				all = append(all, r)
			}
		}
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
	}
	return all, nil
}

// fileName is text with a "-" for each character that some system does not allow in a file's name, or that a shell would split at.
func fileName(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-+@=", r) {
			return r
		}
		return '-'
	}, text)
}

// reach connects once for each target, and tells which cannot be used.
func (p *Plan) reach(ctx context.Context) map[[2]string]error {
	lost := map[[2]string]error{}
	for _, t := range p.Targets {
		p.progress("connect: %s, %s", t.Backend, t.Client)
		c := Case{Name: "reach", Kind: Cycles, Goroutines: 1, Processes: 1, Own: true}
		if len(p.Cases) > 0 {
			c.TTL = p.Cases[0].TTL
		}
		w, err := p.start(ctx, t, c, "bench:reach")
		if err == nil {
			w.end()
			continue
		}
		if ctx.Err() == nil && !errors.Is(err, ErrNone) {
			lost[targetKey(t)] = fmt.Errorf("cannot be used: %w", err)
			p.note("%s, %s cannot be used: %v", t.Backend, t.Client, err)
		}
	}
	return lost
}

func targetKey(t Target) [2]string { return [2]string{t.Client, t.URL} }

func (p *Plan) progress(format string, args ...any) {
	if p.Progress != nil {
		p.Progress(fmt.Sprintf(format, args...))
	}
}

func (p *Plan) note(format string, args ...any) {
	if p.Note != nil {
		p.Note(fmt.Sprintf(format, args...))
	}
}
