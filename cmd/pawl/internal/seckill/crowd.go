package seckill

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// How long a buyer who was told "busy, try again" waits before pressing again: longer each time, up to the last.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// stall is how long nobody may be served before the sale is given up as stuck.
const stall = 60 * time.Second

// crowd is all buyers of one sale, in one goroutine: they come, hear an answer, press again.
type crowd struct {
	clicks   []click
	state    []buyerState // of each click
	next     int          // the first click that has not come yet
	again    retries
	balancer *balancer
	news     chan news
	pauser   *pauser
	progress func(done, sold int)

	began   time.Time
	served  time.Time // when somebody was served last
	done    int
	sold    int
	latency *hdrhistogram.Histogram // µs from the first press to the last answer
	errors  int
	lastErr string
}

type buyerState struct {
	came  time.Duration
	tries uint16
}

func newCrowd(cs []click, servers []*process, n chan news, p *pauser, progress func(done, sold int)) *crowd {
	c := &crowd{
		clicks: cs, state: make([]buyerState, len(cs)), balancer: &balancer{servers: servers}, news: n, pauser: p, progress: progress,
		latency: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
	}
	p.others = c.others
	return c
}

// buy runs the sale until everybody has a final answer. A buyer who hears "busy" presses again until there is one: so a
// strategy that turns people away still finds a buyer for every item.
func (c *crowd) buy(ctx context.Context) error {
	c.began = time.Now()
	c.served = c.began
	timer := time.NewTimer(0)
	defer timer.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for c.done < len(c.clicks) {
		timer.Reset(c.press())
		select {
		case n := <-c.news:
			if err := c.hear(n); err != nil {
				return err
			}
			for more := true; more; {
				select {
				case n := <-c.news:
					if err := c.hear(n); err != nil {
						return err
					}
				default:
					more = false
				}
			}
		case <-timer.C:
		case p := <-c.pauser.over:
			if err := c.pauser.resume(p); err != nil {
				return err
			}
		case <-tick.C:
			c.progress(c.done, c.sold)
			if c.waiting() && time.Since(c.served) > stall {
				return fmt.Errorf("nobody was served for %v%s", stall, c.why())
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.progress(c.done, c.sold)
	return nil
}

func (c *crowd) waiting() bool {
	n := len(c.again)
	for _, p := range c.balancer.servers {
		n += p.inFlight
	}
	return n > 0
}

// others reports whether a buyer may be served by another server than one that is paused.
func (c *crowd) others(not *process) bool {
	for _, p := range c.balancer.servers {
		if c.pauser.paused[p] == nil && p != not && (p.inFlight > 0 || len(c.again) > 0 || c.next < len(c.clicks)) {
			return true
		}
	}
	return false
}

func (c *crowd) why() string {
	if c.lastErr == "" {
		return ""
	}
	return ": " + c.lastErr
}

// press sends what is due, as far as the servers have room: those who press again and those who come for the first time
// in turn. It answers how long to sleep if nothing is heard.
func (c *crowd) press() time.Duration {
	const idle = time.Hour // the servers will answer
	now := time.Since(c.began)
	for {
		wait := idle
		pressed := false
		if len(c.again) > 0 {
			r := c.again[0]
			if r.at > now {
				wait = min(wait, r.at-now)
			} else if !c.balancer.send(r.id, c.clicks[r.id].buyer) {
				return idle
			} else {
				heap.Pop(&c.again)
				pressed = true
			}
		}
		if c.next < len(c.clicks) {
			id := uint32(c.next)
			k := c.clicks[id]
			if k.at > now {
				wait = min(wait, k.at-now)
			} else {
				if !c.waiting() {
					c.served = time.Now() // the shop was idle, not stuck
				}
				if !c.balancer.send(id, k.buyer) {
					return idle
				}
				came := k.at // of an open queue the wait at the door counts
				if came == 0 {
					came = now
				}
				c.state[id].came = came
				c.next++
				pressed = true
			}
		}
		if !pressed {
			return wait
		}
	}
}

func (c *crowd) hear(n news) error {
	now := time.Since(c.began)
	for _, f := range n.frames {
		switch f.op {
		case opAnswer:
			n.from.inFlight--
			c.answer(n.from, f.id, answer(f.arg), now)
		case opError:
			c.errors++
			c.lastErr = n.text
		case opPause:
			if err := c.pauser.ask(n.from, int(f.arg)); err != nil {
				return err
			}
		}
	}
	if n.err != nil {
		return n.from.died(n.err)
	}
	return nil
}

func (c *crowd) answer(from *process, id uint32, a answer, now time.Duration) {
	s := &c.state[id]
	switch a {
	case busy, failed:
		pause := min(firstRetry<<min(s.tries, 10), lastRetry)
		s.tries++
		heap.Push(&c.again, retry{now + pause/2 + rand.N(pause), id})
		return
	case bought:
		c.sold++
		c.pauser.sold(from)
	}
	c.done++
	c.served = time.Now()
	c.latency.RecordValue(int64((now - s.came) / time.Microsecond))
}

// retry is a buyer who presses again at an instant.
type retry struct {
	at time.Duration
	id uint32
}

type retries []retry

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at < r[j].at }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(retry)) }
func (r *retries) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}
