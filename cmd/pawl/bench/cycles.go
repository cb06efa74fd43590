package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of cycle times: a nanosecond to a quarter of an hour, to a hundredth.
func newTimes() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(15*time.Minute), 2) }

// tally collects the times of some goroutines. There are several, so that goroutines seldom meet in one.
type tally struct {
	mu    sync.Mutex
	times *hdrhistogram.Histogram
}

func (t *tally) add(ns []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range ns {
		t.times.RecordValue(n)
	}
}

// run lets goroutines lock and unlock from At on. What ends within For after the Warmup counts.
func (w *worker) run(o order) (*cycles, error) {
	n := o.N
	step := w.step(o)
	if w.session.Batch != nil {
		n = 1
	}
	a := &cycles{Counts: make([]int64, n), Calls: -1, CPU: -1}
	tallies := make([]*tally, min(n, 8))
	for i := range tallies {
		tallies[i] = &tally{times: newTimes()}
	}
	var failed atomic.Pointer[error]
	var pending atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	time.Sleep(time.Duration(o.At - now()))
	begin := time.Now()
	first, last := int64(o.Warmup), int64(o.Warmup+o.For)
	var wg sync.WaitGroup
	for i := range n {
		t := tallies[i%len(tallies)]
		wg.Go(func() {
			buf := make([]int64, 0, 64)
			var count int64
			was := int64(time.Since(begin))
			for round := 0; ; round++ {
				done, err := step(ctx, i, round)
				is := int64(time.Since(begin))
				if is >= last || err != nil {
					if is < last {
						why := err // &err would cost each cycle an allocation
						failed.CompareAndSwap(nil, &why)
						stop()
					}
					break
				}
				if is >= first {
					count += int64(done)
					buf = append(buf, is-was)
					if len(buf) == cap(buf) {
						t.add(buf)
						buf = buf[:0]
					}
				}
				was = is
			}
			t.add(buf)
			a.Counts[i] = count
			for p := pending.Load(); last-was > p && !pending.CompareAndSwap(p, last-was); p = pending.Load() {
			}
		})
	}
	// The time is over by this goroutine's clock, whether or not those that cannot be cancelled return.
	until := func(at int64) bool {
		timer := time.NewTimer(time.Duration(at) - time.Since(begin))
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done(): // somebody failed
			return false
		}
	}
	var cpu0, calls0 int64
	ok := until(first)
	if ok {
		profiled := w.profile(o)
		cpu0, calls0 = cpu(), w.calls()
		ok = until(last)
		if cpu0 >= 0 {
			a.CPU = cpu() - cpu0
		}
		if calls0 >= 0 {
			a.Calls = w.calls() - calls0
		}
		if err := profiled(); err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	a.Seconds = o.For.Seconds()
	w.say(answer{Ended: true})
	stop()
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(time.Second):
		w.session.Close() // wakes those that know no context
		select {
		case <-all:
		case <-time.After(o.Timeout):
			return nil, errors.New("goroutines still wait for the lock after its client was closed")
		}
	}
	if e := failed.Load(); e != nil {
		return nil, *e
	}
	if !ok {
		return nil, errors.New("the run was cut short")
	}
	times := newTimes()
	for _, t := range tallies {
		times.Merge(t.times)
	}
	a.Times = times.Export()
	a.Pending = pending.Load()
	return a, nil
}

// step is one cycle of goroutine i, or of all keys at once; it answers how many that were.
func (w *worker) step(o order) func(ctx context.Context, i, round int) (int, error) {
	s, c := w.session, w.c
	key := func(i, round int) string {
		if c.Keys > 0 {
			return o.Key + ":" + strconv.Itoa((i+round*o.N)%c.Keys)
		}
		return o.Key + ":" + strconv.Itoa(i)
	}
	if s.Batch != nil {
		// The deepest pipeline that still pays; deeper ones only wait in the server's buffers.
		keys := make([]string, min(o.N, 64))
		for i := range keys {
			keys[i] = key(i, 0)
		}
		return func(ctx context.Context, _, _ int) (int, error) { return len(keys), s.Batch(ctx, keys) }
	}
	lock := s.Lock
	if c.Permits > 0 {
		lock = func(ctx context.Context, key string) (Unlocker, error) { return s.Permit(ctx, key, c.Permits) }
	}
	keys := make([]string, o.N)
	for i := range keys {
		keys[i] = key(i, 0)
	}
	return func(ctx context.Context, i, round int) (int, error) {
		k := o.Key
		switch {
		case c.Own && c.Keys > 0:
			k = key(i, round)
		case c.Own:
			k = keys[i]
		}
		take := lock
		if c.Reads > 0 {
			take = s.Write
			if rand.Float64() < c.Reads {
				take = s.Read
			}
		}
		u, err := take(ctx, k)
		if err != nil {
			return 0, err
		}
		return 1, u.Unlock()
	}
}

// profile begins profiles, if they are wanted, and answers how to end and write them.
func (w *worker) profile(o order) (end func() error) {
	if o.Profile == "" {
		return func() error { return nil }
	}
	write := func(kind string) error {
		f, err := os.Create(o.Profile + "." + kind)
		if err != nil {
			return err
		}
		return errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
	}
	if o.Block {
		runtime.SetBlockProfileRate(10_000) // one sample each 10 µs of waiting
		runtime.SetMutexProfileFraction(10)
		return func() error {
			runtime.SetBlockProfileRate(0)
			runtime.SetMutexProfileFraction(0)
			return errors.Join(write("block"), write("mutex"))
		}
	}
	f, err := os.Create(o.Profile + ".cpu")
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		return func() error { return err }
	}
	return func() error {
		pprof.StopCPUProfile()
		return errors.Join(f.Close(), write("allocs"))
	}
}
