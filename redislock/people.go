package redislock

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// people knows who the clients behind the owner strings are. Each of pawl's clients describes itself in one key, so a
// client without one is of another make.
type people struct {
	lanes *lanes

	mu    sync.Mutex
	ours  map[string]*self
	known map[string]person
}

type self struct {
	who     driver.Holder
	written time.Time
	wake    string // the channel of its waiting places
}

type person struct {
	who   driver.Holder
	pawl  bool
	until time.Time // when to look again
}

const (
	whoLife    = 15 * time.Minute // of the key
	whoRefresh = 5 * time.Minute
	whoAgain   = time.Second // before a client that was not described is looked up again
	whoMost    = 10_000      // descriptions kept in memory
)

func newPeople(l *lanes) *people {
	return &people{lanes: l, ours: map[string]*self{}, known: map[string]person{}}
}

// here says that who asks with this ID, and describes it in the store if that was not done lately. It answers the channel on
// which the client's waiting places are called.
func (p *people) here(id string, who driver.Holder) (wake string) {
	c, now := client(id), time.Now()
	p.mu.Lock()
	s := p.ours[c]
	if s == nil {
		if len(p.ours) > whoMost {
			clear(p.ours)
		}
		s = &self{wake: wakePrefix + c}
		p.ours[c] = s
	}
	wake = s.wake
	age := now.Sub(s.written)
	if age < whoAgain || age < whoRefresh && s.who == who {
		p.mu.Unlock()
		return wake
	}
	s.who, s.written = who, now
	p.mu.Unlock()
	p.write(c, who)
	return wake
}

// refresh keeps the description alive while the client does nothing but renew.
func (p *people) refresh(id string) {
	c, now := client(id), time.Now()
	p.mu.Lock()
	s := p.ours[c]
	if s == nil || now.Sub(s.written) < whoRefresh {
		p.mu.Unlock()
		return
	}
	s.written = now
	who := s.who
	p.mu.Unlock()
	p.write(c, who)
}

// whoRecord is what the key holds, for people to read.
type whoRecord struct {
	Label string `json:"label,omitempty"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Note  string `json:"note,omitempty"`
}

func (p *people) write(client string, who driver.Holder) {
	text, err := json.Marshal(whoRecord{who.Label, who.Host, who.PID, who.Note})
	if err != nil {
		return // four plain fields always marshal
	}
	p.lanes.post([]string{whoPrefix + client}, "SET", string(text), "PX", strconv.FormatInt(whoLife.Milliseconds(), 10))
}

// ask says who the clients of these owner strings are, and whether all of them are pawl's. What it does not know yet it
// asks the store; who cannot be found out counts as a stranger.
func (p *people) ask(ctx context.Context, owners ...string) (map[string]person, bool) {
	out := make(map[string]person, len(owners))
	all := true
	var look []string
	now := time.Now()
	p.mu.Lock()
	for _, o := range owners {
		c := client(o)
		if c == "?" {
			all = false
			continue
		}
		if _, seen := out[c]; seen {
			continue
		}
		if s := p.ours[c]; s != nil {
			out[c] = person{who: s.who, pawl: true}
		} else if k, ok := p.known[c]; ok && now.Before(k.until) {
			out[c] = k
			all = all && k.pawl
		} else {
			out[c] = person{}
			look = append(look, c)
		}
	}
	p.mu.Unlock()
	if len(look) == 0 {
		return out, all
	}
	found := make([]person, len(look))
	var wg sync.WaitGroup
	for i, c := range look {
		if i == len(look)-1 {
			found[i] = p.lookup(ctx, c)
			break
		}
		wg.Go(func() { found[i] = p.lookup(ctx, c) })
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known)+len(look) > whoMost {
		clear(p.known)
	}
	for i, c := range look {
		out[c] = found[i]
		all = all && found[i].pawl
		if !found[i].until.IsZero() {
			p.known[c] = found[i]
		}
	}
	return out, all
}

func (p *people) lookup(ctx context.Context, client string) person {
	msg, err := p.lanes.run(ctx, minLimit, request{keys: []string{whoPrefix + client}, args: []string{"GET"}})
	if err != nil {
		return person{}
	}
	text, err := msg.ToString()
	if err != nil {
		return person{until: time.Now().Add(whoAgain)}
	}
	var r whoRecord
	if json.Unmarshal([]byte(text), &r) != nil {
		r = whoRecord{}
	}
	return person{driver.Holder{Label: r.Label, Host: r.Host, PID: r.PID, Note: r.Note}, true, time.Now().Add(whoRefresh)}
}
