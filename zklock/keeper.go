package zklock

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

// hold is a hold that this driver got, and what is in the store for it.
type hold struct {
	driver.Hold
	dir     string
	role    role
	nodes   []node // one, or one for each permit
	session int64
	timeout time.Duration // of the session, when it was granted
	listed  *zk.Stat      // the directory when the grant was decided; nil: not known
	ear     *ear

	alone *wireConn // on which its only node was created alone in the directory; nil: it was not, or that is not known
	tally *tally

	// under keeper.mu
	deadline driver.Instant // unless renewed, it is over then
	ending   bool           // its nodes are to be deleted: it cannot be renewed any more
	kept     bool           // it was released, and keeps the name taken until the deadline
}

func (h *hold) path(n node) string { return h.dir + "/" + n.name }

// keeper knows all holds of a driver and ends each that nobody renewed, since the session, which all share, lives on. It
// also pays the debts of the driver: nodes that could not be deleted when they should have been. One goroutine serves all.
type keeper struct {
	d *Driver

	mu      sync.Mutex
	holds   map[string]*hold // by ID
	debts   map[debtor]struct{}
	next    driver.Instant // when the goroutine looks again
	running bool
	over    driver.Instant // when the driver was closed, 0: it is open: the goroutine ends with the last hold and debt
	stopped bool           // and at once
	wake    chan struct{}
	runs    sync.WaitGroup
}

// debtor owes the store the deletion of something.
type debtor interface {
	undo(ctx context.Context) error
}

const debtEvery = 250 * time.Millisecond

func (k *keeper) init(d *Driver) {
	k.d = d
	k.holds, k.debts = map[string]*hold{}, map[debtor]struct{}{}
	k.wake = make(chan struct{}, 1)
}

func (k *keeper) add(h *hold) {
	k.mu.Lock()
	k.holds[h.ID] = h
	k.look(h.deadline)
	k.mu.Unlock()
}

func (k *keeper) owe(x debtor) {
	k.mu.Lock()
	k.debts[x] = struct{}{}
	k.look(driver.Now().Add(debtEvery))
	k.mu.Unlock()
}

// look makes the goroutine look at the instant or before. It is called under mu.
func (k *keeper) look(at driver.Instant) {
	if !k.running && !k.stopped {
		k.running = true
		k.next = at
		k.d.spawn(k.d.watchSession)
		k.runs.Go(k.run)
		return
	}
	if at < k.next {
		k.next = at
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// get is the live hold of that ID.
func (k *keeper) get(id string) *hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holds[id]
}

// take marks a hold as ending, so that no renewal and no deadline interferes. It answers nil if it is not there, not of
// that token, or ending already for a reason of its own.
func (k *keeper) take(h driver.Hold) *hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.holds[h.ID]
	if x == nil || x.kept || x.Name != h.Name || x.Kind.Family() != h.Kind.Family() || h.Token != 0 && h.Token != x.Token {
		return nil
	}
	x.ending = true
	return x
}

// endNow makes the keeper delete a hold whose release had no answer.
func (k *keeper) endNow(h *hold) {
	k.mu.Lock()
	if k.holds[h.ID] == h {
		h.deadline = driver.Now()
		k.look(h.deadline)
	}
	k.mu.Unlock()
}

func (k *keeper) drop(h *hold) {
	k.mu.Lock()
	if k.holds[h.ID] == h {
		delete(k.holds, h.ID)
	}
	k.mu.Unlock()
}

// endSessions drops the holds of all sessions but the live one, and tells them. The live one is read under mu: a hold that
// is in the map then was granted in that session or in one before it.
func (k *keeper) endSessions(closed bool) {
	var lost []*hold
	k.mu.Lock()
	live := k.d.conn.SessionID()
	if closed {
		live = 0
	}
	for id, h := range k.holds {
		if h.session != live {
			delete(k.holds, id)
			lost = append(lost, h)
		}
	}
	k.mu.Unlock()
	for _, h := range lost {
		h.ear.tell(driver.Lost)
	}
}

func (k *keeper) empty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.holds) == 0
}

// closed lets the goroutine end when it has nothing left to do.
func (k *keeper) closed() {
	k.mu.Lock()
	k.over = driver.Now()
	k.mu.Unlock()
	k.poke()
}

// quit ends it now: the connection is gone.
func (k *keeper) quit() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	k.poke()
	k.runs.Wait()
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due []*hold
		var debts []debtor
		now := driver.Now()
		k.mu.Lock()
		if k.over != 0 {
			k.giveUp(now)
		}
		if k.stopped || k.over != 0 && len(k.holds) == 0 && len(k.debts) == 0 {
			k.running = false
			k.mu.Unlock()
			return
		}
		if now >= k.next {
			k.next = driver.Instant(math.MaxInt64)
			for _, h := range k.holds {
				if h.deadline <= now {
					h.ending = true
					due = append(due, h)
				} else {
					k.next = min(k.next, h.deadline)
				}
			}
			for x := range k.debts {
				debts = append(debts, x)
			}
		}
		k.mu.Unlock()
		if len(due) > 0 || len(debts) > 0 {
			k.settle(due, debts)
			continue
		}
		k.mu.Lock()
		if len(k.debts) > 0 {
			k.next = min(k.next, driver.Now().Add(debtEvery))
		}
		wait := k.next.Until()
		k.mu.Unlock()
		timer.Reset(max(wait, 0))
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// giveUp drops, once the driver is closed and watches its session no more, what a session that is over had: because there
// is another one now, or because nothing was heard of the ensemble for so long. It is called under mu.
func (k *keeper) giveUp(now driver.Instant) {
	live := k.d.conn.SessionID()
	for id, h := range k.holds {
		if h.session != live || now > max(h.deadline, k.over).Add(h.timeout) {
			delete(k.holds, id)
		}
	}
	if now > k.over.Add(k.d.timeout()) {
		clear(k.debts)
	}
}

// settle deletes the nodes of holds that are over and pays debts. What cannot be done now is tried again.
func (k *keeper) settle(due []*hold, debts []debtor) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	seats := make(chan struct{}, 64)
	run := func(f func()) {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			f()
		})
	}
	for _, h := range due {
		run(func() {
			if _, err := k.d.erase(ctx, h.dir, h.nodes); err != nil {
				k.mu.Lock()
				k.look(driver.Now().Add(debtEvery))
				k.mu.Unlock()
				return
			}
			k.drop(h)
			if !h.kept {
				h.ear.tell(driver.Lost)
			}
		})
	}
	for _, x := range debts {
		run(func() {
			if x.undo(ctx) == nil {
				k.mu.Lock()
				delete(k.debts, x)
				k.mu.Unlock()
			}
		})
	}
	wg.Wait()
}
