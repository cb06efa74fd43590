package drivertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// run is one run of one rule: a fresh name, the drivers opened for it, and everybody who asked for something.
type run struct {
	h    Harness
	leaf leaf
	tb   testing.TB
	ctx  context.Context // ends long after any case should
	kind driver.Kind
	name string

	stretch int // of the short TTL
	cancel  context.CancelFunc
	drivers []driver.Driver
	askers  []*asker
	client  string
	ids     atomic.Int64
}

func newRun(t testing.TB, h Harness, l leaf) *run {
	c := &run{h: h, leaf: l, tb: t, kind: l.kind, client: uuid()}
	c.ctx, c.cancel = context.WithTimeout(context.Background(), time.Minute+20*h.MinTTL+2*h.Slack)
	c.name = c.freshName()
	return c
}

// end gives everything back and closes the drivers, also after a failure.
func (c *run) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, a := range c.askers {
		switch {
		case a.granted:
			a.d.Release(ctx, a.r.Hold, driver.End{})
		case a.place != nil && !a.left:
			a.place.Leave(ctx)
		}
	}
	for _, d := range c.drivers {
		d.Close()
	}
	c.cancel()
}

// failf ends the case and prints the rule that was broken.
func (c *run) failf(format string, args ...any) {
	c.tb.Helper()
	c.tb.Fatalf("%s: %s\n\trule %s: %s", c.kind, fmt.Sprintf(format, args...), c.leaf.Rule, c.leaf.Sentence)
}

// errorf is failf for goroutines of a case: it does not end the case.
func (c *run) errorf(format string, args ...any) {
	c.tb.Helper()
	c.tb.Errorf("%s: %s\n\trule %s: %s", c.kind, fmt.Sprintf(format, args...), c.leaf.Rule, c.leaf.Sentence)
}

// driver opens one more driver over the case's store: another process.
func (c *run) driver() driver.Driver {
	c.tb.Helper()
	d := c.h.Open(c.tb)
	c.drivers = append(c.drivers, d)
	return d
}

// pair opens two drivers: two processes.
func (c *run) pair() (driver.Driver, driver.Driver) {
	c.tb.Helper()
	return c.driver(), c.driver()
}

func (c *run) freshName() string { return "drivertest-" + uuid()[:13] }

// long is a TTL that no case outlives, short one that the slow cases wait for.
func (c *run) long() time.Duration  { return max(30*time.Second, 10*c.h.MinTTL) }
func (c *run) short() time.Duration { return c.h.MinTTL << c.stretch }

// soon is how long something may take that is due at once.
func (c *run) soon() time.Duration { return c.h.Slack + time.Millisecond }

// lateness is how long after a TTL a hold is surely over for a store that judges by its clock.
func (c *run) lateness() time.Duration {
	if c.fake() {
		return time.Millisecond
	}
	return 300 * time.Millisecond
}

// tick is how far two honest clocks may be apart: stores count whole milliseconds, and some only now and then.
func (c *run) tick() time.Duration {
	if c.fake() {
		return 0
	}
	return 10 * time.Millisecond
}

func (c *run) fake() bool { return c.h.Bubble != nil }

// pause is long enough to show that something does not happen.
func (c *run) pause() { time.Sleep(100 * time.Millisecond) }

// sleepOver sleeps until a hold that nobody renewed is surely over.
func (c *run) sleepOver(a *asker) {
	time.Sleep(a.at.Add(a.grant.TTL + c.lateness()).Until())
}

// inTime is for cases that must act before a short TTL is over. f answers false when the machine was too slow to say
// anything; it is then run again with twice the TTL.
func (c *run) inTime(f func() bool) {
	c.tb.Helper()
	for c.stretch = 0; c.stretch < 7; c.stretch++ {
		if f() {
			return
		}
		c.name = c.freshName()
	}
	c.failf("the machine is too slow even for a TTL of %v", c.short())
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (c *run) newID() string { return c.client + ":" + strconv.FormatInt(c.ids.Add(1), 10) }
