package seckill

import (
	"testing"
	"time"
)

// A shop that serves nobody is stuck, even if new buyers still come; one to which nobody comes is not.
func TestStuckIsNotIdle(t *testing.T) {
	p := &process{box: &outbox{}}
	p.box.more.L = &p.box.mu
	c := newCrowd([]click{{buyer: 1}, {buyer: 2}, {buyer: 3}}, []*process{p}, nil, newPauser(nil), nil)
	long := time.Now().Add(-time.Hour)
	c.began, c.served = long, long
	c.press()
	if time.Since(c.served) > stall {
		t.Error("the first buyer after a quiet hour found a shop that counts as stuck")
	}
	c.clicks, c.state = append(c.clicks, click{buyer: 4}), append(c.state, buyerState{})
	c.served = long
	c.press()
	if c.next != 4 || time.Since(c.served) < stall {
		t.Errorf("%d buyers came, and the shop, which has served none of them for an hour, counts as served %v ago", c.next, time.Since(c.served))
	}
}
