package seckill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// result is one strategy's line.
type result struct {
	Name         string  `json:"name"`
	Safe         bool    `json:"safe"`
	Sold         int     `json:"sold"`
	Oversold     int     `json:"oversold"`
	Duplicates   int     `json:"duplicates"`
	RefusedStale int     `json:"refused_stale"`
	Unsold       int     `json:"unsold"`
	BuyersPerS   float64 `json:"buyers_per_s"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Seconds      float64 `json:"seconds"`

	strategy strategy
	errors   int    // requests that failed and were repeated
	lastErr  string // of them
}

// run is one invocation.
type run struct {
	options          // its backend is never empty
	id      string   // in the names of its locks
	dir     string   // for its databases
	own     bool     // the lock store is in dir
	server  *ledger  // the shop's database if the lock store is a database server
	command []string // starts a server
	clicks  []click
}

// sale runs one strategy: a fresh database, fresh servers, all buyers; then it counts what the database has.
func (r *run) sale(ctx context.Context, st strategy, progress func(done, sold int)) (res result, err error) {
	db, at, leave, err := r.database(ctx, st)
	if err != nil {
		return res, err
	}
	defer leave()
	if err := db.fill(ctx, r.stock, max(st.parts, 1)); err != nil {
		return res, fmt.Errorf("fill the shop: %w", err)
	}

	var levels []int
	if st.pauses {
		levels = pauseLevels(r.stock)
	}
	quit := make(chan struct{})
	heard := make(chan news, 4*r.servers)
	var servers []*process
	var listeners sync.WaitGroup
	defer func() {
		close(quit)
		for _, p := range servers {
			p.kill()
		}
		listeners.Wait()
	}()
	for i := range r.servers {
		p, err := start(r.command, config{Server: i + 1, Strategy: st.name, Database: at, Backend: r.backend,
			Prefix: r.prefix, Lock: r.lock(st.name), Pauses: levels})
		if err != nil {
			return res, err
		}
		servers = append(servers, p)
	}
	stopWaiting := context.AfterFunc(ctx, func() {
		for _, p := range servers {
			p.cmd.Process.Kill()
		}
	})
	defer stopWaiting()
	for _, p := range servers {
		if err := p.ready(); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return res, err
		}
		listeners.Go(func() { p.listen(heard, quit) })
	}

	z := newPauser(levels)
	defer z.stop()
	c := newCrowd(r.clicks, servers, heard, z, progress)
	if err := c.buy(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return res, err
	}
	took := time.Since(c.began)
	if err := closeAll(ctx, servers); err != nil {
		return res, err
	}
	n, err := db.count(ctx)
	if err != nil {
		return res, fmt.Errorf("count the orders: %w", err)
	}
	return result{
		Name: st.name, Safe: st.safe,
		Sold: n.orders, Oversold: max(0, n.orders-r.stock), Duplicates: n.orders - n.buyers, RefusedStale: n.refused,
		Unsold:     max(0, r.stock-n.orders),
		BuyersPerS: float64(r.buyers) / took.Seconds(),
		P50:        float64(c.latency.ValueAtQuantile(50)) / 1000, P99: float64(c.latency.ValueAtQuantile(99)) / 1000,
		Seconds:  took.Seconds(),
		strategy: st, errors: c.errors, lastErr: c.lastErr,
	}, nil
}

// database is the shop's database for one sale: on the server that has the locks, or else a file of its own, which leave
// removes.
func (r *run) database(ctx context.Context, st strategy) (db *ledger, at place, leave func(), err error) {
	if r.server != nil {
		return r.server, r.place(), func() {}, nil
	}
	at = place{File: filepath.Join(r.dir, st.name+".db")}
	if db, err = openLedger(at); err != nil {
		return nil, at, nil, err
	}
	leave = func() {
		db.close()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			os.Remove(at.File + suffix)
		}
	}
	if err = db.create(ctx); err != nil {
		leave()
	}
	return db, at, leave, err
}

// place is where the shop is on a database server, for one of the shop's servers.
func (r *run) place() place {
	const all = 60 // connections; databases are often set to take 100 or 150
	return place{Server: r.backend, Tables: "pawl_seckill_" + r.id + "_", Conns: min(max(all/r.servers, 2), 12)}
}

// closeAll lets the servers quit, all at once.
func closeAll(ctx context.Context, servers []*process) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, p := range servers {
		wg.Go(func() { errs[i] = p.close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
