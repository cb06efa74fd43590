package drivertest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// asker is one request: its place, what it heard, and its grant.
type asker struct {
	*ears
	c       *run
	d       driver.Driver
	r       driver.Request
	place   driver.Place
	grant   driver.Grant
	at      driver.Instant // when the grant was answered
	sent    driver.Instant // before the last confirmation was asked for
	again   time.Duration  // HeldError.Again of the last refusal
	granted bool
	left    bool
}

// ask makes a request through d for the case's name and kind, with a long TTL, and enters it. The changes are made to the
// request before it is sent.
func (c *run) ask(d driver.Driver, changes ...func(*driver.Request)) *asker {
	c.tb.Helper()
	a := c.request(d, changes...)
	p, err := d.Enter(c.ctx, a.r)
	if err != nil {
		c.failf("Enter: %v", err)
	}
	a.place = p
	return a
}

// request is ask without Enter.
func (c *run) request(d driver.Driver, changes ...func(*driver.Request)) *asker {
	a := c.newAsker(d, changes...)
	c.askers = append(c.askers, a)
	return a
}

func (c *run) newAsker(d driver.Driver, changes ...func(*driver.Request)) *asker {
	a := &asker{c: c, d: d, ears: &ears{ring: make(chan struct{}, 1)}}
	a.r = driver.Request{
		Hold:   driver.Hold{Kind: c.kind, Name: c.name, ID: c.newID(), Permits: 1, TTL: c.long()},
		Who:    driver.Holder{Label: "drivertest", Host: "host", PID: 7, Note: "note"},
		Notify: a.ears.notify,
	}
	for _, change := range changes {
		change(&a.r)
	}
	if a.r.Kind == driver.Permits && a.r.Limit == 0 {
		a.r.Limit = 1
	}
	if a.r.Kind == driver.Leader && a.r.Value == nil {
		a.r.Value = []byte("leader " + a.r.ID)
	}
	return a
}

// Changes to a request.
func waits(r *driver.Request) { r.Wait = true }
func as(k driver.Kind) func(*driver.Request) {
	return func(r *driver.Request) { r.Kind = k }
}
func named(name string) func(*driver.Request) {
	return func(r *driver.Request) { r.Name = name }
}
func lasting(ttl time.Duration) func(*driver.Request) {
	return func(r *driver.Request) { r.TTL = ttl }
}
func permits(n, limit int) func(*driver.Request) {
	return func(r *driver.Request) { r.Permits, r.Limit = n, limit }
}

// try makes one attempt for span tokens and remembers a grant.
func (a *asker) try(span int) error {
	g, err := a.place.Try(a.c.ctx, span)
	if err == nil {
		a.took(g)
	}
	return err
}

func (a *asker) took(g driver.Grant) {
	a.grant, a.granted, a.r.Hold.Token = g, true, g.Token
	a.at, a.sent = driver.Now(), g.Sent
}

// mustGet takes the hold now.
func (a *asker) mustGet() *asker {
	a.c.tb.Helper()
	return a.mustGetSpan(1)
}

func (a *asker) mustGetSpan(span int) *asker {
	a.c.tb.Helper()
	if err := a.try(span); err != nil {
		a.c.failf("%s should have been granted, got: %s", a.what(), say(err))
	}
	return a
}

// mustNotGet tries and wants a *HeldError.
func (a *asker) mustNotGet() *driver.HeldError {
	a.c.tb.Helper()
	err := a.try(1)
	if err == nil {
		a.c.failf("%s was granted although the name is taken", a.what())
	}
	var held *driver.HeldError
	if !errors.As(err, &held) || !errors.Is(err, driver.ErrHeld) {
		a.c.failf("%s should have been refused with a *HeldError, got: %s", a.what(), say(err))
	}
	a.again = held.Again
	return held
}

// mustGetWithin does what a client does: it tries, and comes back when it is told to, or when the holder's time is over.
func (a *asker) mustGetWithin(limit time.Duration) *asker {
	a.c.tb.Helper()
	if err := a.getWithin(limit); err != nil {
		a.c.failf("%s should have been granted within %v, got: %s", a.what(), limit, say(err))
	}
	return a
}

func (a *asker) getWithin(limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		err := a.try(1)
		var held *driver.HeldError
		if err == nil || !errors.As(err, &held) {
			return err
		}
		left := time.Until(end)
		if left < 0 {
			return err
		}
		next := a.c.short() / 4
		if held.Remaining > 0 {
			next = min(next, held.Remaining)
		}
		if held.Again > 0 {
			next = min(next, held.Again)
		}
		a.waitRing(min(max(next, time.Millisecond), left+1))
	}
}

// release gives the hold back.
func (a *asker) release() {
	a.c.tb.Helper()
	a.releaseWith(driver.End{})
}

func (a *asker) releaseWith(end driver.End) {
	a.c.tb.Helper()
	if err := a.d.Release(a.c.ctx, a.r.Hold, end); err != nil {
		a.c.failf("Release by the holder: %s", say(err))
	}
	a.granted, a.left = false, true
}

// leave gives the place up.
func (a *asker) leave() {
	a.c.tb.Helper()
	if err := a.place.Leave(a.c.ctx); err != nil {
		a.c.failf("Leave: %s", say(err))
	}
	a.granted, a.left = false, true
}

// trust is the instant until which a client trusts the hold.
func (a *asker) trust() driver.Instant { return a.sent.Add(a.grant.TTL) }

// alive reports whether the store still has to keep the hold, so that its end would be a fault.
func (a *asker) alive() bool { return driver.Now() < a.trust() }

// renew renews the hold, and answers what the driver said.
func (a *asker) renew() error {
	a.c.tb.Helper()
	sent := driver.Now()
	err := renewOne(a.c, a.d, a.r.Hold)
	if err == nil {
		a.sent = sent
	}
	return err
}

// mustHold wants the store to confirm the hold. When it was asked too late, its answer says nothing.
func (a *asker) mustHold() {
	a.c.tb.Helper()
	before := a.trust()
	if err := a.renew(); err != nil && driver.Now() < before {
		a.c.failf("the holder's Renew: %s", say(err))
	}
}

// renewFor keeps the hold for d. It answers false when it came too late itself.
func (a *asker) renewFor(d time.Duration) bool {
	a.c.tb.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(a.grant.TTL / 4)
		before := a.trust()
		err := a.renew()
		if driver.Now() >= before {
			return false
		}
		if err != nil {
			a.c.failf("a renewal in time: %s", say(err))
		}
	}
	return true
}

// rival asks for something that cannot be had beside the case's own kind.
func (c *run) rival(d driver.Driver, changes ...func(*driver.Request)) *asker {
	c.tb.Helper()
	k := c.kind
	if k == driver.Read {
		k = driver.Write
	}
	return c.ask(d, append([]func(*driver.Request){as(k)}, changes...)...)
}

// die takes the name with a short TTL, and its process ends without a word.
func (c *run) die() *asker {
	c.tb.Helper()
	return c.dieWith(1)
}

func (c *run) dieWith(span int) *asker {
	c.tb.Helper()
	a := c.ask(c.driver(), lasting(c.short())).mustGetSpan(span)
	a.vanish()
	return a
}

// vanish ends the process of a.
func (a *asker) vanish() {
	a.d.Close()
	a.granted, a.left = false, true
}

// giveBack releases what is held, and does not mind if it is over.
func (c *run) giveBack(a *asker) {
	if a.granted {
		a.granted, a.left = false, true
		a.d.Release(c.ctx, a.r.Hold, driver.End{})
	}
}

func renewOne(c *run, d driver.Driver, h driver.Hold) error {
	c.tb.Helper()
	errs := d.Renew(c.ctx, []driver.Hold{h})
	if len(errs) != 1 {
		c.failf("Renew of one hold answered %d errors", len(errs))
	}
	return errs[0]
}

func (a *asker) what() string { return fmt.Sprintf("a request for %q as %s", a.r.Name, a.r.Kind) }

// say prints an error with the facts that a HeldError carries beside its text.
func say(err error) string {
	var held *driver.HeldError
	if errors.As(err, &held) {
		return fmt.Sprintf("%v (by %q, remaining %v, ahead %d, again %v)", err, held.By.ID, held.Remaining, held.Ahead, held.Again)
	}
	return fmt.Sprint(err)
}

// ears hear what the driver reports to one request.
type ears struct {
	ring chan struct{} // something new was heard

	mu    sync.Mutex
	heard [4]int // by Signal
	deaf  bool   // nothing more may come
	late  int    // what came all the same
}

func (e *ears) notify(s driver.Signal) {
	e.mu.Lock()
	if e.deaf {
		e.late++
	}
	if int(s) < len(e.heard) {
		e.heard[s]++
	}
	e.mu.Unlock()
	select {
	case e.ring <- struct{}{}:
	default:
	}
}

// count says how often a signal was heard.
func (e *ears) count(s driver.Signal) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[s]
}

// forget starts the counts anew.
func (e *ears) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = [4]int{}
}

// hear waits until a signal was heard since the last forget.
func (e *ears) hear(s driver.Signal, within time.Duration) bool {
	end := time.Now().Add(within)
	for e.count(s) == 0 {
		left := time.Until(end)
		if left <= 0 {
			return e.count(s) > 0
		}
		e.waitRing(left)
	}
	return true
}

func (e *ears) waitRing(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-e.ring:
	case <-t.C:
	}
}

// stopEars marks that nothing may come any more; lateSignals counts what came since.
func (e *ears) stopEars() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
}

func (e *ears) lateSignals() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.late
}
