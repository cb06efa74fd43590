package seckill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/pawl-lock/pawl"
)

// config is what the parent tells a server. It is sent over a pipe, since the backend's URL may carry a password.
type config struct {
	Server   int    // 1, 2, …
	Strategy string // by name
	Database place  // of the shop
	Backend  string // URL of the lock store
	Prefix   string // of its names
	Lock     string // name of the lock
	Pauses   []int  // ask to be stopped when so many are left
}

// serve is a server process: it answers the requests that come in until in ends.
func serve(in io.Reader, out io.Writer) (err error) {
	box := newOutbox(out)
	defer box.close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	r := bufio.NewReaderSize(in, 1<<16)
	f, err := readFrame(r)
	if err != nil || f.op != opConfig {
		return errors.Join(errors.New("a server of the shop is started by its parent"), err)
	}
	raw := make([]byte, f.arg)
	if _, err := io.ReadFull(r, raw); err != nil {
		return err
	}
	var cfg config
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return err
	}
	shop, sell, closeShop, err := openShop(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeShop()

	d := newDesk(shop, sell, box)
	shop.pause = d.pause
	box.put(frame{op: opReady}, nil)
	err = d.run(ctx, r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func openShop(ctx context.Context, cfg config) (_ *shop, _ sellFunc, closeShop func(), err error) {
	st, ok := findStrategy(cfg.Strategy)
	if !ok {
		return nil, nil, nil, fmt.Errorf("unknown strategy %q", cfg.Strategy)
	}
	var closers []func()
	closeShop = func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}
	defer func() {
		if err != nil {
			closeShop()
		}
	}()
	s := &shop{cfg: cfg, parts: st.parts}
	if s.db, err = openLedger(cfg.Database); err != nil {
		return nil, nil, nil, fmt.Errorf("open the shop's database: %w", err)
	}
	closers = append(closers, func() { s.db.close() })
	switch {
	case !st.store:
	case st.naive:
		if s.naive, err = openNaive(cfg.Backend, cfg.Prefix+cfg.Lock, s.db); err != nil {
			return nil, nil, nil, fmt.Errorf("open the lock store: %w", err)
		}
		closers = append(closers, s.naive.close)
	default:
		at := cfg.Backend
		if st.pauses {
			at = shortSession(at)
		}
		d, err := openStore(ctx, at, cfg.Prefix, s.db)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("open the lock store: %w", err)
		}
		s.locks = pawl.New(d).With(pawl.Options{Logger: slog.New(slog.DiscardHandler)}) // leases are lost on purpose
		closers = append(closers, func() { s.locks.Close() })
	}
	return s, st.sell(s), closeShop, nil
}

// desk takes the requests of one server: a few workers, a queue, and the sign "sold out" at the door.
type desk struct {
	shop    *shop
	sell    sellFunc
	box     *outbox
	pauses  map[int]bool
	resumed chan struct{}

	mu     sync.Mutex
	moved  sync.Cond
	inside int  // workers that serve a request
	shut   bool // a pause is being prepared or under way: nobody else goes in
}

func newDesk(s *shop, sell sellFunc, box *outbox) *desk {
	d := &desk{shop: s, sell: sell, box: box, pauses: map[int]bool{}, resumed: make(chan struct{}, 1)}
	d.moved.L = &d.mu
	for _, n := range s.cfg.Pauses {
		d.pauses[n] = true
	}
	return d
}

func (d *desk) run(ctx context.Context, in io.Reader) error {
	ctx, stop := context.WithCancel(ctx)
	queue := make(chan frame, 2*window)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for f := range queue {
				d.serve(ctx, f)
			}
		})
	}
	defer wg.Wait()
	defer close(queue)
	defer stop()
	for {
		f, err := readFrame(in)
		if err != nil {
			return err
		}
		switch f.op {
		case opBuy:
			if d.shop.closed.Load() {
				d.box.put(frame{opAnswer, f.id, uint32(soldOut)}, nil)
				continue
			}
			queue <- f
		case opResume:
			d.resumed <- struct{}{}
		default:
			return fmt.Errorf("unknown operation %d", f.op)
		}
	}
}

func (d *desk) serve(ctx context.Context, f frame) {
	d.enter()
	defer d.leave()
	a := soldOut
	if !d.shop.closed.Load() {
		var err error
		if a, err = d.sell(ctx, f.arg); err != nil {
			text := err.Error()
			d.box.put(frame{opError, f.id, uint32(len(text))}, []byte(text))
		}
	}
	d.box.put(frame{opAnswer, f.id, uint32(a)}, nil)
}

func (d *desk) enter() {
	d.mu.Lock()
	for d.shut {
		d.moved.Wait()
	}
	d.inside++
	d.mu.Unlock()
}

func (d *desk) leave() {
	d.mu.Lock()
	d.inside--
	d.moved.Broadcast()
	d.mu.Unlock()
}

// pause asks the parent to stop this process if it is time for that, and returns after it went on. The others at the
// desk finish first, for a process that is stopped inside a SQLite write would stop everybody else's too.
func (d *desk) pause(ctx context.Context, left int) {
	if !d.pauses[left] {
		return
	}
	d.mu.Lock()
	if d.shut {
		d.mu.Unlock()
		return
	}
	d.shut = true
	for d.inside > 1 {
		d.moved.Wait()
	}
	d.mu.Unlock()
	d.box.put(frame{opPause, 0, uint32(left)}, nil)
	select {
	case <-d.resumed:
	case <-ctx.Done(): // the parent is gone
	}
	d.mu.Lock()
	d.shut = false
	d.moved.Broadcast()
	d.mu.Unlock()
}
