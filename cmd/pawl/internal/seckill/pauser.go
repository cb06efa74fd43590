package seckill

import (
	"fmt"
	"time"
)

// How long a holder is stopped: longer than its TTL, and until somebody else has sold meanwhile, but not for ever.
const (
	shortestPause = 2 * pauseTTL
	longestPause  = 20 * time.Second
	lookAgain     = 100 * time.Millisecond
)

// pauser stops server processes between their read and their write, each of its levels once. It belongs to the crowd's
// goroutine.
type pauser struct {
	others func(p *process) bool // somebody may still buy at another server than p
	levels map[int]bool          // how many items were left when a holder is to be stopped
	paused map[*process]*pause
	over   chan *pause // a pause may end
}

type pause struct {
	p      *process
	from   time.Time
	others int // sold by others meanwhile
	timer  *time.Timer
}

func newPauser(levels []int) *pauser {
	z := &pauser{levels: map[int]bool{}, paused: map[*process]*pause{}, over: make(chan *pause, maxServers)}
	for _, l := range levels {
		z.levels[l] = true
	}
	return z
}

// ask is a server that would like to be stopped. If it is not to be, it is told to go on.
func (z *pauser) ask(p *process, left int) error {
	if !z.levels[left] {
		p.box.put(frame{op: opResume}, nil)
		return nil
	}
	delete(z.levels, left)
	if err := stopProcess(p.cmd.Process); err != nil {
		return fmt.Errorf("stop server %d: %w", p.number, err)
	}
	s := &pause{p: p, from: time.Now()}
	z.paused[p] = s
	s.timer = time.AfterFunc(shortestPause, func() { z.over <- s })
	return nil
}

// sold tells that a server has sold something.
func (z *pauser) sold(by *process) {
	for p, s := range z.paused {
		if p != by {
			s.others++
		}
	}
}

// resume lets a server go on whose time is over, unless nobody has sold meanwhile and somebody still may.
func (z *pauser) resume(s *pause) error {
	if s.others == 0 && time.Since(s.from) < longestPause && z.others(s.p) {
		s.timer.Reset(lookAgain)
		return nil
	}
	delete(z.paused, s.p)
	if err := continueProcess(s.p.cmd.Process); err != nil {
		return fmt.Errorf("continue server %d: %w", s.p.number, err)
	}
	s.p.box.put(frame{op: opResume}, nil)
	return nil
}

// stop forgets all timers.
func (z *pauser) stop() {
	for _, s := range z.paused {
		s.timer.Stop()
	}
}

// pauseLevels are the instants, in items left, at which a holder is stopped: at about three quarters, a half and a
// quarter of the stock.
func pauseLevels(stock int) []int {
	var levels []int
	for _, quarter := range []int{3, 2, 1} {
		l := max(1, stock*quarter/4)
		if len(levels) == 0 || levels[len(levels)-1] != l {
			levels = append(levels, l)
		}
	}
	return levels
}
