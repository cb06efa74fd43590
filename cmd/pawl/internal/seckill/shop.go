package seckill

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
)

// How the shop works.
const (
	workers  = 16                     // requests that one server works on at once
	think    = 4 * time.Millisecond   // between read and write: price, voucher, a call to the payment service
	shortTTL = 2 * time.Millisecond   // of setnx-del: shorter than the work
	pauseTTL = 300 * time.Millisecond // of the leases that are paused
)

// sellFunc serves one request of a buyer.
type sellFunc func(ctx context.Context, buyer uint32) (answer, error)

// shop is one server's side of the sale.
type shop struct {
	cfg   config
	db    *ledger
	parts int          // of the stock
	locks *pawl.Client // nil unless the strategy is one of pawl's
	naive naiveLock    // of setnx-del
	pause func(ctx context.Context, left int)

	mutex  sync.Mutex  // of process-mutex
	closed atomic.Bool // this server has seen that nothing is left, and turns buyers away without asking anybody
}

// outcome closes the shop when nothing is left.
func (s *shop) outcome(left int, has bool) (answer, bool) {
	switch {
	case has:
		return already, true
	case left <= 0:
		s.closed.Store(true)
		return soldOut, true
	}
	return 0, false
}

// readThenWrite is the sale as it is written without a thought of others: read, check, think, write what was computed.
func (s *shop) readThenWrite(ctx context.Context, buyer uint32) (answer, error) {
	left, has, err := s.db.look(ctx, s.db.read, whole, buyer)
	if err != nil {
		return failed, err
	}
	if a, over := s.outcome(left, has); over {
		return a, nil
	}
	time.Sleep(think)
	return s.write(ctx, whole, left-1, buyer)
}

func (s *shop) write(ctx context.Context, part, left int, buyer uint32) (answer, error) {
	err := s.db.inTx(ctx, func(tx *sql.Tx) error {
		if err := s.db.set(ctx, tx, part, left); err != nil {
			return err
		}
		return s.db.order(ctx, tx, buyer, s.cfg.Server)
	})
	if err != nil {
		return failed, err
	}
	return bought, nil
}

func (s *shop) none() sellFunc { return s.readThenWrite }

func (s *shop) processMutex() sellFunc {
	return func(ctx context.Context, buyer uint32) (answer, error) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.closed.Load() {
			return soldOut, nil
		}
		return s.readThenWrite(ctx, buyer)
	}
}

// setnxDel makes two mistakes: the lock runs out during the work, and whoever ends deletes it, although it may be
// somebody else's by then.
func (s *shop) setnxDel() sellFunc {
	return func(ctx context.Context, buyer uint32) (answer, error) {
		ok, err := s.naive.setNX(ctx, shortTTL)
		if err != nil {
			return failed, err
		}
		if !ok {
			return busy, nil
		}
		a, err := s.readThenWrite(ctx, buyer)
		if derr := s.naive.del(ctx); err == nil && derr != nil {
			return a, derr
		}
		return a, err
	}
}

// errNone rolls a transaction back when nothing is to be written.
var errNone = errors.New("nothing to write")

// rowUpdate lets the database decide: the check and the write are one statement, the rule of one order per buyer part of
// the same transaction. The update comes first, since it takes the row: what is read after it has waited for all sales before.
// The thinking comes before both, since a transaction should not be open meanwhile.
func (s *shop) rowUpdate() sellFunc {
	return func(ctx context.Context, buyer uint32) (a answer, err error) {
		time.Sleep(think)
		if s.closed.Load() {
			return soldOut, nil
		}
		err = s.db.inTx(ctx, func(tx *sql.Tx) error {
			took, err := s.db.take(ctx, tx, whole)
			if err != nil {
				return err
			}
			left, has, err := s.db.look(ctx, tx, whole, buyer)
			switch {
			case err != nil:
				return err
			case has:
				a = already
				return errNone
			case !took:
				a, _ = s.outcome(left, false)
				return errNone
			}
			a = bought
			return s.db.order(ctx, tx, buyer, s.cfg.Server)
		})
		if err != nil && err != errNone {
			return failed, err
		}
		return a, nil
	}
}

func (s *shop) tryLock() sellFunc {
	m := s.locks.Mutex(s.cfg.Lock)
	return func(ctx context.Context, buyer uint32) (a answer, err error) {
		err = m.TryDo(ctx, func(ctx context.Context) error {
			a, err = s.readThenWrite(ctx, buyer)
			return err
		})
		switch {
		case errors.Is(err, pawl.ErrHeld):
			return busy, nil
		case err != nil:
			return failed, err
		}
		return a, nil
	}
}

func (s *shop) lockWait() sellFunc {
	m := s.locks.Mutex(s.cfg.Lock)
	return func(ctx context.Context, buyer uint32) (a answer, err error) {
		err = m.Do(ctx, func(ctx context.Context) error {
			if s.closed.Load() {
				a = soldOut
				return nil
			}
			a, err = s.readThenWrite(ctx, buyer)
			return err
		})
		if err != nil {
			return failed, err
		}
		return a, nil
	}
}

// buyerStripes is how many locks stand for all buyers.
const buyerStripes = 256

// striped sells from the first part that is free and not empty. The lock of a part guards its stock and nothing else: that
// a buyer gets one order is a matter of all parts, and so of a lock of the buyer's own, around the other. It is one of a few
// hundred that all buyers share by hash, for else every buyer would leave a name in the store.
func (s *shop) striped() sellFunc {
	buyers := s.locks.Striped(s.cfg.Lock+":buyer", buyerStripes)
	stock := s.locks.Striped(s.cfg.Lock+":stock", s.parts)
	return func(ctx context.Context, buyer uint32) (a answer, err error) {
		who := strconv.FormatUint(uint64(buyer), 10)
		err = buyers.Segment(buyers.Of(who)).Do(ctx, func(ctx context.Context) error {
			if s.closed.Load() {
				a = soldOut
				return nil
			}
			found, err := stock.Any(ctx, stock.Of(who), func(ctx context.Context, part int) (bool, error) {
				left, has, err := s.db.look(ctx, s.db.read, part, buyer)
				switch {
				case err != nil:
					return false, err
				case has:
					a = already
					return true, nil
				case left <= 0:
					return false, nil
				}
				time.Sleep(think)
				a, err = s.write(ctx, part, left-1, buyer)
				return true, err
			})
			if err == nil && !found {
				a, _ = s.outcome(0, false) // every part was seen to be empty, and nothing is put back
			}
			return err
		})
		if err != nil {
			return failed, err
		}
		return a, nil
	}
}

// lockPaused looks at its lease a last time, is paused, and writes. The look cannot help: the pause may always fall after
// it. So the write does not use the lease's context, as if it were on its way already.
func (s *shop) lockPaused() sellFunc {
	return s.underPauses(func(ctx context.Context, buyer uint32, lease *pawl.Lease) (answer, error) {
		left, has, err := s.db.look(ctx, s.db.read, whole, buyer)
		if err != nil {
			return failed, err
		}
		if a, over := s.outcome(left, has); over {
			return a, nil
		}
		time.Sleep(think)
		if lease.Err() != nil {
			return busy, nil
		}
		s.pause(ctx, left)
		return s.write(ctx, whole, left-1, buyer)
	})
}

// lockToken does the same with a token: claimed before the stock is read, and again by the write, in its transaction.
func (s *shop) lockToken() sellFunc {
	return s.underPauses(func(ctx context.Context, buyer uint32, lease *pawl.Lease) (a answer, err error) {
		var left int
		var has bool
		err = s.db.inTx(ctx, func(tx *sql.Tx) error {
			if err := s.db.marks.Claim(ctx, tx, resource, lease); err != nil {
				return err
			}
			left, has, err = s.db.look(ctx, tx, whole, buyer)
			return err
		})
		if errors.Is(err, fence.ErrStale) {
			return busy, s.refuse(ctx, buyer, err)
		}
		if err != nil {
			return failed, err
		}
		if a, over := s.outcome(left, has); over {
			return a, nil
		}
		time.Sleep(think)
		if lease.Err() != nil {
			return busy, nil
		}
		sent := shown(lease) // on its way from here on: nobody looks at the lease any more
		s.pause(ctx, left)
		err = s.db.inTx(ctx, func(tx *sql.Tx) error {
			if err := s.db.marks.Claim(ctx, tx, resource, sent); err != nil {
				return err
			}
			if err := s.db.set(ctx, tx, whole, left-1); err != nil {
				return err
			}
			return s.db.order(ctx, tx, buyer, s.cfg.Server)
		})
		if errors.Is(err, fence.ErrStale) {
			return busy, s.refuse(ctx, buyer, err)
		}
		if err != nil {
			return failed, err
		}
		return bought, nil
	})
}

func (s *shop) underPauses(f func(context.Context, uint32, *pawl.Lease) (answer, error)) sellFunc {
	m := s.locks.With(pawl.Options{TTL: pauseTTL}).Mutex(s.cfg.Lock)
	return func(ctx context.Context, buyer uint32) (answer, error) {
		lease, err := m.TryLock(ctx)
		switch {
		case errors.Is(err, pawl.ErrHeld):
			return busy, nil
		case err != nil:
			return failed, err
		}
		a, err := f(ctx, buyer, lease)
		if uerr := lease.Unlock(); err == nil && uerr != nil && !errors.Is(uerr, pawl.ErrLost) {
			return a, uerr
		}
		return a, err
	}
}

// refuse writes down that a stale write was kept out.
func (s *shop) refuse(ctx context.Context, buyer uint32, why error) error {
	stale, ok := errors.AsType[*fence.StaleError](why)
	if !ok {
		return nil // the lease had ended before anything was sent
	}
	return s.db.refuse(ctx, buyer, stale)
}

// message is a lease as it looks from the other end of the wire: a number that was true when it was sent.
type message struct {
	name, id string
	token    int64
}

func shown(l *pawl.Lease) message {
	m := message{name: l.Name(), id: l.Name(), token: l.Token()}
	if h, ok := any(l).(interface{ ID() string }); ok {
		m.id = h.ID()
	}
	return m
}

func (m message) Name() string { return m.name }
func (m message) Token() int64 { return m.token }
func (m message) ID() string   { return m.id }
func (m message) Err() error   { return nil }
