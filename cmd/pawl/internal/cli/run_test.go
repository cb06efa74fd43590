package cli

import (
	"testing"
	"time"
)

func TestGrace(t *testing.T) {
	for _, c := range []struct {
		o      runOptions
		want   time.Duration
		capped bool
	}{
		{runOptions{ttl: 30 * time.Second}, 5 * time.Second, false},
		{runOptions{ttl: 10 * time.Second}, 2 * time.Second, false},
		{runOptions{ttl: 30 * time.Second, graced: true}, 0, false},
		{runOptions{ttl: 30 * time.Second, graced: true, killAfter: 10 * time.Second}, 10 * time.Second, false},
		{runOptions{ttl: 30 * time.Second, graced: true, killAfter: 11 * time.Second}, 10 * time.Second, true},
	} {
		if got, capped := c.o.grace(); got != c.want || capped != c.capped {
			t.Errorf("ttl %v, kill-after %v: grace %v, %v, want %v, %v", c.o.ttl, c.o.killAfter, got, capped, c.want, c.capped)
		}
	}
}

func TestOnLoss(t *testing.T) {
	for _, in := range []string{"term", "kill", "warn", "signal=SIGUSR1"} {
		var l onLoss
		if err := l.Set(in); err != nil || l.String() != in {
			t.Errorf("--on-loss %s is %s, %v", in, &l, err)
		}
	}
}
